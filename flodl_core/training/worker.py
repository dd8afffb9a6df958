"""The training thread of a rank: the loop that performs what the pacer says.

Build, rendezvous, then one action at a time until Leave. It owns the model and the
data; the schedule is the pacer's, the values are the data plane's, the words go
through the channel to the bridge. A rank process runs it in its main thread; tests
run several as threads.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress

from flodl_core.dispatch.actions import (
    AwaitRounds,
    BatchFinished,
    CheckpointWritten,
    CycleAdopted,
    CycleStage,
    EvalFinished,
    Hold,
    HoldReason,
    Leave,
    ReportEpoch,
    RunEval,
    SnapshotDeclared,
    TakeSnapshot,
    TrainBatch,
    WriteCheckpoint,
)
from flodl_core.dispatch.pacer import RankPacer
from flodl_core.errors import RunLostError
from flodl_core.ids import Cycle, ExitCode, InnerState, RankPhase
from flodl_core.messages.control import (
    Checkpoint,
    CoordHeartbeat,
    Cut,
    ExtendPartition,
    NewNcclSession,
    RestoreLocals,
    SetCallbackRole,
    Shutdown,
    ShutdownWithSave,
    StartEpoch,
    Update,
)
from flodl_core.messages.data import RankTally
from flodl_core.messages.rendezvous import RendezvousHello, Role, RoleKind, Uid
from flodl_core.messages.timing import (
    Exiting,
)
from flodl_core.net import clock
from flodl_core.training.batch_trainer import BatchTrainer
from flodl_core.training.build import Trainee, build_trainee
from flodl_core.training.channel import RankChannel
from flodl_core.training.controller_loss import ControllerLoss
from flodl_core.training.event_log import EventLog
from flodl_core.training.failure import record_failure
from flodl_core.training.job import TrainJob
from flodl_core.training.load import describe_error
from flodl_core.training.loader import SampleLoader, open_loader
from flodl_core.training.local_buffers import restore_local_buffers
from flodl_core.training.losses import LossReader, Waits
from flodl_core.training.nccl_port import NcclPort
from flodl_core.training.open_rounds import open_rounds
from flodl_core.training.rank_saves import SAMPLE_WAIT_S, RankSaves
from flodl_core.training.rank_state import RankProgress
from flodl_core.training.rounds import (
    INITIAL_BROADCAST,
    CycleResult,
    RankRounds,
    StarPort,
    ready_of,
)
from flodl_core.training.seat import Seat
from flodl_core.training.snapshot import Claim

POLL_S = 0.05
"""While a round is awaited, messages are looked at this often."""

HOLD_S = 1.0

_CHANGE_THE_PLAN = (StartEpoch, Update, ExtendPartition, Cut)


class RankWorker:
    """One rank's training.

    Args:
        seat: which rank of which world.
        job: loaded.
        star: the rank's end of the data plane.
        channel: towards the bridge.
        log: of this process.
        nccl: its device for collectives, in the modes that average among ranks.
    """

    def __init__(
        self,
        seat: Seat,
        job: TrainJob,
        *,
        star: StarPort,
        channel: RankChannel,
        log: EventLog,
        nccl: NcclPort | None = None,
    ) -> None:
        self._seat = seat
        self._job = job
        self._star = star
        self._nccl = nccl
        self._channel = channel
        self._log = log
        self._pacer = RankPacer(seat.rank, seat.envelope.spec.batch_size)
        self._saves = RankSaves(seat, log)
        self._loss = ControllerLoss(seat, channel, self._pacer, log)
        self._loader: SampleLoader | None = None
        self._trainee: Trainee | None = None
        self._rounds: RankRounds | None = None
        outer = seat.envelope.spec.outer
        self._resets_inner = outer is not None and outer.inner is InnerState.FRESH
        self._batches: BatchTrainer | None = None
        self._left = False
        self._perform: dict[type, Callable[..., None]] = {
            TrainBatch: self._train,
            TakeSnapshot: self._snapshot,
            AwaitRounds: self._await_rounds,
            ReportEpoch: self._report,
            WriteCheckpoint: self._write_checkpoint,
            RunEval: self._evaluate,
            Hold: self._hold,
            Leave: self._leave,
        }

    @property
    def trainee(self) -> Trainee:
        """The model with all that belongs to it, once it is built."""
        assert self._trainee is not None, "the model is not built yet"
        return self._trainee

    @property
    def loader(self) -> SampleLoader:
        """What reads this rank's samples, once it is open."""
        assert self._loader is not None, "the loader is not open yet"
        return self._loader

    @property
    def rounds(self) -> RankRounds:
        """This rank's part in cycles, once the model is built."""
        assert self._rounds is not None, "the model is not built yet"
        return self._rounds

    @property
    def batches(self) -> BatchTrainer:
        """What trains them, once the model is built."""
        assert self._batches is not None, "the model is not built yet"
        return self._batches

    def new_losses(self, waits: Waits) -> LossReader:
        """Return what reads the losses of steps; `waits` is entered while a GPU is waited for."""
        return LossReader(waits)

    def run(self) -> int:
        """Build, train until the coordinator says to leave, and return the exit code.

        Never raises for what the job does: that ends in Exiting with one line, the
        traceback in the log, a death record and exit code 1.
        """
        try:
            self._train_to_the_end()
        except RunLostError as error:
            self._log.warning("run_lost", error=str(error))
            if self._rounds is not None:
                self._rounds.abandon()
            if self._trainee is not None:
                with suppress(RunLostError, RuntimeError):
                    self.batches.tell()
                self._loss.leave_words(self._trainee.model, error)
            return ExitCode.JOIN_RUN_LOST
        except BaseException as error:
            line = describe_error(error)
            self._log.exception("training_failed", error, rank=self._seat.rank)
            record_failure(self._seat, line)
            if self._batches is not None:
                with suppress(Exception):  # it failed already, and of this much less is known
                    self._batches.notes.settle_what_is_done()
            self._channel.post(Exiting(rank=self._seat.rank, error=line))
            return ExitCode.FAILED
        finally:
            if self._loader is not None:
                self._loader.close()
            if self._rounds is not None:
                self._rounds.close()
        self._log.info("training_ended", batches=self._channel.step_count)
        return ExitCode.DONE

    def _train_to_the_end(self) -> None:
        self._channel.phase = RankPhase.JOINING
        self._loader = open_loader(self._job, self._seat, self._log)
        self._trainee = build_trainee(self._job, self._seat, self._star.slot)
        self._batches = BatchTrainer(
            self._seat,
            self._job,
            trainee=self._trainee,
            loader=self._loader,
            losses=self.new_losses(self._loader.lent),
            channel=self._channel,
        )
        self._rounds = open_rounds(
            self._trainee.layout,
            self._star,
            self._nccl,
            spec=self._seat.envelope.spec,
            on_adopting=self._note_adopting,
            on_counted=self._tell_ready,
        )
        self._saves.read(self._trainee)
        self._meet()
        while not self._left:
            while (message := self._channel.poll()) is not None:
                self._take(message)
            if self._pacer.runs_on and self._pacer.stage is CycleStage.IN_ROUNDS:
                self._take_result(self.rounds.poll())
            action = self._pacer.next_action()
            if not isinstance(action, TrainBatch):
                self.batches.tell()
            self._perform[type(action)](action)
        self._channel.phase = RankPhase.DONE

    def _meet(self) -> None:
        """Say that this rank is here, and wait for its role and the uid."""
        self._channel.phase = RankPhase.WAITING
        envelope, rank = self._seat.envelope, self._seat.rank
        self._channel.post(
            RendezvousHello(
                dataset_sig=envelope.dataset_sig,
                global_rank=rank,
                host_name=self._seat.host.host,
                resume_note=self._saves.resume_note,
            )
        )
        while not self._left:
            message = self._channel.receive(HOLD_S)
            if isinstance(message, Role) and message.role is RoleKind.GENERATE:
                uid = self.rounds.new_uid()
                self._channel.post(Uid(uid=uid))
                self.rounds.meet(uid)
                return
            if isinstance(message, Uid):
                self.rounds.meet(message.uid)
                return
            if isinstance(message, Shutdown | ShutdownWithSave):
                self._loss.heed(message)
                self._leave(Leave(None))
            elif message is not None and not isinstance(message, Role):
                self._take(message)

    def _take(self, message: object) -> None:
        if isinstance(message, CoordHeartbeat | SetCallbackRole):
            return
        if isinstance(message, RestoreLocals):
            restore_local_buffers(self.trainee.layout, message.local_buffers)
            return
        if isinstance(message, NewNcclSession) and message.consensus_from is not None:
            self.batches.tell()
            self.rounds.give(message.session)
        if isinstance(message, Checkpoint):
            self._saves.note_asked(message)
        self._loss.heed(message)
        plan = message.plan if isinstance(message, StartEpoch) else None
        if isinstance(message, Update):
            plan = message.next_plan
        if plan is not None:
            self.batches.totals.begin(plan.epoch, clock.now())
        self._handle(message)
        if isinstance(message, _CHANGE_THE_PLAN):
            self.loader.expect(self.batches.places(self._ahead()))

    def _ahead(self) -> tuple[TrainBatch, ...]:
        return self._pacer.upcoming(self.loader.depth)

    def _train(self, action: TrainBatch) -> None:
        applied = self.batches.train(action, self._ahead(), global_step=self._pacer.global_step)
        self._handle(BatchFinished(action.size, applied))
        if self._pacer.fills_window:
            self.rounds.prepare(self._pacer.uncommitted_samples)
            self.batches.tell()
        elif not self._channel.has_mail:
            self.batches.read_ahead()

    def _snapshot(self, action: TakeSnapshot) -> None:
        self._channel.phase = RankPhase.SNAPSHOT
        self.batches.notes.begin_window()
        self._loss.note_offered(action.samples)
        if action.samples:
            self.batches.lr.tell(self.trainee.context)
        verdict = self.rounds.offer(
            Claim(
                cycle=action.cycle,
                n=action.n,
                samples=action.samples,
                gamma=self._seat.envelope.spec.gamma,
                world_size=self._seat.envelope.world_size,
            )
        )
        if verdict is None:
            return
        self._name_strays(verdict.strays)
        if verdict.declared:
            self._log.warning("declared_non_finite", cycle=action.cycle, fault=verdict.fault)
            self._handle(SnapshotDeclared(action.cycle))
        tally = RankTally(
            rank=self._seat.rank, n=verdict.n, samples=action.samples, declared=verdict.declared
        )
        self._tell_ready(action.cycle, tally)

    def _tell_ready(self, cycle: Cycle, tally: RankTally) -> None:
        """Say what this rank contributes to a cycle, once it is known."""
        self._channel.post(ready_of(cycle, tally))

    def _name_strays(self, names: Sequence[str]) -> None:
        if names:
            self._log.warning("parameters_strayed", names=", ".join(names))

    def _await_rounds(self, _action: AwaitRounds) -> None:
        self._channel.phase = RankPhase.REDUCING
        self.batches.notes.wait()
        self.loader.lend()
        self._take_result(self.rounds.wait(POLL_S))

    def _take_result(self, result: CycleResult | None) -> None:
        if result is None:
            return
        self.batches.settle()
        self._name_strays(result.strays)
        if result.resets_state:
            self.trainee.context.reset_state()
            self._log.warning("took_consensus_for_own_values", cycle=result.cycle)
        elif result.is_average and self._resets_inner:
            self.trainee.context.reset_optimizer()
        self._loss.note_ended(result.cycle, result.outcome)
        if result.cycle == INITIAL_BROADCAST:
            self.loader.take_back()
            self.batches.pass_index = self._saves.put_back(self.trainee)
        self._channel.post(result.as_ack(self._seat.rank, self._channel.step_count))
        self._handle(CycleAdopted(result.cycle, result.outcome))

    def _report(self, action: ReportEpoch) -> None:
        self._channel.post(self.batches.totals.report(self._seat.rank, action.epoch, clock.now()))

    def _note_adopting(self) -> None:
        self._channel.phase = RankPhase.ADOPTING

    def _write_checkpoint(self, action: WriteCheckpoint) -> None:
        self._channel.phase = RankPhase.SAVING
        is_at_rest = self.loader.take_back(SAMPLE_WAIT_S)
        progress = RankProgress(
            rank=self._seat.rank,
            version=action.version,
            global_step=self._pacer.global_step,
            pass_index=self.batches.pass_index,
            batches=self._channel.step_count,
            uncommitted_samples=self._pacer.uncommitted_samples,
        )
        fault = self.rounds.publish(action)
        self._channel.post(
            self._saves.answer(self.trainee, action, progress, is_at_rest=is_at_rest, fault=fault)
        )
        self._handle(CheckpointWritten(action.version))

    def _evaluate(self, action: RunEval) -> None:
        self._channel.phase = RankPhase.CALLBACK
        self.loader.take_back()
        with self.rounds.lent_consensus():
            found = self.trainee.evaluator.evaluate(self.trainee.model)
        self.rounds.forget()
        if found.error is not None:
            self._log.warning("evaluation_failed", epoch=action.epoch, error=found.error)
        self._channel.post(found.as_result(self._seat.rank, action, self._job.metric_name))
        self._handle(EvalFinished(action.schedule_id))

    def _hold(self, action: Hold) -> None:
        self.batches.notes.wait()
        idle = action.reason in (HoldReason.NO_PLAN, HoldReason.PLAN_USED_UP)
        self._channel.phase = RankPhase.WAITING if idle else RankPhase.HELD
        self.loader.lend()
        message = self._channel.receive(HOLD_S)
        if message is not None:
            self._take(message)

    def _leave(self, action: Leave) -> None:
        self._log.info("leaving", save_reason=action.save_reason)
        self._channel.post(Exiting(rank=self._seat.rank))
        self._left = True

    def _handle(self, event: object) -> None:
        for note in self._pacer.handle(event):
            named = {f"of_{key}" if key == "event" else key: v for key, v in note.fields.items()}
            self._log.info(note.code, **named)
