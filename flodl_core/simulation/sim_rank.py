"""One rank's process: a real pacer, a tiny model, and everything that can befall it.

What it is: the loop of the training thread (ask the pacer, perform, answer) and the
bridge's heartbeats, on the virtual clock. Messages of the coordinator wait in an
inbox while an action is under way, as in the real worker.
What it is not: a schedule; the pacer decides what is next.
Who drives it: `simulation.world`; faults strike at named sites.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from flodl_core.dispatch.actions import (
    AwaitRounds,
    BatchFinished,
    CheckpointWritten,
    CycleAdopted,
    EvalFinished,
    Hold,
    Leave,
    ReportEpoch,
    RunEval,
    SnapshotDeclared,
    TakeSnapshot,
    TrainBatch,
    WriteCheckpoint,
)
from flodl_core.dispatch.pacer import RankPacer
from flodl_core.ids import Cycle, HostName, Rank, RankPhase, Round, RoundOutcome, SyncOutcome
from flodl_core.messages import control, rendezvous, timing
from flodl_core.messages.data import RoundEnd
from flodl_core.messages.job import Geometry
from flodl_core.messages.metrics import MetricsMsg
from flodl_core.relay.machine import following_round
from flodl_core.simulation.rank_calls import Drawn, RankCalls
from flodl_core.simulation.scenario import Scenario, Site
from flodl_core.simulation.tiny_model import COUNTER, F32, TinyModel, TinySlot, rank_file_of
from flodl_core.simulation.virtual_loop import VirtualLoop
from flodl_core.units import Seconds

HEARTBEAT_S: Seconds = 1.0


@dataclass(slots=True)
class _EpochSums:
    """What a rank did of an epoch since its last report."""

    batches: int = 0
    samples: int = 0
    loss: float = 0.0


class SimRank:
    """One rank."""

    def __init__(
        self,
        scenario: Scenario,
        loop: VirtualLoop,
        *,
        rank: Rank,
        host: HostName,
        geometry: Geometry,
        calls: RankCalls,
    ) -> None:
        self.rank, self.host, self.calls = rank, host, calls
        self.running = True
        self.greeted = False
        self.frozen = False
        self.stuck = False
        self.busy_until: Seconds = 0.0
        self.poisoned = 0
        """Snapshots that are still to be not finite; negative is for good."""
        self.model = TinyModel(rank, geometry)
        self.pacer = RankPacer(rank, scenario.batch_size)
        self.cpu_s = 0.0
        self._scenario, self._loop = scenario, loop
        self._rng = scenario.rng("rank", rank)
        self._inbox: deque[object] = deque()
        self._acting = False
        self._steps = 0
        self._drawn: list[Drawn] = []
        self._sums: dict[int, _EpochSums] = {}
        self._slot: TinySlot | None = None
        self._over: Cycle | None = None
        """A cycle whose rounds have ended, to be adopted at the end of the batch."""
        self._left = False
        self._phase = RankPhase.WAITING
        self._heard_at: Seconds = 0.0
        self._began_at: Seconds = 0.0
        self._read_params = False
        speeds = scenario.batch_s
        self._batch_s = speeds[rank] if rank < len(speeds) else 0.05

    @property
    def drawn_since_snapshot(self) -> list[Drawn]:
        """Batches drawn and in no snapshot yet."""
        return self._drawn

    # its life

    def start(self, dataset_sig: str) -> None:
        """The process begins: Hello after a while, heartbeats from then on."""
        self._heard_at = self._began_at = self._loop.now
        self._loop.after(self._rng.uniform(0.05, 1.0), lambda: self._hello(dataset_sig))

    def _hello(self, dataset_sig: str) -> None:
        if self._halts(Site.HELLO):
            return
        self.greeted = True
        hello = rendezvous.RendezvousHello(
            dataset_sig=dataset_sig, global_rank=self.rank, host_name=self.host
        )
        self.calls.say(hello)
        self._beat()

    def _beat(self) -> None:
        """The bridge: a heartbeat each second, and an end when the controller is gone."""
        if not self.running or self.frozen:
            return
        if self._loop.now >= self.busy_until:
            self.cpu_s += 0.1
            beat = timing.Heartbeat(rank=self.rank, step_count=self._steps, phase=self._phase)
            self.calls.say(beat)
        if self._loop.now - self._heard_at > self._scenario.heartbeat_timeout_s:
            self.end("the controller is gone")
            return
        self._loop.after(HEARTBEAT_S, self._beat)

    def end(self, cause: str) -> None:
        """The process ends now."""
        if self.running:
            self.running = False
            self.calls.exited(cause)

    def _halts(self, site: Site) -> bool:
        """Whether the rank gets no further than this site."""
        if not self.running or self.frozen or self.stuck:
            return True
        return self.calls.strike(site) or not self.running or self.frozen or self.stuck

    def raise_error(self) -> None:
        """The job raises in this rank."""
        self.calls.say(timing.Exiting(rank=self.rank, error="ValueError: the job raised"))
        self.end("exit code 1")

    # what arrives

    def take_message(self, message: object) -> None:
        """A message of the coordinator arrived."""
        if not self.running or self.frozen:
            return
        self._heard_at = self._loop.now
        if isinstance(message, rendezvous.Role):
            if message.role is rendezvous.RoleKind.GENERATE:
                self.calls.say(rendezvous.Uid(uid=bytes(128)))
            return
        if isinstance(message, control.CoordHeartbeat | rendezvous.Uid):
            return
        if isinstance(message, control.RestoreLocals):
            self.model.restore(message.local_buffers)
            return
        self._inbox.append(message)
        self._go_on()

    def take_round_end(self, end: RoundEnd) -> None:
        """Relay or root ended a round of the cycle that this rank is in."""
        if not self.running or self.frozen:
            return
        if end.outcome is RoundOutcome.FAILED:
            self.end("its cycle was over before its snapshot came")
            return
        site = {Round.CONTROL: Site.CONTROL_ENDED, Round.PARAMS: Site.PARAMS_ENDED}.get(end.round)
        if site is not None and self._halts(site):
            return
        committed = end.outcome is RoundOutcome.COMMITTED
        params, buffers = self.calls.staging()
        if end.round is Round.PARAMS:
            self._read_params = committed
            self._next_params = params.copy() if committed else None
        elif end.round is Round.BUFFERS:
            self._next_buffers = buffers.copy() if committed else None
        has_buffers = self._scenario.buffer_buckets > 0
        if following_round(end.round, end.outcome, has_buffers=has_buffers) is None:
            self._over = end.cycle
            self._go_on()

    _next_params: F32 | None = None
    _next_buffers: F32 | None = None

    def _adopt(self, cycle: Cycle) -> None:
        def adopted() -> None:
            if self._halts(Site.BEFORE_ACK):
                return
            slot, before = self._slot, self.model.params
            assert slot is not None, "a cycle that was never offered"
            outcome = SyncOutcome.UNREALIZED
            if self._read_params:
                outcome = SyncOutcome.DECLINED if slot.declared else SyncOutcome.COMMITTED
                self._take_consensus(cycle, slot)
            self._next_params = self._next_buffers = None
            self._read_params = False
            self.pacer.handle(CycleAdopted(cycle, outcome))
            self.calls.acknowledged(cycle, outcome, before)
            self.calls.say(
                timing.SyncAck(
                    rank=self.rank,
                    cycle=cycle,
                    outcome=outcome,
                    step_count=self._steps,
                    divergence=0.1 if outcome is SyncOutcome.COMMITTED else None,
                    samples=0,
                )
            )
            self._halts(Site.AFTER_ACK)

        self._phase = RankPhase.ADOPTING
        self._finish_after(self._rng.uniform(0.0, 0.01), adopted)

    def _take_consensus(self, cycle: Cycle, slot: TinySlot) -> None:
        alpha, params = self._scenario.easgd_alpha, self._next_params
        if alpha is None or cycle == 0 or slot.declared or params is None:
            self.model.adopt(params, self._next_buffers)
        else:
            self.model.move(params, self._next_buffers, snapshot=slot.params, alpha=alpha)

    # what it does

    def _go_on(self) -> None:
        """Drain the inbox and begin the next action, unless one is under way."""
        while self.running and not (self._acting or self.frozen or self.stuck):
            while self._inbox:
                self.pacer.handle(self._inbox.popleft())
            if self._over is not None:
                over, self._over, self._acting = self._over, None, True
                self._adopt(over)
                return
            action = self.pacer.next_action()
            if isinstance(action, Hold | AwaitRounds):
                reducing = isinstance(action, AwaitRounds)
                self._phase = RankPhase.REDUCING if reducing else RankPhase.HELD
                return
            if isinstance(action, ReportEpoch):
                self._report(action.epoch)
                continue
            self._acting = True
            self._begin(action)

    def _begin(self, action: TrainBatch | TakeSnapshot | WriteCheckpoint | RunEval | Leave) -> None:
        match action:
            case TrainBatch():
                self._phase = RankPhase.TRAINING
                if self._halts(Site.IN_BATCH):
                    return
                delay = self._pace_s() * self._rng.uniform(0.8, 1.3)
                delay += max(0.0, self.busy_until - self._loop.now)
                self._finish_after(delay, lambda: self._train(action))
            case TakeSnapshot():
                self._phase = RankPhase.SNAPSHOT
                self._finish_after(self._rng.uniform(0.0, 0.01), lambda: self._snapshot(action))
            case WriteCheckpoint():
                self._phase = RankPhase.SAVING
                self._finish_after(self._rng.uniform(0.0, 0.3), lambda: self._write(action))
            case RunEval():
                self._phase = RankPhase.CALLBACK
                self._finish_after(self._rng.uniform(0.01, 0.5), lambda: self._evaluate(action))
            case Leave():
                self._finish_after(self._rng.uniform(0.0, 0.2), self._leave)

    def _pace_s(self) -> Seconds:
        """What a batch takes now, about."""
        factor = 1.0
        for change in self._scenario.speed_changes:
            if change.rank == self.rank and change.at_s <= self._loop.now - self._began_at:
                factor = change.factor
        return self._batch_s * factor

    def _finish_after(self, delay: Seconds, finish: Callable[[], None]) -> None:
        def finished() -> None:
            if not self.running or self.frozen or self.stuck:
                return
            finish()
            self._acting = self._left
            self._go_on()

        self._loop.after(delay, finished)

    def _train(self, action: TrainBatch) -> None:
        applied = self._rng.random() >= self._scenario.skip_share
        loss = self.model.train(action.offset, action.size, applied=applied)
        self._steps += 1
        self.cpu_s += self._batch_s
        self._drawn.append((action.epoch, action.offset, action.size))
        sums = self._sums.setdefault(action.epoch, _EpochSums())
        sums.batches += 1
        sums.samples += action.size
        sums.loss += loss * action.size
        self.pacer.handle(BatchFinished(action.size, applied))
        row = timing.Batch(
            batch_ms=self._batch_s * 1000.0,
            data_ms=0.0,
            since_previous_ms=0.0,
            step_count=self._steps,
            samples=action.size,
            loss=loss,
        )
        self.calls.say(timing.Batches(rank=self.rank, rows=(row,)))
        self._halts(Site.AFTER_REPORT)

    def _snapshot(self, action: TakeSnapshot) -> None:
        if self._halts(Site.BEFORE_READY):
            return
        if self.poisoned:
            self.poisoned -= 1
            self.model.poison()
        slot = self.model.snapshot(
            action.n,
            action.samples,
            gamma=self._scenario.gamma,
            world_size=self._scenario.world_size,
        )
        self._slot = slot
        if slot.declared:
            self.pacer.handle(SnapshotDeclared(action.cycle))
        drawn, self._drawn = self._drawn, []
        self.calls.snapshot_taken(action.cycle, slot, drawn)
        self.calls.mark(action.cycle, slot)
        if self._halts(Site.BETWEEN_MARKS):
            return
        self.calls.say(
            timing.SnapshotReady(rank=self.rank, cycle=action.cycle, n=slot.n, samples=slot.samples)
        )
        self._halts(Site.AFTER_MARKS)

    def _write(self, action: WriteCheckpoint) -> None:
        if self._halts(Site.IN_CHECKPOINT):
            return
        self.pacer.handle(CheckpointWritten(action.version))
        self.calls.checkpoint_read(action.version)
        data = self.model.counter.to_bytes(8, "little")
        blob = timing.TensorBlob(dtype="int64", shape=(), data=data)
        self.calls.say(
            timing.CheckpointResult(
                rank=self.rank,
                version=action.version,
                elapsed_ms=1.0,
                local_buffers={COUNTER: blob} if action.tells_locals else {},
                rank_file=rank_file_of(self.rank, self.host, action.version)
                if action.writes_file
                else None,
            )
        )

    def _evaluate(self, action: RunEval) -> None:
        if self._halts(Site.IN_EVAL):
            return
        self.pacer.handle(EvalFinished(action.schedule_id))
        self.calls.say(
            timing.EvalResult(
                rank=self.rank,
                schedule_id=action.schedule_id,
                epoch=action.epoch,
                metric=1.0,
                metric_name="tiny",
                elapsed_ms=1.0,
            )
        )

    def _report(self, epoch: int) -> None:
        if self._halts(Site.BEFORE_METRICS):
            return
        sums = self._sums.pop(epoch, _EpochSums())
        self.calls.say(
            MetricsMsg(
                rank=self.rank,
                epoch=epoch,
                avg_loss=sums.loss / sums.samples if sums.samples else None,
                batches_processed=sums.batches,
                samples_processed=sums.samples,
                loss_samples=sums.samples,
                epoch_ms=1.0,
                share_complete_ms=1.0,
                compute_only_ms=1.0,
                data_starve_ms=0.0,
                scalars={},
            )
        )

    def _leave(self) -> None:
        if self._left or self._halts(Site.LEAVING):
            return
        self._left = True
        self.calls.say(timing.Exiting(rank=self.rank))
        self._loop.after(self._rng.uniform(0.0, 0.3), lambda: self.end(""))
