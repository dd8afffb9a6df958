"""The coordinator: events in with `now`, effects out; the owner of the order of a tick.

What it is: the table from event to part, and the order: take the event, then do
everything that follows from it (finish, trigger, aggregate, begin or end). On a
Tick first beacon, dead ranks, progress and ceilings.
What it is not: any of those parts, and no I/O: it sends, waits and measures nothing.
Who drives it: the launcher, one event at a time; the simulator the same way.

    event ─▶ inbox | averaging | dead_ranks | ending | tick ─▶ advance ─▶ effects
"""

from flodl_core.coordinator import (
    averaging,
    dead_ranks,
    drains,
    ending,
    evictions,
    inbox,
    nccl_cycle,
)
from flodl_core.coordinator.advance import settle
from flodl_core.coordinator.attendance import Attendance
from flodl_core.coordinator.cadence import Cadence
from flodl_core.coordinator.callback_desk import CallbackDesk
from flodl_core.coordinator.cohort import Cohort
from flodl_core.coordinator.cycle import CycleMachine
from flodl_core.coordinator.effects import Effect
from flodl_core.coordinator.epochs import EpochBook
from flodl_core.coordinator.events import (
    CheckpointRequested,
    DrainRequested,
    Event,
    EvictRequested,
    HostStatsReported,
    RankLost,
    RankMessage,
    RoundEnded,
    SaveFinished,
    StopRequested,
)
from flodl_core.coordinator.facts import ResumePoint
from flodl_core.coordinator.nccl_sessions import NcclSessions
from flodl_core.coordinator.rendezvous import Rendezvous
from flodl_core.coordinator.resuming import take_up
from flodl_core.coordinator.saves import SaveDesk
from flodl_core.coordinator.settings import CoordinatorSettings
from flodl_core.coordinator.state import RunStage, SchedulerState
from flodl_core.coordinator.tick import deadline, tick
from flodl_core.coordinator.view import CoordinatorView, compose_view
from flodl_core.coordinator.window_facts import record_window
from flodl_core.ids import HostName, Mode, Rank
from flodl_core.machines import Note, Tick
from flodl_core.messages.job import Envelope
from flodl_core.units import Seconds


