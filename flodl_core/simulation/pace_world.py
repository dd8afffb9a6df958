"""A cohort of given speeds under the real scheduler, on a virtual clock, window by window.

What it is: the real coordinator and a real pacer a rank; batches, averages and evaluations
take what the profile says, messages take nothing. Every choice (counts, growth, cuts, the
last window of an epoch, who takes over) is theirs.
What it is not: a model of training; parameters do not exist here.
Who drives it: `flodl simulate cadence`, and tests of the cadence as a whole.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from flodl_core.coordinator.effects import (
    Announce,
    Effect,
    RaiseAlert,
    RecordWindow,
    SaveBundle,
    Send,
)
from flodl_core.coordinator.events import Event, RankLost, RankMessage, RoundEnded, SaveFinished
from flodl_core.coordinator.machine import Coordinator
from flodl_core.coordinator.settings import CoordinatorSettings
from flodl_core.dispatch.seeds import derive_seed
from flodl_core.ids import (
    Cycle,
    HostName,
    Mode,
    Rank,
    RankPhase,
    Round,
    RoundOutcome,
    RunId,
    SyncOutcome,
)
from flodl_core.machines import Tick
from flodl_core.messages import control
from flodl_core.messages.data import RankTally
from flodl_core.messages.job import Envelope, Geometry, HostRanks, JobRef, RunSpec
from flodl_core.messages.rendezvous import RendezvousHello
from flodl_core.messages.timing import Heartbeat, SyncAck
from flodl_core.simulation.pace_profile import PaceProfile
from flodl_core.simulation.pace_rank import PaceRank, RankWork
from flodl_core.simulation.virtual_loop import VirtualLoop
from flodl_core.units import Milliseconds, Seconds

DATASET_SIG = "d" * 64
_EPOCHS = 1000
_LONGEST_S: Seconds = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedWindow:
    """One window, as it was.

    Attributes:
        number: from 1.
        batches: of each rank in the average; 0 for who is gone.
        busy_ms: what the ranks' batches took, also those that were lost.
        ideal_batches: what the ranks would have done in this time without averaging.
        record: what the scheduler kept of it.
        notes: what it said meanwhile.
    """

    number: int
    took_ms: Milliseconds
    batches: tuple[int, ...]
    busy_ms: tuple[Milliseconds, ...]
    ideal_batches: float
    record: RecordWindow
    notes: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """Part of the ideal that was done."""
        return sum(self.batches) / self.ideal_batches if self.ideal_batches else 0.0

    @property
    def idle(self) -> tuple[float, ...]:
        """Part of the window in which each rank did no batch; 1 for who is gone."""
        return tuple(max(0.0, 1 - busy / self.took_ms) for busy in self.busy_ms)

    @property
    def overhead(self) -> float | None:
        """Averaging's part, as the scheduler measures it."""
        return self.record.overhead


@dataclass(slots=True)
class _Open:
    """The window under way."""

    number: int = 0
    began_at: Seconds = 0.0
    died_at: dict[int, Seconds] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    counted: dict[int, int] = field(default_factory=dict)


