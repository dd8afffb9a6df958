"""The status board of a run: composes the document twice a second and at changes, and shows it.

Readers get the last document at once, also while a reduce runs; nobody waits for
a machine.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace

import anyio

from flodl_core.coordinator.machine import Coordinator
from flodl_core.ids import ClusterPhase, Mode
from flodl_core.membership.ledger import MembershipLedger
from flodl_core.messages.join import HostStats
from flodl_core.net import clock
from flodl_core.net.http import Publisher
from flodl_core.roles.alerting import AlertDesk
from flodl_core.roles.publishing import RunFacts, RunParts, compose_document, resources_of
from flodl_core.roles.run_story import GOOD_ENDS, RunStory
from flodl_core.roles.saving import BundleWriter
from flodl_core.roles.wait_teller import WaitTeller
from flodl_core.roles.window import RefusedHost
from flodl_core.telemetry.state import (
    MAX_REFUSAL_ROWS,
    EndState,
    JoinSettings,
    RefusalState,
    ResourceState,
    StateDocument,
    WaitState,
    publish,
)
from flodl_core.units import Seconds

PUBLISH_EVERY_S: Seconds = 0.5
LEAST_SPAN_S: Seconds = 0.5
"""Between two samples of a rank that a percentage is made of."""

MAX_SHOWN_CHARS = 200


class StatusBoard:
    """Composes and publishes.

    Args:
        facts: of the run.
        ledger: of its window.
        desk: has its alerts.
        writer: has its checkpoints.
        story: has its history, which keeps each document too.
        show: takes each document, for the person who started the run.
    """

    def __init__(
        self,
        facts: RunFacts,
        ledger: MembershipLedger,
        *,
        desk: AlertDesk,
        writer: BundleWriter,
        story: RunStory,
        show: Callable[[StateDocument], None],
    ) -> None:
        self.publisher = Publisher()
        self.coordinator: Coordinator | None = None
        self.port: int | None = None
        self.join: JoinSettings | None = None
        self._drops: Callable[[], Mapping[str, int]] = dict
        self._refused_requests: Callable[[], Mapping[str, int]] = dict
        self.newest: StateDocument | None = None
        self.history = story.history
        self.end: EndState | None = None
        self._facts = facts
        self._ledger = ledger
        self._desk = desk
        self._writer = writer
        self._story = story
        self._refusals: deque[RefusalState] = deque(maxlen=MAX_REFUSAL_ROWS)
        self._refused = 0
        self._show = show
        self._waits = WaitTeller(self._tell_wait)
        self._frozen: StateDocument | None = None
        self._changed = anyio.Event()
        self._stats: dict[int, tuple[Seconds, HostStats]] = {}
        self._resources: dict[int, ResourceState] = {}

    def name_mode(self, mode: Mode, reason: str) -> None:
        """Learn the mode of the world that formed."""
        self._facts = replace(self._facts, mode=mode.value, mode_reason=reason)

    def watch_port(
        self,
        number: int,
        *,
        drops: Callable[[], Mapping[str, int]],
        refused_requests: Callable[[], Mapping[str, int]],
    ) -> None:
        """Learn the real port, and where to ask whom it let go and what it refused."""
        self.port, self._drops, self._refused_requests = number, drops, refused_requests

    def document(self) -> StateDocument:
        """Compose the document of this moment."""
        now = clock.now()
        snapshot = self._ledger.snapshot(now)
        phase = snapshot.phase
        if self.end is not None:
            good = self.end.exit_code in GOOD_ENDS
            phase = ClusterPhase.DONE if good else ClusterPhase.FAILED
        if self._frozen is not None:
            return self._frozen.model_copy(
                update={
                    "phase": phase,
                    "alerts": self._desk.rows(),
                    "checkpoint": self._writer.state,
                    "end": self.end,
                    "newest_window_seq": self.history.windows.newest_seq,
                    "newest_event_seq": self.history.events.newest_seq,
                }
            )
        return compose_document(
            self._facts,
            RunParts(
                uptime_s=self.history.uptime_s(),
                port=self.port,
                phase=phase,
                membership=snapshot,
                refused_joins=self._refused,
                refusals=tuple(self._refusals),
                dropped_connections=self._drops(),
                refused_requests=self._refused_requests(),
                join=self.join,
                newest_window_seq=self.history.windows.newest_seq,
                newest_event_seq=self.history.events.newest_seq,
                coordinator=self.coordinator.view(now) if self.coordinator else None,
                alerts=self._desk.rows(),
                checkpoint=self._writer.state,
                resources=self._resources,
                end=self.end,
            ),
        )

    def publish_first(self) -> None:
        """Publish before the port listens, so that no reader finds nothing; nothing is shown."""
        self.newest = self.document()
        self.publisher.publish(publish(self.newest))

    def publish_now(self) -> StateDocument:
        """Compose, publish, record and show."""
        self.newest = document = self.document()
        self.publisher.publish(publish(document))
        self.history.take_document(document)
        self._waits.read(document.waits, clock.now())
        self._show(document)
        return document

    def freeze(self) -> None:
        """Keep training as it stands now: the run is over, and what follows is clearing up."""
        self._frozen = self.document()

    def poke(self) -> None:
        """Have the document published soon: something changed that a reader waits for."""
        self._changed.set()

    async def run(self) -> None:
        """Publish at changes and twice a second, until cancelled."""
        while True:
            self._changed = anyio.Event()
            self._desk.flush_due()
            self._story.flush_due()
            self.publish_now()
            with anyio.move_on_after(PUBLISH_EVERY_S):
                await self._changed.wait()

    def refuse(self, refused: RefusedHost) -> RefusalState:
        """Take a refusal; returns it clean, as it is shown. It replaces an equal one before it."""
        self._refused += 1
        clean = self.history.clean
        row = RefusalState(
            host=clean(refused.host)[:MAX_SHOWN_CHARS],
            address=refused.address,
            reason=clean(refused.reason),
            fix=clean(refused.fix),
            at=clock.utc_iso(),
        )
        for same in [one for one in self._refusals if _is_repeat(one, row)]:
            self._refusals.remove(same)
        self._refusals.append(row)
        return row

    def _tell_wait(self, wait: WaitState) -> None:
        self._story.waited(wait)
        self._desk.log_wait(wait)

    def take_stats(self, stats: HostStats) -> None:
        """Take what the operating system says of a rank."""
        now = clock.now()
        before = self._stats.get(stats.rank)
        if before is not None and now - before[0] < LEAST_SPAN_S:
            return  # held up on the way: the time between two arrivals says nothing
        self._stats[stats.rank] = (now, stats)
        self._resources[stats.rank] = resources_of(
            before[1] if before else None, stats, now - before[0] if before else 0.0
        )


def _is_repeat(one: RefusalState, other: RefusalState) -> bool:
    return (one.host, one.reason) == (other.host, other.reason)
