"""A live run, read over its HTTP port twice a second; reconnects by itself.

What it is: the polling: documents, then what is new of windows and events; a document that
does not come becomes a record and longer pauses.
What it is not: single requests, nor pages; those are `feed.run_port` and `feed.pages`.
Who drives it: one Textual worker iterates `records`; the app's actions call `ask`.

    loading ──▶ live ◀──▶ disconnected (0.5 … 10 s)
                  └──────────▶ ended: the run is over and its port is gone
"""

import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final, TypeAlias

import anyio
import anyio.to_thread

from flodl_console.feed.clock import FeedClock, RealClock
from flodl_console.feed.pages import PageReader
from flodl_console.feed.retries import Retries
from flodl_console.feed.run_end import last_document
from flodl_console.feed.run_port import (
    FIX_TRUST,
    NO_TRUST,
    PortAnswer,
    PortFaultError,
    RunPort,
    RunTrust,
)
from flodl_console.feed.source import ActionOutcome
from flodl_console.view.records import (
    DocumentArrived,
    LinkChanged,
    LinkState,
    Record,
    SourceKind,
    SourceOpened,
)
from flodl_core.errors import RemoteProtocolError
from flodl_core.ids import ClusterPhase
from flodl_core.telemetry.line_file import show_untrusted
from flodl_core.telemetry.run_directory import RunDirectory
from flodl_core.telemetry.state import StateDocument, read_document_untrusted
from flodl_core.units import Seconds

POLL_S: Final = 0.5
ACTIONS: Final = ("start", "stop", "checkpoint", "drain", "evict")

KILLED_WORDS: Final = "the launcher ended without a word: it was killed, or its machine failed"


class OtherRunError(PortFaultError):
    """Another run answers at the address."""


_Fault: TypeAlias = PortFaultError | RemoteProtocolError


