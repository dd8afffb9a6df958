"""A rank's part in a cycle: snapshot, the rounds as they end, adoption.

It drives the rank's end of the data plane and nothing else: the schedule is the
pacer's, the messages are the worker's. Nothing of the model changes before the
last RoundEnd of the cycle came; a rank that trains on meanwhile then moves towards the
consensus, any other becomes it.
"""

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

from flodl_core.dispatch.actions import WriteCheckpoint
from flodl_core.errors import NonFiniteError
from flodl_core.ids import Cycle, Rank, Round, RoundOutcome, Session, SyncOutcome
from flodl_core.messages.data import RankTally, RoundEnd
from flodl_core.messages.timing import SnapshotReady, SyncAck
from flodl_core.planes.slot import Slot
from flodl_core.planes.staging import Staging
from flodl_core.reduce.buckets import Run, covers_region
from flodl_core.reduce.divergence import Divergence, divergence_triple
from flodl_core.reduce.norms import NORM_ERROR, norm
from flodl_core.training.adopt import adopt_and_measure, adopt_buffers, adopt_params
from flodl_core.training.elastic import blend_params, lent_consensus
from flodl_core.training.flat import FlatLayout
from flodl_core.training.snapshot import FIX_VALUES, Claim, SnapshotVerdict, take_snapshot
from flodl_core.units import Seconds

INITIAL_BROADCAST = Cycle(0)
"""Everybody becomes rank 0 in it, in every mode."""


class StarPort(Protocol):
    """A rank's end of the data plane; `planes.star_client.StarClient` is one."""

    @property
    def slot(self) -> Slot:
        """This rank's snapshot, writable here."""

    @property
    def staging(self) -> Staging:
        """The host's consensus, read-only here."""

    def ready(self, cycle: Cycle) -> None:
        """Say that the slot holds this cycle's snapshot."""

    def wait_round(self, timeout_s: Seconds) -> RoundEnd:
        """Wait for the next round to end; raises TimeoutError, or RunLostError at its end."""

    def ends_cycle(self, end: RoundEnd) -> bool:
        """Return whether the cycle is over for this rank with this round."""

    def active_spans(self, cycle: Cycle) -> tuple[Run, ...]:
        """Return the runs that this cycle's params round covers, after its control round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CycleResult:
    """How a cycle ended for this rank."""

    cycle: Cycle
    outcome: SyncOutcome
    samples: int
    """Drawn since the sync before."""
    divergence: Divergence | None
    """Absent unless committed."""
    resets_state: bool
    """The rank adopted the consensus in place of values that were not finite."""
    is_unstepped: bool = False
    """On NCCL: an outer step was not finite, and the average stands in for it."""
    strays: tuple[str, ...] = ()
    """Names that left the layout since the snapshot and were put back, each named once."""

    @property
    def is_average(self) -> bool:
        """Whether the rank has adopted what others contributed to, not the initial broadcast."""
        return self.outcome is SyncOutcome.COMMITTED and self.cycle != INITIAL_BROADCAST

    def as_ack(self, rank: Rank, step_count: int) -> SyncAck:
        """Return what the coordinator is told; `step_count` counts the rank's batches so far."""
        triple = self.divergence
        return SyncAck(
            rank=rank,
            cycle=self.cycle,
            outcome=self.outcome,
            step_count=step_count,
            divergence=triple.divergence if triple else None,
            pre_norm=triple.pre_norm if triple else None,
            post_norm=triple.post_norm if triple else None,
            samples=self.samples,
            is_unstepped=self.is_unstepped,
        )


def ready_of(cycle: Cycle, tally: RankTally) -> SnapshotReady:
    """Return what the coordinator is told of a contribution."""
    return SnapshotReady(
        rank=tally.rank,
        cycle=cycle,
        n=tally.n,
        samples=tally.samples,
        declared=tally.declared,
    )


@dataclass(frozen=True, slots=True)
class _Offered:
    claim: Claim
    verdict: SnapshotVerdict


def _nothing() -> None:
    return None


