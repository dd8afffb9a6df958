"""Stands in for `flodl_core.training.worker`: the real protocol, numbers without torch.

The rank follows the product's pacer, speaks through the product's channel and bridge, and
takes part in the product's rounds with its slot. Its "training" adds to a vector what the
batch's positions say, so that a consensus is worth comparing. Each phase word has a
stopping place. Where ranks run on it has memory of its own and looks for ended rounds
between two batches, as the product's rank does.
"""

import hashlib
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from chaos_holding import hold_interpreter
from chaos_parking import DIRECTORY, park

from flodl_core.dispatch import actions
from flodl_core.dispatch.pacer import RankPacer
from flodl_core.errors import RunLostError
from flodl_core.ids import ExitCode, RankPhase, Round, RoundOutcome, SaveReason, SyncOutcome
from flodl_core.messages import control, timing
from flodl_core.messages.rendezvous import RendezvousHello, Role, RoleKind, Uid
from flodl_core.planes.slot import SlotHeader
from flodl_core.reduce.easgd import blend
from flodl_core.reduce.mass import gamma_mass, mover_mass
from flodl_core.training.channel import RankChannel
from flodl_core.training.share_totals import ShareTotals

POLL_S = 0.05
HOLD_S = 1.0
BURNING_RANK, BURNING_BATCH = 1, 3


