"""One rank of a played cohort: the real pacer, and batches that take what the profile says.

What it is: the loop of a worker without a model: it trains by waiting, and reports as a
worker does, each batch at once.
What it is not: the schedule; `dispatch.pacer` is that.
Who drives it: `simulation.pace_world`.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

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
from flodl_core.ids import Cycle, Rank, SyncOutcome
from flodl_core.messages.metrics import MetricsMsg
from flodl_core.messages.rendezvous import Role, RoleKind, Uid
from flodl_core.messages.timing import Batch, Batches, CheckpointResult, EvalResult, SnapshotReady
from flodl_core.simulation.pace_profile import PaceProfile
from flodl_core.units import Milliseconds, Seconds


@dataclass(slots=True, kw_only=True)
class RankWork:
    """What a rank asks of its world."""

    after: Callable[[Seconds, Callable[[], None]], None]
    say: Callable[[Rank, object], None]
    ready: Callable[[Cycle], None]
    now: Callable[[], Seconds]
    window: Callable[[], int]


class PaceRank:
    """One rank.

    Attributes:
        alive: whether its process runs.
        shot: the snapshot that it gave to the cycle under way.
        steps: batches since it began.
    """

    def __init__(
        self, rank: Rank, profile: PaceProfile, work: RankWork, rng: random.Random
    ) -> None:
        self.rank, self.alive, self.steps = rank, True, 0
        self.shot: TakeSnapshot | None = None
        self._profile, self._work, self._rng = profile, work, rng
        self._pacer = RankPacer(rank, 1)
        self._busy = False
        self._fills = True
        self._last_at: Seconds | None = None
        self._busy_ms: Milliseconds = 0.0
        self._unreported: dict[int, int] = {}

    def take_busy_ms(self) -> Milliseconds:
        """Return what the batches took since it was last asked."""
        busy_ms, self._busy_ms = self._busy_ms, 0.0
        return busy_ms

    def take(self, message: object) -> None:
        """A message of the coordinator arrived."""
        if not self.alive:
            return
        if isinstance(message, Role):
            if message.role is RoleKind.GENERATE:
                self._work.say(self.rank, Uid(uid=bytes(128)))
            return
        self._pacer.handle(message)
        self._go_on()

    def adopt(self, cycle: Cycle, outcome: SyncOutcome) -> None:
        """The cycle's rounds have ended; who trained on has no pipeline to fill anew."""
        self.shot = None
        self._fills = not self._busy
        self._pacer.handle(CycleAdopted(cycle, outcome))

    def _go_on(self) -> None:
        while self.alive and not self._busy:
            match self._pacer.next_action():
                case TrainBatch() as batch:
                    self._begin(batch)
                case TakeSnapshot() as shot:
                    self._snapshot(shot)
                case WriteCheckpoint(version):
                    self._pacer.handle(CheckpointWritten(version))
                    self._work.say(
                        self.rank,
                        CheckpointResult(
                            rank=self.rank, version=version, elapsed_ms=0.0, local_buffers={}
                        ),
                    )
                case RunEval() as errand:
                    self._busy = True
                    took_ms = self._profile.eval_ms or 0.0
                    self._work.after(took_ms / 1000.0, partial(self._evaluated, errand, took_ms))
                case ReportEpoch(epoch):
                    self._report(epoch)
                case _:
                    return

    def _begin(self, batch: TrainBatch) -> None:
        window = self._work.window()
        cost_ms = self._profile.cost_ms(self.rank, window)
        cost_ms *= 1 + self._profile.jitter * self._rng.uniform(-1.0, 1.0)
        fill_ms = self._profile.fill_ms if self._fills else 0.0
        self._busy, self._fills = True, False
        took_s = (cost_ms + fill_ms) / 1000.0
        self._work.after(took_s, partial(self._end, batch, cost_ms))

    def _end(self, batch: TrainBatch, cost_ms: Milliseconds) -> None:
        if not self.alive:
            return
        now = self._work.now()
        since_ms = 0.0 if self._last_at is None else (now - self._last_at) * 1000.0
        self._busy, self._last_at = False, now
        self.steps += 1
        self._busy_ms += cost_ms
        self._unreported[batch.epoch] = self._unreported.get(batch.epoch, 0) + batch.size
        self._pacer.handle(BatchFinished(samples=batch.size, applied=True))
        row = Batch(
            batch_ms=cost_ms,
            data_ms=0.0,
            since_previous_ms=since_ms,
            step_count=self.steps,
            samples=batch.size,
        )
        self._work.say(self.rank, Batches(rank=self.rank, rows=(row,)))
        self._go_on()

    def _snapshot(self, shot: TakeSnapshot) -> None:
        self.shot = shot
        ready = SnapshotReady(rank=self.rank, cycle=shot.cycle, n=shot.n, samples=shot.samples)
        self._work.say(self.rank, ready)
        self._work.ready(shot.cycle)

    def _evaluated(self, errand: RunEval, took_ms: Milliseconds) -> None:
        if not self.alive:
            return
        self._busy = False
        self._pacer.handle(EvalFinished(errand.schedule_id))
        self._work.say(
            self.rank,
            EvalResult(
                rank=self.rank,
                schedule_id=errand.schedule_id,
                epoch=errand.epoch,
                metric_name="played",
                elapsed_ms=took_ms,
            ),
        )
        self._go_on()

    def _report(self, epoch: int) -> None:
        samples = self._unreported.pop(epoch, 0)
        self._work.say(
            self.rank,
            MetricsMsg(
                rank=self.rank,
                epoch=epoch,
                batches_processed=samples,
                samples_processed=samples,
                loss_samples=samples,
                epoch_ms=0.0,
                share_complete_ms=0.0,
                compute_only_ms=0.0,
                data_starve_ms=0.0,
                scalars={},
            ),
        )
