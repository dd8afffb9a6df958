"""The launcher's loop: one mailbox, the real coordinator, effects carried out.

What it is: events are taken in the order of posting, one at a time, with a seeded
lag; a Tick is given when the machine's deadline has passed. After every event the
machine's invariants are asserted, its view is composed and its waits are compared
with their ceilings.
What it is not: the launcher; it starts no process and opens no port.
Who drives it: `simulation.world`.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from flodl_core.coordinator.effects import (
    DeclareRankDead,
    DismissHost,
    DropHost,
    Effect,
    EvictRank,
    RunFinished,
    SaveBundle,
    Send,
)
from flodl_core.coordinator.events import Event, SaveFinished
from flodl_core.coordinator.machine import Coordinator
from flodl_core.ids import HostName, Rank
from flodl_core.machines import Tick
from flodl_core.simulation.oracles import Oracles
from flodl_core.simulation.scenario import Scenario
from flodl_core.simulation.sim_root import SimRoot
from flodl_core.simulation.virtual_loop import VirtualLoop
from flodl_core.units import Seconds

SLACK_S: Seconds = 2.0
"""How late a ceiling may be noticed: one beacon and the launcher's own lag."""

_VIEW_EVERY = 7


@dataclass(slots=True)
class LauncherCalls:
    """What the launcher asks of the rest of the world."""

    send: Callable[[Rank, object], None]
    end_rank: Callable[[Rank, Seconds], None]
    """Have the rank's process ended, by its host, after a grace."""
    dismiss_host: Callable[[HostName], None]
    close_host: Callable[[HostName], None]
    finished: Callable[[], None]


class SimLauncher:
    """The loop that owns the coordinator."""

    def __init__(
        self,
        scenario: Scenario,
        loop: VirtualLoop,
        coordinator: Coordinator,
        *,
        root: SimRoot,
        oracles: Oracles,
        calls: LauncherCalls,
    ) -> None:
        self._scenario, self._loop, self._coordinator = scenario, loop, coordinator
        self._root, self._oracles, self._calls = root, oracles, calls
        self._rng = scenario.rng("launcher")
        self._mailbox: deque[Event] = deque()
        self._pump_at: Seconds | None = None
        self._away_until: Seconds = 0.0
        self._writes = 0
        self.handled = 0
        self.notes: dict[str, int] = {}

    def start(self) -> None:
        """Give the coordinator its first event."""
        self.post(Tick())
        for at_s, for_s in self._scenario.absences:
            self._loop.at(self._loop.now + at_s, partial(self._go_away, for_s))

    def _go_away(self, for_s: Seconds) -> None:
        """The launcher's process is stopped for a while."""
        self._away_until = self._loop.now + for_s

    def post(self, event: Event) -> None:
        """Put an event into the mailbox."""
        self._mailbox.append(event)
        self._schedule(self._loop.now)

    def _schedule(self, when: Seconds) -> None:
        when = max(when, self._away_until) + self._scenario.launcher_lag.draw(self._rng)
        if self._pump_at is None or when < self._pump_at:
            self._pump_at = when
            self._loop.at(when, lambda: self._pump(when))

    def _pump(self, when: Seconds) -> None:
        if self._pump_at != when:
            return
        self._pump_at = None
        now = self._loop.now
        if now < self._away_until:
            self._schedule(self._away_until)
            return
        due = self._coordinator.deadline()
        if due is not None and due <= now and (not self._mailbox or self._rng.random() < 0.5):
            self._handle(Tick(), now)
        elif self._mailbox:
            self._handle(self._mailbox.popleft(), now)
        if self._oracles.ends.finished is None:
            due = self._coordinator.deadline()
            if self._mailbox:
                self._schedule(now)
            elif due is not None:
                self._schedule(due)

    def _handle(self, event: Event, now: Seconds) -> None:
        self.handled += 1
        effects = self._coordinator.handle(event, now)
        self._coordinator.check()
        if isinstance(event, Tick):
            due = self._coordinator.deadline()
            self._oracles.rules.require(due is None or due > now, "deadline", f"{due} after a tick")
        self._oracles.effects(event, effects)
        for effect in effects:
            self._perform(effect)
        if isinstance(event, Tick) or self.handled % _VIEW_EVERY == 0:
            self._look_at_waits(now)

    def _look_at_waits(self, now: Seconds) -> None:
        self._oracles.ends.look_for_the_forgotten()
        view = self._coordinator.view(now)
        for wait in view.waits:
            busy = wait.phase.startswith("busy")
            late = wait.age_s > wait.ceiling_s + SLACK_S
            self._oracles.rules.require(busy or not late, "ceilings", f"{wait}")

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._calls.send(effect.rank, effect.message)
            case DeclareRankDead():
                self._root.declare_dead(effect.rank)
                self._calls.end_rank(effect.rank, effect.grace_s)
            case EvictRank():
                self._calls.end_rank(effect.rank, 0.0)
            case DismissHost():
                self._calls.dismiss_host(effect.host)
            case DropHost():
                self._root.drop_host(effect.host)
                self._calls.close_host(effect.host)
            case SaveBundle():
                self._save(effect)
            case RunFinished():
                self._calls.finished()
            case _:
                code = getattr(effect, "code", "")
                self.notes[code] = self.notes.get(code, 0) + 1

    def _save(self, effect: SaveBundle) -> None:
        number = self._writes
        self._writes += 1
        committed = self._root.committed
        if committed is None or committed.version != effect.version:
            self._oracles.ends.saved = False
            self.post(SaveFinished(effect.version, "the root holds another version"))
            return
        self._oracles.save_begun(committed)
        if number == self._scenario.hanging_save:
            return
        error = "disk full" if number in self._scenario.failing_saves else None

        def written() -> None:
            self._oracles.save_ended()
            self._oracles.ends.saved = error is None
            if error is None:
                self._oracles.bundle_complete()
            self.post(SaveFinished(effect.version, error))

        self._loop.after(self._scenario.save_s * self._rng.uniform(0.5, 1.5), written)