class RankWorker:
    """One rank without torch."""

    def __init__(
        self, seat: Any, job: Any, *, star: Any, channel: RankChannel, log: Any, **_: object
    ) -> None:
        self._seat, self._job = seat, job
        self._star, self._channel, self._log = star, channel, log
        self._pacer = RankPacer(seat.rank, seat.envelope.spec.batch_size)
        self._totals = ShareTotals()
        self._spans: tuple[tuple[int, int], ...] = ()
        self._params_committed = False
        self._batches = 0
        self._left = False
        self._offer: actions.TakeSnapshot | None = None
        self._alpha = seat.envelope.spec.easgd_alpha
        runs_on = self._alpha is not None
        self._params = star.slot.params.copy() if runs_on else star.slot.params
        self._buffers = star.slot.buffers.copy() if runs_on else star.slot.buffers
        self._params[:] = 1.0
        self._buffers[:] = 0.0
        self._perform: dict[type, Callable[[Any], None]] = {
            actions.TrainBatch: self._train,
            actions.TakeSnapshot: self._snapshot,
            actions.AwaitRounds: self._await_rounds,
            actions.ReportEpoch: self._report,
            actions.WriteCheckpoint: self._checkpoint,
            actions.RunEval: self._evaluate,
            actions.Hold: self._hold,
            actions.Leave: self._leave,
        }

    def run(self) -> int:
        """Train to the end; return the exit code."""
        try:
            self._meet()
            while not self._left:
                while (message := self._channel.poll()) is not None:
                    self._take(message)
                if self._pacer.runs_on and self._pacer.stage is actions.CycleStage.IN_ROUNDS:
                    self._take_rounds(0.0)
                action = self._pacer.next_action()
                if not isinstance(action, actions.TrainBatch):
                    self._channel.flush()
                self._perform[type(action)](action)
        except RunLostError as error:
            self._log.warning("run_lost", error=str(error))
            return ExitCode.JOIN_RUN_LOST
        self._channel.phase = RankPhase.DONE
        return ExitCode.DONE

    def _meet(self) -> None:
        self._channel.phase = RankPhase.JOINING
        park("forming")
        self._channel.phase = RankPhase.WAITING
        self._channel.post(
            RendezvousHello(
                dataset_sig=self._seat.envelope.dataset_sig,
                global_rank=self._seat.rank,
                host_name=self._seat.host.host,
            )
        )
        while not self._left:
            message = self._channel.receive(HOLD_S)
            if isinstance(message, Role) and message.role is RoleKind.GENERATE:
                self._channel.post(Uid(uid=os.urandom(128)))
                return
            if isinstance(message, Uid):
                return
            if isinstance(message, control.Shutdown | control.ShutdownWithSave):
                self._leave(None)
            elif message is not None and not isinstance(message, Role):
                self._take(message)

    def _take(self, message: object) -> None:
        if isinstance(message, control.CoordHeartbeat | control.SetCallbackRole):
            return
        if getattr(message, "reason", None) is SaveReason.CONTROLLER_LOST:
            raise RunLostError("the controller is gone")
        plan = getattr(message, "plan", None) or getattr(message, "next_plan", None)
        if plan is not None:
            self._totals.begin(plan.epoch, time.monotonic())
        self._handle(message)

    def _train(self, action: actions.TrainBatch) -> None:
        self._channel.phase = RankPhase.DATA
        began = time.monotonic()
        park("data")
        self._channel.phase = RankPhase.TRAINING
        park("compute")
        self._batches += 1
        if self._job.burn_s and (self._seat.rank, self._batches) == (BURNING_RANK, BURNING_BATCH):
            hold_interpreter(self._job.burn_s)
        self._params[:] += np.float32(1e-3 * (self._seat.rank + 1) * (action.offset % 7))
        self._buffers[:] += np.float32(action.size)
        now = time.monotonic()
        row = (1e3 * (now - began), 0.0, 0.0, self._batches, action.size, 1.0 / self._batches, now)
        self._channel.report_batch(row)
        self._totals.add_batch(action.epoch, row)
        self._handle(actions.BatchFinished(action.size, True))

    def _snapshot(self, action: actions.TakeSnapshot) -> None:
        self._channel.phase = RankPhase.SNAPSHOT
        park("snapshot")
        self._spans, self._params_committed, self._offer = (), False, action
        slot = self._star.slot
        if self._alpha is not None:
            slot.params[:], slot.buffers[:] = self._params, self._buffers
        slot.set_unfrozen([True] * slot.unfrozen.size)
        slot.write_header(
            SlotHeader(
                cycle=action.cycle,
                n=action.n,
                samples=action.samples,
                mass_params=gamma_mass(action.n, self._seat.envelope.spec.gamma),
                mass_buffers=mover_mass(action.n),
                declared=False,
            )
        )
        self._star.ready(action.cycle)
        self._channel.post(
            timing.SnapshotReady(
                rank=self._seat.rank, cycle=action.cycle, n=action.n, samples=action.samples
            )
        )

    def _await_rounds(self, _: object) -> None:
        self._channel.phase = RankPhase.REDUCING
        self._take_rounds(POLL_S)

    def _take_rounds(self, timeout_s: float) -> None:
        """Take a round that ends in that time; adopt after the last one."""
        assert self._offer is not None
        action = self._offer
        try:
            end = self._star.wait_round(timeout_s)
        except TimeoutError:
            return
        if end.cycle != action.cycle:
            return
        committed = end.outcome is RoundOutcome.COMMITTED
        if committed and end.round is Round.CONTROL:
            self._spans = self._star.active_spans(end.cycle)
        if end.round is Round.PARAMS:
            self._params_committed = committed
            park("round_end")
        if not self._star.ends_cycle(end):
            return
        self._channel.phase = RankPhase.ADOPTING
        staging = self._star.staging
        if self._params_committed and self._alpha is not None and action.cycle:
            snapshot = self._star.slot.params
            blend(self._params, snapshot, staging.params, self._spans, alpha=self._alpha)
        elif self._params_committed:
            for offset, length in self._spans:
                self._params[offset : offset + length] = staging.params[offset : offset + length]
        if end.round is Round.BUFFERS and committed:
            self._buffers[:] = staging.buffers
        park("adopt")
        outcome = SyncOutcome.COMMITTED if self._params_committed else SyncOutcome.UNREALIZED
        self._channel.post(
            timing.SyncAck(
                rank=self._seat.rank,
                cycle=action.cycle,
                outcome=outcome,
                step_count=self._batches,
                divergence=0.01 if self._params_committed else None,
                samples=action.samples,
            )
        )
        self._handle(actions.CycleAdopted(action.cycle, outcome))

    def _report(self, action: actions.ReportEpoch) -> None:
        if action.epoch == 0:
            park("epoch_end")
        now = time.monotonic()
        self._channel.post(self._totals.report(self._seat.rank, action.epoch, now))

    def _checkpoint(self, action: actions.WriteCheckpoint) -> None:
        self._channel.phase = RankPhase.SAVING
        park("saving")
        steps = np.array([self._batches], np.int64)
        blob = timing.TensorBlob(dtype="int64", shape=(1,), data=steps.tobytes())
        self._channel.post(
            timing.CheckpointResult(
                rank=self._seat.rank,
                version=action.version,
                elapsed_ms=0.1,
                local_buffers={"steps": blob} if action.tells_locals else {},
            )
        )
        self._handle(actions.CheckpointWritten(action.version))

    def _evaluate(self, action: actions.RunEval) -> None:
        self._channel.phase = RankPhase.CALLBACK
        park("callback")
        self._channel.post(
            timing.EvalResult(
                rank=self._seat.rank,
                schedule_id=action.schedule_id,
                epoch=action.epoch,
                metric=float(self._params[0]),
                metric_name="mean",
                elapsed_ms=0.1,
            )
        )
        self._handle(actions.EvalFinished(action.schedule_id))

    def _hold(self, action: actions.Hold) -> None:
        idle = action.reason in (actions.HoldReason.NO_PLAN, actions.HoldReason.PLAN_USED_UP)
        self._channel.phase = RankPhase.WAITING if idle else RankPhase.HELD
        message = self._channel.receive(HOLD_S)
        if message is not None:
            self._take(message)

    def _leave(self, _: object) -> None:
        digest = hashlib.sha256(self._params.tobytes() + self._buffers.tobytes()).hexdigest()
        (DIRECTORY / f"rank{self._seat.rank}.digest").write_text(digest)
        self._channel.post(timing.Exiting(rank=self._seat.rank))
        self._left = True

    def _handle(self, event: object) -> None:
        for note in self._pacer.handle(event):
            self._log.info(note.code, **{f"of_{key}": value for key, value in note.fields.items()})