class Coordinator:
    """The scheduler of one formed world.

    Args:
        envelope: the world, as every process of it receives it.
        settings: the scheduler's own numbers.
        has_eval: whether the job evaluates after each epoch.
        local_host: the launcher's own host, whose lowest rank makes the uid; None
            if the launcher has no ranks.
        resume: where the run goes on; None if it begins.

    Raises:
        LocalProtocolError: an epoch would train nothing, or the run cannot go on at that
            point.
        ConfigError: pinned counts are given and are not one a rank.
    """

    def __init__(
        self,
        envelope: Envelope,
        settings: CoordinatorSettings,
        *,
        has_eval: bool,
        local_host: HostName | None = None,
        resume: ResumePoint | None = None,
    ) -> None:
        spec = envelope.spec
        self._attendance = Attendance(spec.heartbeat_interval_s)
        cohort = Cohort(envelope)
        local = [host.ranks for host in envelope.hosts if host.host == local_host]
        self._state = SchedulerState(
            envelope=envelope,
            settings=settings,
            has_eval=has_eval,
            local_host=local_host,
            cohort=cohort,
            rendezvous=Rendezvous(
                cohort,
                local_ranks=local[0] if local else (),
                timeout_s=spec.rendezvous_timeout_s,
            ),
            cycle=CycleMachine(
                has_buffers=envelope.geometry.buffers_numel > 0,
                after=resume.sync_round if resume is not None else 0,
            ),
            book=EpochBook(spec, ratios=settings.partition_ratios),
            callbacks=CallbackDesk(settings.callbacks),
            saves=SaveDesk(every_s=settings.checkpoint_every_s, ceiling_s=spec.stall_timeout_s),
            cadence=(
                Cadence(
                    settings.cadence,
                    tuple(record.rank for record in cohort),
                    runs_on=spec.mode is Mode.CPU_ASYNC,
                )
                if spec.mode.has_counts
                else None
            ),
            nccl=(
                NcclSessions(
                    members=tuple(record.rank for record in cohort),
                    local_ranks=tuple(local[0]) if local else (),
                    first_s=spec.rendezvous_timeout_s,
                )
                if spec.mode.uses_nccl
                else None
            ),
        )
        if resume is not None:
            take_up(self._state, resume)

    @property
    def ended(self) -> bool:
        """Whether RunFinished was emitted; every later event is a Note."""
        return self._state.stage is RunStage.ENDED

    def deadline(self) -> Seconds | None:
        """When the next Tick is due; None before the first event and after the end."""
        due = deadline(self._state)
        return self._attendance.given(due) if due is not None else None

    def handle(self, event: Event, now: Seconds) -> list[Effect]:
        """Take one event and return what shall be done, in order.

        Args:
            event: what happened.
            now: monotonic seconds, never less than before.
        """
        state = self._state
        absence = self._attendance.arrive(now)
        now = self._attendance.attended(now)
        if state.stage is RunStage.ENDED:
            return [Note(code="run_has_ended", fields={"event": type(event).__name__})]
        if state.started_at is None:
            state.started_at = now
            state.next_beacon = now
            state.rendezvous.open(now)
        if absence:
            state.note("own_absence", gap_s=absence)
        self._take(event, now)
        settle(state, now)
        for ended in state.cycle.take_ended():
            if ended.cycle > 0:
                state.out.append(record_window(state, ended, now))
        effects, state.out = state.out, []
        return effects

    def _take(self, event: Event, now: Seconds) -> None:
        state = self._state
        match event:
            case RankMessage():
                inbox.receive(state, event, now)
            case RoundEnded():
                if state.nccl is None or event.cycle == nccl_cycle.INITIAL_BROADCAST:
                    averaging.end_round(state, event, now)
            case RankLost():
                self._rank_lost(event, now)
            case StopRequested():
                ending.request_stop(state, event, now)
            case CheckpointRequested():
                state.saves.demand(event.who)
                state.announce("save_requested", f"{event.who} asked for a save", who=event.who)
            case DrainRequested():
                drains.request(state, event)
            case EvictRequested():
                evictions.request(state, event, now)
            case SaveFinished():
                ending.save_finished(state, event, now)
            case HostStatsReported():
                inbox.take_host_stats(state, event, now)
            case Tick():
                tick(state, now)

    def _rank_lost(self, event: RankLost, now: Seconds) -> None:
        record = self._state.cohort.find(event.rank)
        if record is None:
            self._state.note("unknown_rank", rank=event.rank, message="RankLost")
            return
        dead_ranks.bury(self._state, record, event.cause, now)

    def refuse_drain(self, host: HostName) -> str:
        """Return why that host cannot be drained now; empty if it can."""
        return drains.refusal(self._state, host)

    def refuse_evict(self, rank: Rank) -> str:
        """Return why that rank cannot be evicted now; empty if it can."""
        return evictions.refusal(self._state, rank)

    def view(self, now: Seconds) -> CoordinatorView:
        """Freeze everything that a reader may know at `now`."""
        return compose_view(self._state, self._attendance.attended(now))

    def check(self) -> None:
        """Assert what must hold after every event.

        Raises:
            LocalProtocolError: a sample is in two accounts.
            AssertionError: another invariant is broken; the text says which.
        """
        state = self._state
        state.book.check()
        pending, limbo_open = state.cycle.pending, not state.cycle.params_ended
        for record in state.cohort:
            held = state.book.held_samples(record.rank)
            may_hold = record.alive or state.ending or (pending and limbo_open)
            assert may_hold or held == 0, f"{record.where} is gone and holds {held} samples"
            assert not record.alive or record.heard_at is not None, f"{record.where} was not heard"
        assert not state.ending or state.closing is not None or self.ended, "an end without a plan"
        assert not state.out, "effects were left behind"
        if state.cadence is not None and not state.ending:
            counted, alive = set(state.cadence.balancer.counts), set(state.cohort.alive_ranks)
            expected = {record.rank for record in state.rendezvous.missing}
            assert counted == alive | expected, f"counts of {counted}, alive are {alive}"
        trained = sum(record.trained_samples for record in state.cohort)
        before = state.resume.samples_trained if state.resume is not None else 0
        agree = before + trained == state.book.trained_samples
        assert agree, "the records and the book disagree"
