"""The cycle on NCCL: no root sees it, so the ranks' words are its evidence.

What it is: what a death does to the session and to the cycle under way, and the end of a
cycle: once every alive rank has acknowledged it, its rounds are entered as a root would
have reported them.
What it is not: the session's own machine (`nccl_sessions`), and not the settling of
samples, which is `averaging`'s on every plane.
Who drives it: `coordinator.inbox` with answers, `advance` after each event, `tick` on time.

    a death in a cycle ─▶ who completed it?
        all ─▶ it ends as it is       some ─▶ the lowest gives it to the others
        none ─▶ the survivors repeat it with what they are

One survivor averages with itself once more, is saved, and the run stops: nobody is left to
average with.
"""

from flodl_core.coordinator import ending
from flodl_core.coordinator.cohort import RankRecord
from flodl_core.coordinator.cycle import CyclePhase
from flodl_core.coordinator.effects import Severity
from flodl_core.coordinator.events import RoundEnded, StopKind, StopRequested
from flodl_core.coordinator.nccl_sessions import NcclSessions
from flodl_core.coordinator.rendezvous import RendezvousPhase
from flodl_core.coordinator.state import RunStage, SchedulerState, StopOrder
from flodl_core.ids import Cycle, ExitCode, Rank, Round, RoundOutcome, SaveReason, SyncOutcome
from flodl_core.messages.control import DeclareDead, RequestParams, SyncNow
from flodl_core.messages.data import RankTally
from flodl_core.messages.timing import NcclSessionFormed, NewNcclIdGenerated
from flodl_core.reduce.mass import gamma_mass
from flodl_core.units import BUCKET_BYTES, Seconds

INITIAL_BROADCAST = Cycle(0)
_FEWEST = 2


def call_for(state: SchedulerState, cycle: Cycle) -> RequestParams | SyncNow:
    """Return what begins a cycle: the initial broadcast goes through the root on any plane."""
    if state.nccl is None or cycle == INITIAL_BROADCAST:
        return RequestParams(cycle=cycle)
    return SyncNow(cycle=cycle, session=state.nccl.session)


def fewest_ranks(state: SchedulerState) -> int:
    """Return with how many ranks a run goes on: alone, one has nobody to average with on NCCL."""
    return 1 if state.nccl is None else _FEWEST


def begun(state: SchedulerState) -> None:
    """A cycle was triggered: the members of the session take part in it."""
    if state.nccl is not None:
        state.nccl.taking_part = state.nccl.members


def poll_members(state: SchedulerState, now: Seconds) -> bool:
    """Begin a new session if one of its members takes part no more."""
    sessions, alive = state.nccl, state.cohort.alive_ranks
    if sessions is None or state.rendezvous.phase is not RendezvousPhase.DONE:
        return False
    if state.ending or not alive:
        return False
    sessions.open(now)
    if sessions.counted_on == alive:
        return False
    for rank in sessions.counted_on:
        if rank not in alive:
            state.send_alive(DeclareDead(rank=rank))
    state.out.extend(sessions.begin_anew(alive, now))
    state.disturb("a new NCCL session")
    if len(alive) < _FEWEST:
        detail = f"only {state.cohort[alive[0]].where} is left, and NCCL needs two"
        stop_after_average(state, SaveReason.SINGLE_SURVIVOR, detail, now)
    return True


def stop_after_average(
    state: SchedulerState, reason: SaveReason, detail: str, now: Seconds
) -> None:
    """End the run after one more average, which is saved: no root holds the last one."""
    state.alert(Severity.CRITICAL, reason.value, detail)
    if state.stop is not None:
        return
    code = ExitCode.STOPPED_SAVED if reason is SaveReason.SINGLE_SURVIVOR else ExitCode.FAILED
    request = StopRequested(StopKind.SAVE, code, detail)
    state.stop = StopOrder(request=request, since=now, save_reason=reason, detail=detail)


def take_answer(state: SchedulerState, record: RankRecord, answer: NewNcclIdGenerated) -> None:
    """A survivor told what it had completed."""
    if state.nccl is None:
        state.note("not_on_nccl", rank=record.rank)
        return
    state.out.extend(state.nccl.take_answer(answer))


def take_formed(state: SchedulerState, record: RankRecord, message: NcclSessionFormed) -> None:
    """A member's communicator is usable."""
    sessions = state.nccl
    if sessions is None:
        state.note("not_on_nccl", rank=record.rank)
        return
    state.out.extend(sessions.take_formed(message, state.cohort.alive_ranks))
    if sessions.is_ready and sessions.session > 0:
        state.announce(
            "nccl_session",
            f"NCCL session {sessions.session} is formed of {len(sessions.members)} ranks",
            session=sessions.session,
        )


