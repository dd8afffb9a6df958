"""One run's HTTP port, as the console asks it: bounded in time and size, faults in words.

What it is: single requests. Each ends within its ceiling, also where the other end sends
a byte a second, and keeps at most MAX_BODY_BYTES.
What it is not: the polling; `feed.live` does that.
Who drives it: `feed.live`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import httpx

from flodl_console.feed.clock import FeedClock
from flodl_core.errors import FlodlError
from flodl_core.net.addresses import join_host_port
from flodl_core.net.http_client import FIX_TLS, tls_refusal_of
from flodl_core.net.tls import pinned_context
from flodl_core.units import Seconds

READ_S: Final = 3.0
ACT_S: Final = 5.0
MAX_BODY_BYTES: Final = 5_000_000

FIX_TRUST: Final = "give the run's token with --token-file, or attach on the launcher's machine"


class PortFaultError(FlodlError):
    """A request came to nothing; the text is one sentence for the screen."""


class TooHeavyError(PortFaultError):
    """An answer is too large, or does not come in time; a smaller one might."""


class NotServedError(PortFaultError):
    """The run answers, but has no such path."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortAnswer:
    """Status and body of an answer."""

    status: int
    body: bytes

    @property
    def is_ok(self) -> bool:
        """Whether it grants what was asked."""
        return self.status == httpx.codes.OK


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTrust:
    """What proves us to a run, and the run to us."""

    operator_token: str | None = field(default=None, repr=False)
    """The operator's, not the join token; sent with every request. None sends none."""
    fingerprint: bytes | None = None
    """Of the run's certificate; it makes TLS a must. None speaks plainly."""
    join_token: str | None = field(default=None, repr=False)
    """The join token as text, for who wants to hand it on; it is never sent."""


NO_TRUST: Final = RunTrust()


class RunPort:
    """Asks one run; safe to use from several tasks of one loop.

    Args:
        host: name or address, IPv6 without brackets.
        port: of the run.
        trust: what proves us to the run, and the run to us.
        clock: what the ceilings are measured by.
    """

    def __init__(self, host: str, port: int, *, trust: RunTrust, clock: FeedClock) -> None:
        self.at = join_host_port(host, port)
        self._clock = clock
        headers = {"Accept-Encoding": "identity"}
        if trust.operator_token is not None:
            headers["Authorization"] = f"Bearer {trust.operator_token}"
        fingerprint = trust.fingerprint
        self._client = httpx.AsyncClient(
            base_url=f"http://{self.at}" if fingerprint is None else f"https://{self.at}",
            headers=headers,
            timeout=None,  # noqa: S113 - each request as a whole has its ceiling
            trust_env=False,
            # Without TLS nothing is verified, and reading the system's certificates takes long.
            verify=False if fingerprint is None else pinned_context(fingerprint),
        )

    async def read(self, path: str, limit_s: Seconds = READ_S, **parameters: int) -> bytes:
        """Return what the run serves at a path.

        Raises:
            NotServedError: there is no such path.
            TooHeavyError: the answer is too large, or not there in time.
            PortFaultError: there is no good answer; the text says why.
        """
        answer = await self._ask("GET", path, parameters, limit_s)
        if answer.is_ok:
            return answer.body
        if answer.status == httpx.codes.NOT_FOUND:
            raise NotServedError(f"{self.at} does not serve {path}")
        if answer.status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            raise PortFaultError(f"{self.at} shows the run only to its operator", fix=FIX_TRUST)
        if answer.status == httpx.codes.SERVICE_UNAVAILABLE:
            raise PortFaultError(f"the run at {self.at} has published nothing yet")
        if answer.status == httpx.codes.BAD_REQUEST and b"TLS" in answer.body:
            raise PortFaultError(f"{self.at} speaks TLS, and its token is not here", fix=FIX_TLS)
        raise PortFaultError(f"{self.at} answered with status {answer.status}")

    async def act(self, path: str, parameters: Mapping[str, str]) -> PortAnswer:
        """Ask for an action.

        Raises:
            PortFaultError: there is no answer in time; whether it was done is not known.
        """
        return await self._ask("POST", path, parameters, ACT_S)

    async def aclose(self) -> None:
        """Close what connections are open."""
        await self._client.aclose()

    async def _ask(
        self, method: str, path: str, parameters: Mapping[str, str | int], limit_s: Seconds
    ) -> PortAnswer:
        body = bytearray()
        try:
            with self._clock.limit(limit_s):
                async with self._client.stream(method, path, params=dict(parameters)) as answer:
                    async for piece in answer.aiter_raw():
                        body += piece
                        if len(body) > MAX_BODY_BYTES:
                            raise TooHeavyError(self._too_large())
                    return PortAnswer(status=answer.status_code, body=bytes(body))
        except TimeoutError as error:
            raise TooHeavyError(self._too_slow(len(body), limit_s)) from error
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            if (refusal := tls_refusal_of(error)) is not None:
                raise PortFaultError(f"{self.at} {refusal}", fix=FIX_TLS) from error
            raise PortFaultError(f"no launcher answers at {self.at}") from error
        except httpx.RemoteProtocolError as error:
            why = "broke off its answer" if body else "does not speak HTTP as a run does"
            raise PortFaultError(f"what listens at {self.at} {why}") from error
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            name = type(error).__name__
            raise PortFaultError(f"the connection to {self.at} broke ({name})") from error

    def _too_large(self) -> str:
        return f"the answer of {self.at} is larger than {MAX_BODY_BYTES // 1_000_000} MB"

    def _too_slow(self, received_bytes: int, limit_s: Seconds) -> str:
        if received_bytes:
            return f"{self.at} sends too slowly: {received_bytes:,} bytes in {limit_s:g} s"
        return f"{self.at} did not answer within {limit_s:g} s"
