"""The host's side of the join protocol: Knock, Offer, Hello, Accept, and the wait for the world.

The same for the launcher's own host, which dials loopback, and for the agent of any other.
It ends with WorldFormed, or with an error that says whether dialling again can help.
"""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from flodl_core import __version__
from flodl_core.errors import RefusedError, RunLostError, TransientJoinError
from flodl_core.ids import HostName, RunId, WireDtype
from flodl_core.membership.job_facts import introduce_host
from flodl_core.messages import SCHEMA_VERSION
from flodl_core.messages.job import JobFacts, JobRef
from flodl_core.messages.join import Abort, Accept, Knock, Offer, Reject, WorldFormed
from flodl_core.net.join_link import JoinLink
from flodl_core.units import Seconds

_RUN_ID: Final = re.compile(r"[0-9a-f]{16}")
"""It becomes a part of paths here."""
OFFER_WAIT_S: Seconds = 30.0
"""From Knock to Offer and from Hello to Accept; the controller answers at once."""

FORMATION_SLACK_S: Seconds = 10.0
"""Beyond the window's cap, until which the controller must have said how the window ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalJob:
    """The job as this host has it, and what it turned out to be here."""

    ref: JobRef
    path: Path | None
    facts: JobFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedWorld:
    """What a host knows once the world has formed."""

    formed: WorldFormed
    salt: bytes
    job: LocalJob
    devices: tuple[str, ...]


async def join_world(
    link: JoinLink,
    host: HostName,
    *,
    prepare: Callable[[Offer], Awaitable[tuple[LocalJob, tuple[str, ...]]]],
    on_admitted: Callable[[Accept, RunId], None],
) -> JoinedWorld:
    """Ask to be let in and wait for the world.

    Args:
        link: after its handshake; it stays the caller's.
        host: this host's label.
        prepare: finds and inspects the job that is offered, and names this host's devices.
        on_admitted: told of the admission, which may be long before the world forms.

    Raises:
        RefusedError: not admitted, and dialling again changes nothing.
        TransientJoinError: not admitted now, or the controller went away.
        RunLostError: the run was aborted.
    """
    try:
        await link.send(Knock(version=__version__))
        with anyio.fail_after(OFFER_WAIT_S):
            offer = await link.receive()
        if isinstance(offer, Reject):
            raise _rejected(offer)
        if not isinstance(offer, Offer):
            raise _unexpected(offer, "an Offer or Reject")
        if offer.schema != SCHEMA_VERSION:
            raise RefusedError(
                f"the controller speaks message set {offer.schema}, this host {SCHEMA_VERSION}",
                fix="install the same flodl version on every host",
            )
        if _RUN_ID.fullmatch(offer.run_id) is None:
            raise RefusedError(
                "the controller sent a run id that is none",
                fix="check that the address is that of a flodl launcher",
            )
        job, devices = await prepare(offer)
        await link.send(
            introduce_host(
                job.facts,
                devices,
                host=host,
                run_id=offer.run_id,
                wire_dtype=_spoken_wire(offer.wire_dtype),
            )
        )
        salt: bytes | None = None
        wait_s = OFFER_WAIT_S
        while True:
            message = await _next_word(link, wait_s)
            match message:
                case Accept():
                    salt = message.salt or salt
                    wait_s = message.formation_wait_s + FORMATION_SLACK_S
                    on_admitted(message, offer.run_id)
                case WorldFormed() if salt is not None:
                    return JoinedWorld(formed=message, salt=salt, job=job, devices=devices)
                case Reject():
                    raise _rejected(message)
                case Abort():
                    raise RunLostError(message.reason, fix="see the launcher's output")
                case _:
                    raise _unexpected(message, "Accept, WorldFormed, Reject or Abort")
    except TimeoutError as error:
        raise TransientJoinError(
            f"the controller did not answer the knock in {OFFER_WAIT_S:g} s",
            fix="look at the launcher's log; dial again",
        ) from error
    except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError) as error:
        raise TransientJoinError(
            "the controller ended the connection before the world formed",
            fix="look at the launcher's output for the reason; dial again for the next run",
        ) from error


async def _next_word(link: JoinLink, wait_s: Seconds) -> object:
    """Return what the controller says next; it has until a moment after the window's cap.

    Raises:
        TransientJoinError: it said nothing in that time, not even that the window failed.
    """
    with anyio.move_on_after(wait_s):
        return await link.receive()
    raise TransientJoinError(
        f"the world has not formed and the controller has said nothing for {wait_s:.0f} s",
        fix="look whether the launcher is stopped or its host is cut off; dial again",
    )


def _spoken_wire(offered: str) -> str:
    """Return the wire that was offered if this version speaks it, else the one that it would."""
    known = {wire.value for wire in WireDtype}
    return offered if offered in known else WireDtype.F32.value


def _rejected(reject: Reject) -> RefusedError | TransientJoinError:
    kind = TransientJoinError if reject.transient else RefusedError
    return kind(f"the controller refused this host: {reject.reason}", fix=reject.fix)


def _unexpected(message: object, expected: str) -> RefusedError:
    return RefusedError(
        f"the controller sent {type(message).__name__}, expected {expected}",
        fix="install the same flodl version on every host",
    )