class PaceWorld:
    """A world that plays a profile.

    Args:
        profile: of the ranks.
        settings: of the scheduler.
        envelope: of a world of this profile, with its mode and the seed of the jitter.
    """

    def __init__(
        self, profile: PaceProfile, settings: CoordinatorSettings, envelope: Envelope
    ) -> None:
        self._profile = profile
        self.loop = VirtualLoop()
        self.coordinator = Coordinator(
            envelope,
            settings,
            has_eval=profile.eval_ms is not None,
            local_host=HostName("here"),
        )
        self.alive = set(range(len(profile.batch_ms)))
        self._open = _Open()
        self._records: list[RecordWindow] = []
        self._tick_at: Seconds | None = None
        work = partial(
            RankWork,
            after=self.loop.after,
            say=self._say,
            ready=self._ready,
            now=lambda: self.loop.now,
        )
        self.ranks = [
            PaceRank(
                Rank(rank),
                profile,
                work(window=lambda: self._open.number),
                random.Random(derive_seed(envelope.spec.seed, "pace", rank)),  # noqa: S311 no secret
            )
            for rank in range(len(profile.batch_ms))
        ]

    def play(self, windows: int) -> Iterator[PlayedWindow]:
        """Play that many windows, or fewer if the run ends before."""
        self._post(Tick())
        for rank in self.ranks:
            hello = RendezvousHello(
                dataset_sig=DATASET_SIG, global_rank=rank.rank, host_name=HostName("here")
            )
            self._say(rank.rank, hello)
        self._beat()
        while self._open.number <= windows and not self.coordinator.ended:
            if not self.loop.step() or self.loop.now > _LONGEST_S:
                return
            while self._records:
                played = self._close(self._records.pop(0))
                if played.number <= windows:
                    yield played

    # messages

    def _say(self, rank: Rank, message: object) -> None:
        if rank in self.alive:
            self._post(RankMessage(rank, message))

    def _post(self, event: Event) -> None:
        for effect in self.coordinator.handle(event, self.loop.now):
            self._perform(effect)
        due = self.coordinator.deadline()
        if due is not None and due != self._tick_at:
            self._tick_at = due
            self.loop.at(due, partial(self._tick, due))

    def _tick(self, due: Seconds) -> None:
        if self._tick_at == due:
            self._tick_at = None
            self._post(Tick())

    def _beat(self) -> None:
        for rank in sorted(self.alive):
            beat = Heartbeat(rank=Rank(rank), step_count=0, phase=RankPhase.TRAINING)
            self._say(Rank(rank), beat)
        self.loop.after(1.0, self._beat)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(rank, message) if rank in self.alive:
                opens = isinstance(message, control.Update | control.StartEpoch)
                if opens and self._open.number == 0:
                    self._begin_first()
                self.loop.after(0.0, partial(self.ranks[rank].take, message))
            case RecordWindow():
                self._records.append(effect)
            case SaveBundle():
                self.loop.after(0.0, partial(self._post, SaveFinished(effect.version, None)))
            case Announce(topic="window_cut" | "epoch_aggregated" | "evaluated", text=text):
                self._open.notes.append(text)
            case RaiseAlert():
                self._open.notes.append(effect.detail)
            case _:
                pass

    # the average

    def _ready(self, cycle: Cycle) -> None:
        waiting = [self.ranks[rank] for rank in sorted(self.alive)]
        if all(rank.shot is not None and rank.shot.cycle == cycle for rank in waiting):
            took_ms = self._profile.average_ms(self._open.number) if cycle else 0.0
            self.loop.after(took_ms / 1000.0, partial(self._end_cycle, cycle))

    def _end_cycle(self, cycle: Cycle) -> None:
        ranks = [self.ranks[rank] for rank in sorted(self.alive)]
        shots = {rank.rank: rank.shot for rank in ranks if rank.shot is not None}
        tallies = tuple(
            RankTally(rank=rank, n=shot.n, samples=shot.samples, declared=False)
            for rank, shot in shots.items()
        )
        moved = tuple(tally.rank for tally in tallies if tally.n)
        self._open.counted = {tally.rank: tally.n for tally in tallies}
        mass = float(sum(tally.n for tally in tallies))
        done = RoundOutcome.COMMITTED if moved else RoundOutcome.UNREALIZED
        for part in (Round.CONTROL, Round.PARAMS) if moved else (Round.CONTROL,):
            accepted = moved if part is Round.PARAMS else ()
            self._post(
                RoundEnded(
                    cycle=cycle,
                    round=part,
                    outcome=done,
                    ranks_accepted=accepted,
                    mass=mass,
                    tallies=tallies,
                )
            )
        outcome = SyncOutcome.COMMITTED if moved else SyncOutcome.UNREALIZED
        divergence = self._profile.divergence(max(1, self._open.number)) if moved else None
        for rank in ranks:
            rank.adopt(cycle, outcome)
        for rank in ranks:
            ack = SyncAck(
                rank=rank.rank,
                cycle=cycle,
                outcome=outcome,
                step_count=rank.steps,
                divergence=divergence,
                samples=0,
            )
            self._say(rank.rank, ack)

    # windows

    def _begin_first(self) -> None:
        self._open = _Open(number=1, began_at=self.loop.now)
        self._plan_deaths()

    def _plan_deaths(self) -> None:
        for rank in self._profile.dies_in(self._open.number):
            planned = self.coordinator.view(self.loop.now).ranks[rank].planned_batches or 1
            half_s = planned * self._profile.cost_ms(rank, self._open.number) / 2000.0
            self.loop.after(half_s, partial(self._kill, rank))

    def _kill(self, rank: int) -> None:
        if rank in self.alive:
            self.alive.discard(rank)
            self.ranks[rank].alive = False
            self._open.died_at[rank] = self.loop.now
            self._post(RankLost(Rank(rank), "killed, as the profile says"))
            cycle = next((r.shot.cycle for r in self.ranks if r.alive and r.shot), None)
            if cycle is not None:
                self._ready(cycle)

    def _close(self, record: RecordWindow) -> PlayedWindow:
        now, was = self.loop.now, self._open
        took_ms = (now - was.began_at) * 1000.0
        ideal = 0.0
        for rank in range(len(self.ranks)):
            until = was.died_at.get(rank, now if rank in self.alive else was.began_at)
            alive_ms = (until - was.began_at) * 1000.0
            ideal += alive_ms / self._profile.cost_ms(rank, was.number)
        played = PlayedWindow(
            number=was.number,
            took_ms=took_ms,
            batches=tuple(was.counted.get(rank, 0) for rank in range(len(self.ranks))),
            busy_ms=tuple(rank.take_busy_ms() for rank in self.ranks),
            ideal_batches=ideal,
            record=record,
            notes=tuple(was.notes),
        )
        self._open = _Open(number=was.number + 1, began_at=now)
        self._plan_deaths()
        return played


def pace_envelope(
    profile: PaceProfile, *, seed: int = 0, mode: Mode = Mode.CPU_CADENCE
) -> Envelope:
    """Return a world of one host with the ranks of a profile, a batch being one sample."""
    world = len(profile.batch_ms)
    ranks = tuple(Rank(rank) for rank in range(world))
    devices = tuple(f"cpu:{rank}" for rank in range(world))
    return Envelope(
        spec=RunSpec(
            run_id=RunId("0" * 16),
            mode=mode,
            job=JobRef(kind="recipe", name="pace", args={}),
            n_samples=profile.epoch_batches,
            batch_size=1,
            epochs=_EPOCHS,
            epoch_splits=1,
            seed=seed,
            gamma=1.0,
            wire_dtype="f32",
            heartbeat_interval_s=1.0,
            heartbeat_timeout_s=30.0,
            progress_timeout_s=1e6,
            stall_timeout_s=1e6,
            rendezvous_timeout_s=120.0,
            save_path="pace",
        ),
        world_size=world,
        hosts=(HostRanks(host=HostName("here"), ranks=ranks, devices=devices),),
        geometry=Geometry(params=(), params_numel=0, buffers=(), buffers_numel=0, locals=()),
        model_sig="m" * 64,
        layout_sig="l" * 64,
        dataset_sig=DATASET_SIG,
        same_layout=True,
        controller="127.0.0.1:1337",
    )
