"""A coordinator in Cadence with real pacers on a clock of our own: ranks of given speeds.

Batches take what the test says, an average takes `sync_s`, messages take nothing. Every
sample that a rank draws is written down by the world, so that the coordinator's own
accounts are compared with what was really trained.
"""

import heapq

from coordinator_script import Script, codes, of, sent, tally

from flodl_core.coordinator.cadence import CadenceSettings
from flodl_core.coordinator.effects import Announce, RecordSamples, Send
from flodl_core.dispatch.actions import (
    BatchFinished,
    CheckpointWritten,
    CycleAdopted,
    EvalFinished,
    ReportEpoch,
    RunEval,
    TakeSnapshot,
    TrainBatch,
    WriteCheckpoint,
)
from flodl_core.dispatch.pacer import RankPacer
from flodl_core.elche.settings import ElcheSettings
from flodl_core.ids import Mode, Rank
from flodl_core.ids import SyncOutcome as Sync
from flodl_core.messages import control
from flodl_core.messages.timing import EvalResult

BATCH = 2


class PacedWorld(Script):
    """Ranks that train at their speeds.

    Args:
        batch_ms: what a batch of each rank takes.
        batches: of the one pass.
        sync_s: what an average takes from the request to the acknowledgements.
    """

    def __init__(
        self, batch_ms, batches, *, sync_s=0.015, hosts=None, elche=None, cadence=None, **numbers
    ):
        elche = ElcheSettings(**({"initial_anchor": 10} | (elche or {})))
        settings = numbers.pop("settings", {}) | {
            "cadence": CadenceSettings(elche=elche, **(cadence or {}))
        }
        hosts = hosts or (("red", len(batch_ms)),)
        numbers = {
            "mode": Mode.CPU_CADENCE,
            "n_samples": batches * BATCH,
            "batch_size": BATCH,
        } | numbers
        super().__init__(hosts, settings=settings, **numbers)
        self.batch_ms = list(batch_ms)
        self.sync_s = sync_s
        self.pacers = [RankPacer(Rank(rank), BATCH) for rank in range(self.world)]
        self.drawn = [[] for _ in range(self.world)]
        self.lost_ranks = set()
        self.windows = []
        """(began, ended, batches of each rank, whether it was cut, the counts planned)."""
        self.trained = []
        self._due = []
        self._number = 0
        self._began = None
        self._cut = False
        self._snapshots = {}
        self._divergence = 0.01
        self.part_s = [0.0] * self.world
        """What each rank takes to write its part of a save."""
        self.eval_s = 0.0
        self.eval_errors = {}
        self.evaluated = []
        """(rank, event) of each evaluation that began."""
        self.start()

    # what the coordinator says reaches the pacers

    def handle(self, event):
        effects = super().handle(event)
        for effect in effects:
            if isinstance(effect, Send) and hasattr(self, "pacers"):
                self._deliver(effect.rank, effect.message)
            if isinstance(effect, RecordSamples):
                self.trained += effect.entries
        return effects

    def _deliver(self, rank, message):
        if isinstance(message, control.Cut):
            self._cut, self.cut_at = True, self.now
        if isinstance(message, control.RequestParams | control.Cut) and rank not in self.lost_ranks:
            self._at(self.sync_s, lambda: self._answer_cycle())
        self.pacers[rank].handle(message)
        self._at(0.0, lambda: self._go_on(rank))

    def _at(self, after_s, deed):
        self._number += 1
        heapq.heappush(self._due, (self.now + after_s, self._number, deed))

    def _go_on(self, rank):
        """Let a rank begin what it is to do next."""
        pacer = self.pacers[rank]
        while rank not in self.lost_ranks:
            match pacer.next_action():
                case TrainBatch() as batch:
                    self.drawn[rank].append(batch)
                    self._at(self.batch_ms[rank] / 1000, lambda: self._end_batch(rank, batch))
                    return
                case TakeSnapshot() as shot:
                    self._snapshots[rank] = shot
                    self.ready(rank, shot.cycle, n=shot.n, samples=shot.samples)
                case WriteCheckpoint(version) if self.part_s[rank]:
                    self._at(self.part_s[rank], lambda: self._end_write(rank, version))
                    return
                case WriteCheckpoint(version):
                    pacer.handle(CheckpointWritten(version))
                    self.checkpoint_result(rank, version)
                case ReportEpoch(epoch):
                    self.metrics(rank, self._unreported(rank, epoch), epoch)
                case RunEval(schedule_id):
                    self.evaluated.append((rank, schedule_id))
                    self._at(self.eval_s, lambda: self._end_eval(rank, schedule_id))
                    return
                case _:
                    return

    def _end_write(self, rank, version):
        if rank in self.lost_ranks:
            return
        self.pacers[rank].handle(CheckpointWritten(version))
        self.checkpoint_result(rank, version)
        self._go_on(rank)

    def _end_eval(self, rank, schedule_id):
        if rank in self.lost_ranks:
            return
        self.pacers[rank].handle(EvalFinished(schedule_id))
        error = self.eval_errors.get(rank)
        said = EvalResult(
            rank=Rank(rank),
            schedule_id=schedule_id,
            epoch=schedule_id,
            metric=None if error else 1.5,
            metric_name="nats",
            elapsed_ms=self.eval_s * 1000,
            error=error,
        )
        self.tell(rank, said)
        self._go_on(rank)

    def _unreported(self, rank, epoch):
        done = [batch for batch in self.drawn[rank] if batch.epoch == epoch]
        self.drawn[rank] = [batch for batch in self.drawn[rank] if batch.epoch != epoch]
        return sum(batch.size for batch in done)

    def _end_batch(self, rank, batch):
        if rank in self.lost_ranks:
            return
        self.pacers[rank].handle(BatchFinished(batch.size, True))
        self.batch(rank, batch.size, batch_ms=self.batch_ms[rank])
        self._go_on(rank)

    def _answer_cycle(self):
        """All rounds of the cycle end, once every rank that lives has its mark."""
        alive = [rank for rank in range(self.world) if rank not in self.lost_ranks]
        cycle = self.machine._state.cycle.cycle
        present = [rank for rank in alive if rank in self._snapshots]
        if cycle in (None, 0) or set(present) < {
            rank for rank in alive if self.machine._state.cohort[Rank(rank)].alive
        }:
            if cycle:
                self._at(0.001, self._answer_cycle)
            return
        shots, self._snapshots = self._snapshots, {}
        tallies = [tally(rank, n=shots[rank].n, samples=shots[rank].samples) for rank in present]
        batches = tuple(shots[rank].n if rank in shots else 0 for rank in range(self.world))
        planned = self.planned
        self.windows.append((self._began, self.now, batches, self._cut, planned))
        self._cut = False
        self._began = self.now
        realized = any(one.n for one in tallies)
        self.rounds(cycle, tallies)
        outcome = Sync.COMMITTED if realized else Sync.UNREALIZED
        for rank in present:
            self.pacers[rank].handle(CycleAdopted(cycle, outcome))
            self.ack(rank, cycle, outcome, divergence=self._divergence)
        for rank in present:
            self._go_on(rank)

    # driving

    def start(self):
        """The bootstrap by hand; pacers take over with the first plans."""
        pacers, self.pacers = self.pacers, [_Deaf() for _ in self.pacers]
        self.rendezvous()
        tallies = [tally(rank, n=int(rank == 0), samples=0) for rank in range(self.world)]
        for rank in range(self.world):
            self.ready(rank, 0, n=int(rank == 0), samples=0)
        self.rounds(0, tallies)
        self._due.clear()
        self.pacers = pacers
        for rank in range(self.world):
            self.ack(rank, 0)
        self._began = self.now
        self.topics_at_start = self.topics()
        self.forget()
        return self

    def run(self, windows=10_000, *, until=None):
        """Let time pass until so many windows are over, `until` is true, or the run ends."""
        goal = len(self.windows) + windows
        while len(self.windows) < goal and not self.machine.ended and not (until and until()):
            due = self.machine.deadline()
            if self._due and (due is None or self._due[0][0] <= due):
                self.now, _, deed = heapq.heappop(self._due)
                deed()
            elif due is not None:
                self.now = due
                for rank in range(self.world):
                    if rank not in self.lost_ranks:
                        self.tell(rank, self.heartbeat(rank))
                self.tick()
            else:
                raise AssertionError("nothing is left to happen")
        return self

    def kill(self, rank):
        """The process of a rank is gone, and the coordinator is told."""
        self.lost_ranks.add(rank)
        self._snapshots.pop(rank, None)
        return self.lose(rank)

    # looking

    @property
    def planned(self):
        """Batches of the window under way, by rank."""
        return tuple(record.planned_batches for record in self.machine._state.cohort)

    @property
    def elche(self):
        return self.machine.view(self.now).elche

    def share_of_ideal(self, windows):
        """Batches of these windows against what the ranks do alone in that time."""
        began, ended = windows[0][0], windows[-1][1]
        done = sum(sum(batches) for _, _, batches, _, _ in windows)
        ideal = sum(1000 / ms for ms in self.batch_ms) * (ended - began)
        return done / ideal

    def positions(self):
        """Every position that was trained, as often as it was."""
        return sorted(
            position
            for entry in self.trained
            if entry.status == "trained"
            for part in entry.ranges
            for position in range(part.offset, part.end)
        )

    def topics(self):
        return [effect.topic for effect in of(self.said, Announce)]


class _Deaf:
    """Takes messages and does nothing."""

    def handle(self, _):
        return []

    def next_action(self):
        return None


__all__ = ["BATCH", "PacedWorld", "codes", "sent"]