def poll_session(state: SchedulerState, now: Seconds) -> bool:
    """Form the next session once every survivor has answered."""
    sessions, alive = state.nccl, state.cohort.alive_ranks
    if sessions is None or state.ending or not sessions.may_form(alive):
        return False
    cycle = state.cycle.cycle
    source: Rank | None = None
    if cycle is not None and cycle != INITIAL_BROADCAST:
        done = sessions.completed(alive, cycle)
        if not done and sessions.is_damaged:
            ending.close_failed(
                state,
                SaveReason.REDUCE_STALL,
                f"a death cut off cycle {cycle}, which is reduced in place: no rank holds a "
                "consensus; the newest bundle is what remains",
                now,
            )
            return True
        if not done:
            sessions.taking_part = alive
            state.announce("nccl_repeated", f"cycle {cycle} is repeated", cycle=cycle)
        elif len(done) < len(alive):
            source = min(done)
    state.out.extend(sessions.form(alive, source))
    return True


def poll_acks(state: SchedulerState, now: Seconds) -> tuple[RoundEnded, ...]:
    """Return the rounds of the pending cycle once every alive rank has acknowledged it."""
    cycle, sessions, alive = state.cycle, state.nccl, state.cohort.alive_ranks
    pending = cycle.cycle
    if sessions is None or pending is None or pending == INITIAL_BROADCAST or not alive:
        return ()
    if cycle.phase is not CyclePhase.COUNTING or not cycle.is_acknowledged(alive):
        return ()
    if state.stage is not RunStage.TRAINING:
        return ()
    acks = [cycle.evidence(rank).ack for rank in alive]
    realized = any(ack is not None and ack.outcome is not SyncOutcome.UNREALIZED for ack in acks)
    tallies = _tallies(state, sessions, pending)
    accepted = tuple(tally.rank for tally in tallies if tally.n > 0) if realized else ()
    outcome = RoundOutcome.COMMITTED if realized else RoundOutcome.UNREALIZED
    mass = sum(gamma_mass(tally.n, state.spec.gamma) for tally in tallies)
    is_unstepped = any(ack is not None and ack.is_unstepped for ack in acks)
    values = state.envelope.geometry.params_numel if is_unstepped else 0
    rounds = [Round.CONTROL]
    if realized:
        rounds.append(Round.PARAMS)
        if state.envelope.geometry.buffers_numel > 0:
            rounds.append(Round.BUFFERS)
    return tuple(
        RoundEnded(
            *(pending, one, outcome, accepted, mass),
            tallies=tallies,
            unstepped_buckets=-(-4 * values // BUCKET_BYTES) if one is Round.PARAMS else 0,
        )
        for one in rounds
    )


def _tallies(state: SchedulerState, sessions: NcclSessions, cycle: Cycle) -> tuple[RankTally, ...]:
    """Return what each rank brought that took part, the dead ones too.

    One that died before it could say so is in the average all the same; its samples go
    back to the others and may count twice.
    """
    found: list[RankTally] = []
    for rank in sessions.taking_part:
        ready = state.cycle.evidence(rank).ready
        if ready is not None:
            found.append(
                RankTally(rank=rank, n=ready.n, samples=ready.samples, declared=ready.declared)
            )
        elif state.book.held_samples(rank):
            state.alert(
                Severity.WARN,
                "partly_counted",
                f"samples of {state.cohort[rank].where} may count twice: it was lost in cycle "
                f"{cycle} before it said what it brought",
                rank=rank,
            )
    return tuple(found)


def overdue(state: SchedulerState, now: Seconds) -> tuple[tuple[Rank, str], ...]:
    """Pass over a slow candidate; return who is to be evicted for an overdue session, and why."""
    sessions, alive = state.nccl, state.cohort.alive_ranks
    if sessions is None or state.ending:
        return ()
    state.out.extend(sessions.review_candidate(alive, now))
    ceiling = sessions.ceiling
    if ceiling is None or not ceiling.passed(now):
        return ()
    missing = sessions.missing(alive)
    reason = (
        f"NCCL session {sessions.session} was not usable after {ceiling.age(now):.0f} s "
        f"(ceiling {ceiling.limit_s:g} s, {sessions.phase.value}; not waited for: "
        f"{len(alive) - len(missing)} of {len(alive)} ranks)"
    )
    return tuple((rank, reason) for rank in sessions.to_evict(alive))
