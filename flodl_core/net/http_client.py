"""A small client of a run's HTTP port, for `flodl status`, `start`, `stop` and `checkpoint`.

Synchronous, because a command line asks once. Proxies of the environment are
never used: the token would pass through them. It also names the run that holds a
port which cannot be bound; whatever answers there is not trusted.
"""

import re
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import httpx

from flodl_core.errors import FlodlError
from flodl_core.ids import ExitCode
from flodl_core.net.addresses import join_host_port
from flodl_core.net.tls import WrongFingerprintError, pinned_context
from flodl_core.units import Seconds

FIX_TLS: Final = "take the run's token anew, from the file `token` of its run directory."
ASK_S: Final = 5.0
OWNER_S: Final = 1.0

_RUN_ID: Final = re.compile(r"[0-9a-f]{16}")
_WILDCARDS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - compared, not bound


class ControllerUnreachableError(FlodlError):
    """No launcher answers at that address."""

    exit_code = ExitCode.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerAnswer:
    """Status and JSON body of an answer."""

    status: int
    body: Mapping[str, object]

    @property
    def is_ok(self) -> bool:
        """Whether the action was accepted."""
        return self.status == httpx.codes.OK

    @property
    def error(self) -> str:
        """What the controller said against it; empty if nothing."""
        return str(self.body.get("error", ""))


class ControllerClient:
    """Asks one launcher.

    Args:
        host: name or address, IPv6 without brackets.
        port: of the run.
        operator_token: sent with every request; None sends none.
        trusted: whose certificate TLS is spoken with; None speaks plainly.
        ask_s: ceiling of one request.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        operator_token: str | None = None,
        trusted: ssl.SSLContext | None = None,
        ask_s: Seconds = ASK_S,
    ) -> None:
        self.at = join_host_port(host, port)
        headers = {} if operator_token is None else {"Authorization": f"Bearer {operator_token}"}
        self._client = httpx.Client(
            base_url=f"http://{self.at}" if trusted is None else f"https://{self.at}",
            headers=headers,
            timeout=ask_s,
            trust_env=False,
            # Without TLS nothing is verified, and reading the system's certificates takes long.
            verify=False if trusted is None else trusted,
        )

    def __enter__(self) -> "ControllerClient":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def state(self) -> ControllerAnswer:
        """Return the status document; status 503 before the first was published.

        Raises:
            ControllerUnreachableError: nobody answers, or it is no launcher.
        """
        return self._ask("GET", "/state.json", {})

    def post(self, path: str, **parameters: str) -> ControllerAnswer:
        """Ask for an action, such as `post("/stop", mode="save")`.

        Raises:
            ControllerUnreachableError: nobody answers, or it is no launcher.
        """
        return self._ask("POST", path, parameters)

    def close(self) -> None:
        """Close what connections are open."""
        self._client.close()

    def _ask(self, method: str, path: str, parameters: Mapping[str, str]) -> ControllerAnswer:
        try:
            answer = self._client.request(method, path, params=dict(parameters))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            if (refusal := tls_refusal_of(error)) is not None:
                raise ControllerUnreachableError(f"{self.at} {refusal}", fix=FIX_TLS) from error
            raise ControllerUnreachableError(
                f"no launcher answers at {self.at} ({type(error).__name__})",
                fix="check that the run is on, and its address and port.",
            ) from error
        try:
            body = answer.json()
        except ValueError:
            body = None
        if not isinstance(body, dict):
            raise ControllerUnreachableError(
                f"what answers at {self.at} is no launcher of flodl",
                fix="check the address and the port of the run.",
            )
        return ControllerAnswer(status=answer.status_code, body=body)


def tls_refusal_of(error: Exception) -> str | None:
    """Return what a failed request says of TLS, as what follows an address; None if nothing."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, WrongFingerprintError):
            return "has another certificate than the token names: another run, or one in between"
        if isinstance(cause, ssl.SSLError):
            return "speaks no TLS 1.3, and the token says that the run does"
        cause = cause.__cause__ or cause.__context__
    return None


def describe_owner(bind: str, port: int, *, ask_s: Seconds = OWNER_S) -> str:
    """Return who listens there: `run 0123456789abcdef`, one that hides its id, or who else."""
    for answer in _answers_at(_WILDCARDS.get(bind, bind), port, ask_s):
        if run_id := _run_id_in(answer):
            return f"run {run_id}"
        if answer.status == HTTPStatus.UNAUTHORIZED and "operator token" in str(answer.body):
            return "a run of flodl that tells nothing without its token"
    return "another program"


def run_id_at(host: str, port: int, *, ask_s: Seconds = OWNER_S) -> str | None:
    """Return the id of the run whose launcher answers at `host:port`, if one does."""
    return next(filter(None, map(_run_id_in, _answers_at(host, port, ask_s))), None)


def _answers_at(host: str, port: int, ask_s: Seconds) -> Iterator[ControllerAnswer]:
    """Ask whoever answers plainly, then by TLS with whatever certificate.

    Nothing of ours is sent, and nothing of the answer but a word is used.
    """
    for trusted in (None, pinned_context(None)):
        try:
            with ControllerClient(host, port, trusted=trusted, ask_s=ask_s) as client:
                yield client.state()
        except ControllerUnreachableError:
            return


def _run_id_in(answer: ControllerAnswer) -> str | None:
    run = answer.body.get("run")
    run_id = run.get("id") if isinstance(run, dict) else None
    return run_id if isinstance(run_id, str) and _RUN_ID.fullmatch(run_id) else None