class RankRounds:
    """One rank's data plane, cycle by cycle.

    Args:
        layout: of the rank's model.
        star: its end of the plane.
        on_adopting: called when the last round of a cycle has ended, before anything changes.
        alpha: how far the rank moves towards a consensus; None overwrites, as is right where
            it does not train between snapshot and adoption.
    """

    def __init__(
        self,
        layout: FlatLayout,
        star: StarPort,
        *,
        on_adopting: Callable[[], None] = _nothing,
        alpha: float | None = None,
    ) -> None:
        self._layout = layout
        self._star = star
        self._on_adopting = on_adopting
        self._alpha = alpha
        self._adopted_spans: tuple[Run, ...] = ()
        self._has_adopted = False
        self._offered: _Offered | None = None
        self._spans: tuple[Run, ...] = ()
        self._params_committed = False
        self._consensus_norm: float | None = None

    def new_uid(self) -> bytes:
        """Return what the coordinator passes on to all ranks; only NCCL has a use for it."""
        return os.urandom(128)

    def meet(self, uid: bytes) -> None:
        """Every rank has the uid: on this plane nothing follows from it."""

    def give(self, session: Session) -> None:
        """A session of NCCL begins with what a member completed: not on this plane."""

    def publish(self, action: WriteCheckpoint) -> str | None:
        """Bring the consensus to the root for a save; return what went wrong.

        On this plane it is there.
        """
        return None

    def abandon(self) -> None:
        """The run is lost, and what the model holds is to be read: end what keeps it busy."""

    def close(self) -> None:
        """Give back what belongs to the plane."""
        if self._layout.copies is not None:
            self._layout.copies.close()

    def prepare(self, samples: int) -> None:
        """The window is full; on this plane nothing can be done before the cycle is called for."""

    def forget(self) -> None:
        """Somebody may have changed the model since `prepare`."""

    def offer(self, claim: Claim) -> SnapshotVerdict | None:
        """Take the snapshot of a cycle and say Ready.

        Returns:
            What the snapshot came to; None where that is told later.

        Raises:
            SchemaDriftError: the model's tensors changed.
            NonFiniteError: the run cannot begin with what this rank has.
        """
        self._spans, self._params_committed = (), False
        claim = replace(claim, reference=self._reference())
        adopted = self._star.staging.params if self._has_adopted else None
        verdict = take_snapshot(self._layout, self._star.slot, claim, adopted=adopted)
        if claim.cycle == INITIAL_BROADCAST and claim.n and verdict.declared:
            raise NonFiniteError(
                f"the run cannot begin: {verdict.fault}",
                fix=FIX_VALUES,
            )
        self._offered = _Offered(claim, verdict)
        self._star.ready(claim.cycle)
        return verdict

    def wait(self, timeout_s: Seconds) -> CycleResult | None:
        """Wait for the next round of the cycle; adopt after its last one.

        Args:
            timeout_s: longest wait.

        Returns:
            The result if the cycle is over, else None: call again.

        Raises:
            RunLostError: the host's relay or launcher is gone.
        """
        offer = self._offered
        assert offer is not None, "no cycle was offered"
        try:
            end = self._star.wait_round(timeout_s)
        except TimeoutError:
            return None
        return self._take(offer, end)

    def poll(self) -> CycleResult | None:
        """Take every round of the cycle that has ended by now; adopt after the last one.

        Returns:
            The result if the cycle is over.

        Raises:
            RunLostError: the host's relay or launcher is gone.
        """
        offer = self._offered
        assert offer is not None, "no cycle was offered"
        result = None
        while result is None:
            try:
                end = self._star.wait_round(0.0)
            except TimeoutError:
                return None
            result = self._take(offer, end)
        return result

    def lent_consensus(self) -> AbstractContextManager[None]:
        """Let the model be the last consensus for a while, where it is not.

        Not while the rounds of a cycle are running.
        """
        if self._alpha is None:
            return nullcontext()
        self._layout.gather_strays()
        staging = self._star.staging
        return lent_consensus(
            self._layout, staging.params, staging.buffers, spans=self._adopted_spans
        )

    def _take(self, offer: _Offered, end: RoundEnd) -> CycleResult | None:
        if end.cycle != offer.claim.cycle:
            return None
        committed = end.outcome is RoundOutcome.COMMITTED
        if committed and end.round is Round.CONTROL:
            self._spans = self._star.active_spans(end.cycle)
        if committed and end.round is Round.PARAMS:
            self._params_committed = True
        return self._finish(offer, end) if self._star.ends_cycle(end) else None

    def _finish(self, offer: _Offered, end: RoundEnd) -> CycleResult:
        self._on_adopting()
        strays = self._layout.gather_strays() if self._alpha is not None else ()
        divergence = self._adopt_params(offer) if self._params_committed else None
        if end.round is Round.BUFFERS and end.outcome is RoundOutcome.COMMITTED:
            adopt_buffers(self._layout, self._star.staging.buffers)
        declined = self._params_committed and offer.verdict.declared
        outcome = SyncOutcome.DECLINED if declined else SyncOutcome.UNREALIZED
        if self._params_committed and not declined:
            outcome = SyncOutcome.COMMITTED
        return CycleResult(
            cycle=offer.claim.cycle,
            outcome=outcome,
            samples=offer.claim.samples,
            divergence=divergence,
            resets_state=declined,
            strays=strays,
        )

    def _reference(self) -> float | None:
        """Return the norm of what a narrow wire subtracts; None on a wire that does not."""
        if not self._star.staging.is_reference:
            return None
        if self._consensus_norm is None:
            self._consensus_norm = norm(self._star.staging.params)
        return self._consensus_norm * (1 + NORM_ERROR)

    def _adopt_params(self, offer: _Offered) -> Divergence | None:
        """Adopt the consensus; a snapshot that was declared has no distance from it."""
        consensus, snapshot = self._star.staging.params, self._star.slot.params
        self._consensus_norm = None
        self._adopted_spans, self._has_adopted = self._spans, True
        if offer.verdict.declared:
            adopt_params(self._layout, consensus, spans=self._spans)
            return None
        if self._alpha is None or offer.claim.cycle == INITIAL_BROADCAST:
            divergence = adopt_and_measure(
                self._layout,
                consensus,
                snapshot=snapshot,
                spans=self._spans,
                norm=offer.verdict.pre_norm,
            )
        else:
            divergence = divergence_triple(snapshot, consensus, self._spans)
            blend_params(
                self._layout, consensus, snapshot=snapshot, spans=self._spans, alpha=self._alpha
            )
        if covers_region(self._spans, consensus.size):
            self._consensus_norm = divergence.post_norm
        return divergence
