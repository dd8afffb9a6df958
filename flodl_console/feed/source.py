"""A feed: the one interface between the console and where its data comes from.

What it is: two protocols that live, replay and demo fulfil alike; one contract
suite holds for all.
What it is not: anything that draws or keeps state.
Who drives it: one Textual worker iterates `records` and posts what it gets; the
app's actions call the operator's methods.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from flodl_console.view.records import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOutcome:
    """What a run answered to an operator."""

    is_accepted: bool
    text: str
    """What will happen, or why nothing will, in one sentence."""
    fix: str = ""


class Feed(Protocol):
    """A source of records, and the operator's road to it."""

    @property
    def join_token(self) -> str | None:
        """What another host proves itself by; None where it is not known here, or needs none."""

    def records(self) -> AsyncIterator[Record]:
        """Yield records until cancelled; the first is SourceOpened, faults are records too."""

    async def ask(self, action: str, **parameters: str) -> ActionOutcome:
        """Ask the run for `start`, `stop`, `checkpoint`, `drain` or `evict`; never raises."""

    async def aclose(self) -> None:
        """Give back what it holds; safe to call twice."""


class Playback(Feed, Protocol):
    """A feed with a position: a replay or a demo."""

    def set_paused(self, *, is_paused: bool) -> None:
        """Stop or go on."""

    def step(self, records: int) -> None:
        """Move by so many documents, backwards if negative; pauses."""

    def seek(self, position_s: float) -> None:
        """Jump; clamped to the record's length."""

    def set_speed(self, speed: float) -> None:
        """Play so many times as fast as it happened, 0.25 to 64."""
