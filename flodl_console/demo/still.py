"""One moment of a scenario, as a live run would tell it.

What it is: the records of a document with its history, and a feed that says no more.
What it is not: a playback; `feed.demo` plays scenarios.
Who drives it: the making of pictures.
"""

from collections.abc import AsyncIterator, Sequence

import anyio

from flodl_console.demo.scenarios import DEFAULT_RANKS, open_scenario
from flodl_console.feed.source import ActionOutcome
from flodl_console.view.records import (
    DocumentArrived,
    EventsArrived,
    Record,
    SourceKind,
    SourceOpened,
    WindowsArrived,
)
from flodl_core.telemetry.state import publish
from flodl_core.units import Seconds


def still_records(
    scenario: str, *, ranks: int = DEFAULT_RANKS, now_s: Seconds = 0.0
) -> tuple[Record, ...]:
    """Return what is known at the instant that shows what a scenario is about.

    Args:
        scenario: one of `demo.scenarios.SCENARIOS`.
        ranks: in the cluster.
        now_s: the console's clock at that instant.

    Raises:
        ConfigError: there is no such scenario, or the number of ranks is out of range.
    """
    run = open_scenario(scenario, ranks=ranks)
    document = run.document_at(run.showcase_s)
    size_bytes = len(publish(document))
    return (
        SourceOpened(kind=SourceKind.LIVE, label="127.0.0.1:1337", is_read_only=False),
        WindowsArrived(page=run.windows_until(run.showcase_s), at_s=now_s),
        EventsArrived(page=run.events_until(run.showcase_s), at_s=now_s),
        DocumentArrived(document=document, at_s=now_s, size_bytes=size_bytes, took_ms=2.0),
    )


class StillFeed:
    """A feed that says what it was given, and then nothing."""

    def __init__(self, records: Sequence[Record]) -> None:
        self._records = tuple(records)
        self.is_told = False

    @property
    def join_token(self) -> None:
        """None: nobody can join a picture."""
        return None

    async def records(self) -> AsyncIterator[Record]:
        """Yield the records, then wait until cancelled."""
        for record in self._records:
            yield record
        self.is_told = True
        await anyio.sleep_forever()

    async def ask(self, action: str, **parameters: str) -> ActionOutcome:
        """Refuse: there is nobody to ask."""
        del action, parameters
        return ActionOutcome(is_accepted=False, text="this is a picture of a run")

    async def aclose(self) -> None:
        """Hold nothing."""
