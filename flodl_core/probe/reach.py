"""Whether a controller can be reached from here, and if not, which of the causes it is.

    unknown host · nothing listens · no answer · closed or not flodl · token · version

What it is: one dial with short ceilings, without joining anything; and a look at the
controller's clock where it may be read.
What it is not: patience; an agent dials on (`net.dial`).
Who drives it: `flodl probe --controller`.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import anyio.to_thread

from flodl_core.config.join_token import JoinToken
from flodl_core.errors import FlodlError
from flodl_core.net.addresses import join_host_port
from flodl_core.net.handshake import DialTimes
from flodl_core.net.http_client import ControllerClient, ControllerUnreachableError
from flodl_core.net.join_link import connect_join
from flodl_core.net.tls import pinned_context
from flodl_core.probe.checks import Check, Finding
from flodl_core.units import Seconds
from flodl_core.wire.handshake import operator_token

REACH_S: Final[Seconds] = 3.0
TIMES: Final = DialTimes(connect_s=2.5, handshake_s=REACH_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reached:
    """What a dial came to."""

    check: Check
    controller_utc_s: Seconds | None
    """The controller's clock; None where it could not be read."""


async def reach_controller(
    host: str,
    port: int,
    token: JoinToken | None,
    *,
    pinned: bytes | None = None,
    at: str | None = None,
) -> Reached:
    """Dial a controller, agree on keys, and hang up.

    Args:
        host: name or address.
        port: of the run.
        token: of the run; None where admission is open, or it is not known.
        pinned: fingerprint of its certificate, where the token does not say one.
        at: what the controller is called; as it is dialled if None.
    """
    at = at or join_host_port(host, port)
    secret = token.secret if token is not None else None
    fingerprint = (token.fingerprint if token is not None else None) or pinned
    try:
        link = await connect_join(host, port, token=secret, fingerprint=fingerprint, times=TIMES)
        await link.aclose()
    except FlodlError as error:
        check = Check(
            name="controller", finding=Finding.ERROR, detail=error.happened, fix=error.fix
        )
        return Reached(check=check, controller_utc_s=None)
    utc_s = await anyio.to_thread.run_sync(_controller_clock, host, port, secret, fingerprint)
    return Reached(
        check=Check(name="controller", finding=Finding.OK, detail=f"{at} answers and admits"),
        controller_utc_s=utc_s,
    )


def _controller_clock(
    host: str, port: int, secret: bytes | None, pinned: bytes | None
) -> Seconds | None:
    """Return the controller's wall clock, from the start of its run and the run's age."""
    bearer = operator_token(secret) if secret is not None else None
    trusted = pinned_context(pinned) if pinned is not None else None
    try:
        with ControllerClient(
            host, port, operator_token=bearer, trusted=trusted, ask_s=REACH_S
        ) as client:
            run = client.state().body.get("run")
    except ControllerUnreachableError:
        return None
    if not isinstance(run, dict):
        return None
    try:
        started = datetime.fromisoformat(str(run.get("started_at")))
        return started.timestamp() + float(run.get("uptime_s", 0.0))
    except (TypeError, ValueError):
        return None