class LiveFeed:
    """Reads one run and asks it.

    Args:
        host: name or address, IPv6 without brackets.
        port: of the run.
        trust: what proves us to the run, and the run to us.
        is_read_only: whether `ask` is refused here.
        directory: where the run lies, if it does on this machine; tells how it ended.
        clock: time to wait by; the machine's if None.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        trust: RunTrust = NO_TRUST,
        is_read_only: bool = False,
        directory: RunDirectory | None = None,
        clock: FeedClock | None = None,
    ) -> None:
        self._clock = clock or RealClock()
        self._port = RunPort(host, port, trust=trust, clock=self._clock)
        self._is_read_only = is_read_only
        self._directory = directory
        self._label = self._port.at if directory is None else directory.path.name
        self._document: StateDocument | None = None
        self._pages = PageReader(self._port, self._clock)
        self._ended = ""
        self._join_token = trust.join_token

    @property
    def join_token(self) -> str | None:
        """The join token, where it is known here."""
        return self._join_token

    async def records(self) -> AsyncGenerator[Record, None]:
        """Yield what the run says, until cancelled."""
        yield SourceOpened(kind=SourceKind.LIVE, label=self._label, is_read_only=self._is_read_only)
        yield self._link(LinkState.LOADING, f"asking {self._port.at}")
        retries, is_live = Retries(), False
        while not self._ended:
            try:
                arrived = await self._read_document()
                if not is_live:
                    yield self._link(LinkState.LIVE, f"reading {self._port.at}")
                yield arrived
                is_live = True
                retries.succeed()
            except (PortFaultError, RemoteProtocolError) as fault:
                is_live = False
                pause_s = retries.fail()
                for record in await self._judge(fault, retries.failures, pause_s):
                    yield record
            else:
                pages = self._pages.news(arrived.document)
                async with aclosing(pages):
                    async for record in pages:
                        yield record
                pause_s = 0.0 if self._pages.is_behind else POLL_S
            if pause_s > 0.0 and not self._ended:
                await self._clock.wait(anyio.Event(), pause_s)
        await anyio.sleep_forever()

    async def ask(self, action: str, **parameters: str) -> ActionOutcome:
        """Ask the run for an action and return its answer in words; never raises."""
        if self._is_read_only:
            return ActionOutcome(
                is_accepted=False,
                text="this console is read-only: nothing is asked of the run",
                fix="attach again without --read-only",
            )
        if self._ended:
            return ActionOutcome(is_accepted=False, text=self._ended)
        if action not in ACTIONS:
            return ActionOutcome(is_accepted=False, text=f"a run does not know {action!r}")
        try:
            return _outcome(action, await self._port.act(f"/{action}", parameters))
        except PortFaultError as fault:
            text = f"{fault.happened}; whether it will {action} is not known"
            return ActionOutcome(is_accepted=False, text=text, fix=fault.fix)

    async def aclose(self) -> None:
        """Close what connections are open; safe to call twice."""
        await self._port.aclose()

    async def _read_document(self) -> DocumentArrived:
        began_s = self._clock.now()
        body = await self._port.read("/state.json")
        now_s = self._clock.now()
        document = read_document_untrusted(body)
        if self._document is not None and document.run.id != self._document.run.id:
            raise OtherRunError(
                f"another run answers at {self._port.at} now: "
                f"{show_untrusted(document.run.name, limit_chars=64)} "
                f"{show_untrusted(document.run.id, limit_chars=32)}"
            )
        self._document = document
        return DocumentArrived(
            document=document,
            at_s=now_s,
            size_bytes=len(body),
            took_ms=(now_s - began_s) * 1000.0,
        )

    async def _judge(self, fault: _Fault, failures: int, retry_s: Seconds) -> list[Record]:
        """Return what a failed round means: another try, or the end."""
        records: list[Record] = []
        if isinstance(fault, OtherRunError):
            self._ended = f"{fault.happened}; what is shown is the last of the one before"
        elif self._directory is not None and not self._directory.is_live():
            records += await self._read_end(self._directory)
        if not self._ended and _is_over(self._document, failures):
            self._ended = _end_words(self._document)
        if self._ended:
            return [*records, self._link(LinkState.ENDED, self._ended)]
        said = show_untrusted(fault.happened)
        return [
            LinkChanged(
                state=LinkState.DISCONNECTED,
                detail=f"{said}: {fault.fix}" if fault.fix else said,
                at_s=self._clock.now(),
                retry_in_s=retry_s,
            )
        ]

    async def _read_end(self, directory: RunDirectory) -> list[Record]:
        """Return the document of the end that the run left, and remember that it is over."""
        known = self._document
        if known is None or known.end is None:
            document = await anyio.to_thread.run_sync(
                last_document, directory, known, abandon_on_cancel=True
            )
            if document is None:
                self._ended = KILLED_WORDS
                return []
            self._document = document
        self._ended = _end_words(self._document)
        if self._document is None or self._document is known:
            return []
        return [
            DocumentArrived(
                document=self._document, at_s=self._clock.now(), size_bytes=0, took_ms=0.0
            )
        ]

    def _link(self, state: LinkState, detail: str) -> LinkChanged:
        return LinkChanged(state=state, detail=detail, at_s=self._clock.now())


def _is_over(document: StateDocument | None, failures: int) -> bool:
    """Whether a run that does not answer has ended, by its last word."""
    if document is None:
        return False
    if document.end is not None:
        return True
    return document.phase in (ClusterPhase.DONE, ClusterPhase.FAILED) and failures > 1


def _end_words(document: StateDocument | None) -> str:
    if document is None:
        return "the run has ended"
    if document.end is None:
        return f"the run has ended: {document.phase.value}"
    end = document.end
    return f"the run has ended: exit {end.exit_code}, {show_untrusted(end.reason)}"


def _outcome(action: str, answer: PortAnswer) -> ActionOutcome:
    """Return a run's answer in words."""
    try:
        body = json.loads(answer.body)
    except (ValueError, RecursionError):
        body = None
    said = body if isinstance(body, dict) else {}
    if answer.is_ok:
        follows = said.get("what_follows")
        return ActionOutcome(is_accepted=True, text=_told(follows) or _granted(action, said))
    fix = _told(said.get("fix"))
    if answer.status in (401, 403):
        fix = FIX_TRUST
    reason = _told(said.get("error")) or f"the run answered with status {answer.status}"
    return ActionOutcome(is_accepted=False, text=reason, fix=fix)


def _granted(action: str, said: dict[str, object]) -> str:
    joined = said.get("joined_ranks")
    if action == "start" and isinstance(joined, int):
        return f"the run starts with {joined} ranks"
    return f"the run takes the {action}"


def _told(word: object) -> str:
    return show_untrusted(word, limit_chars=400) if isinstance(word, str) else ""
