"""Who wants the window cut, and which rank is so late that it is.

What it is: the reasons for a Cut in their order, and the rule of lateness: a rank whose
end is projected beyond `late_factor` times the planned window keeps all others waiting,
so everybody contributes what is done. Looked at a few times a window, cut once.
What it is not: the cut itself; `coordinator.averaging` triggers it.
Who drives it: `coordinator.advance` asks who wants one, `coordinator.tick` looks for the late.

    began ──── planned ──── late_factor × planned ─▶
           a rank is late from the moment on at which it cannot end before this point
           even if the batch that it is in ended now
"""

from collections.abc import Sequence

from flodl_core.coordinator.cadence import Cadence
from flodl_core.coordinator.ceiling import Ceiling, earliest
from flodl_core.coordinator.cohort import RankRecord
from flodl_core.coordinator.state import RunStage, SchedulerState, Window
from flodl_core.units import Seconds

REPORT_LAG_S: Seconds = 0.1
"""How old a rank's last batch may be when we hear of it: reports are gathered, and travel."""

LOOKS_A_WINDOW = 4
_LEAST_LOOK_S: Seconds = 0.02
_BATCHES_TO_JUDGE = 3
"""Later batches of a window after which its own pace counts, and not the trusted one."""


def wanted(state: SchedulerState, now: Seconds) -> str:
    """Return who wants the window cut, in words; empty if nobody does.

    In Sync nobody does: a window is one batch there, and a cut would end none sooner. Nor does
    a stop or a save where counts are pinned: a run that goes on from there is then, bit by bit,
    the one that was never stopped. Where ranks run on, a cut is how they come to rest: every
    save needs one, and a late rank needs none.
    """
    if state.cadence is None:
        return ""
    is_pinned = state.cadence.is_pinned and not state.runs_on
    if state.stop is not None and not is_pinned:
        return state.stop.request.who
    for host, who in state.draining.items():
        return f"{who} drains host {host}"
    if is_pinned:
        return ""
    if state.saves.demanded and state.saves.current is None:
        return f"a save for {state.saves.demanded}"
    if state.runs_on:
        return "a save is due" if state.saves.is_due(now) else ""
    return late(state)


def late(state: SchedulerState) -> str:
    """Return which rank keeps the others waiting, in words; empty if none does."""
    return state.window.late if state.window is not None else ""


def review_late(state: SchedulerState, now: Seconds) -> None:
    """Look whether a rank is late, if that is due, and say when to look next.

    Nobody is while ranks write their parts of a save: it comes before their batches.
    """
    window, cadence = state.window, state.cadence
    if window is None or cadence is None or window.look_at is None or now < window.look_at:
        return
    training = state.stage is RunStage.TRAINING and not state.cycle.pending
    if cadence.late_factor is None or window.planned_ms is None or not training:
        window.look_at = None
        return
    pause_s = max(_LEAST_LOOK_S, window.planned_ms / 1000.0 / LOOKS_A_WINDOW)
    save = state.saves.current
    if save is not None and save.owed:
        window.look_at = now + pause_s
        return
    dues: list[Seconds | None] = []
    for record in state.cohort.alive:
        ceiling = _lateness(state, window, cadence.late_factor, record)
        if ceiling is None:
            continue
        if ceiling.passed(now):
            window.late = _word_late(record, window, now)
            window.look_at = None
            return
        dues.append(ceiling.due())
    window.look_at = earliest(now + pause_s, *dues)


def first_look(window: Window, cadence: Cadence) -> Seconds | None:
    """Return when a window that begins is looked at first; None if nobody can be late."""
    if window.planned_ms is None or cadence.late_factor is None:
        return None
    return window.began_at + max(_LEAST_LOOK_S, window.planned_ms / 1000.0 / LOOKS_A_WINDOW)


def begin_again(state: SchedulerState, now: Seconds) -> None:
    """Count the time of the window under way from now: ranks have written their parts of a save."""
    window, cadence = state.window, state.cadence
    if window is not None and cadence is not None:
        window.began_at = now
        window.look_at = first_look(window, cadence)


def throttle(state: SchedulerState, records: Sequence[RankRecord]) -> tuple[RankRecord, ...]:
    """Return the ranks that must begin no other batch, because counts shrank under them.

    A rank is held only once it has its own new count, and more than the allowed
    difference above the slowest. Where ranks run on, they are looked at all the time.

    Args:
        state: with a window that is under way.
        records: of the alive ranks.
    """
    cadence, window = state.cadence, state.window
    if cadence is None or window is None or state.cycle.pending:
        return ()
    if not window.shrunk and not state.runs_on:
        return ()
    if cadence.max_batch_diff is None or state.stage is not RunStage.TRAINING:
        return ()
    counts = cadence.balancer.counts
    fewest = min(
        (record.ledger.open_batches for record in records if not _is_through(state, record)),
        default=0,
    )
    return tuple(
        record
        for record in records
        if not record.throttled
        and record.ledger.open_batches >= counts.get(record.rank, 0)
        and record.ledger.open_batches > fewest + cadence.max_batch_diff
        and not state.is_quiesced(record.rank)
    )


def _is_through(state: SchedulerState, record: RankRecord) -> bool:
    """Whether a rank that runs on has nothing left, so that nobody need wait for it."""
    return state.runs_on and state.is_quiesced(record.rank)


def _lateness(
    state: SchedulerState, window: Window, late_factor: float, record: RankRecord
) -> Ceiling | None:
    """Return from when on this rank is late, as things stand; None if it owes no batch.

    One that is at a callback is late when all others are to be done.
    """
    assert window.planned_ms is not None
    assert state.cadence is not None
    if state.evaluation is not None and state.evaluation.target == record.rank:
        return Ceiling(window.began_at, window.planned_ms / 1000.0 + REPORT_LAG_S)
    owed = -(-state.unreported_samples(record.rank) // state.spec.batch_size)
    if state.runs_on:
        owed = min(owed, record.planned_batches - record.ledger.open_batches)
    if owed <= 0:
        return None
    costs = record.ledger.open_costs.window(record.rank)
    trusted_ms = state.cadence.balancer.ms_per_batch.get(record.rank, 0.0)
    own_ms = costs.marginal_ms if costs.delivered_batches >= _BATCHES_TO_JUDGE else None
    pace_s = max(trusted_ms, own_ms or 0.0) / 1000.0
    limit_s = late_factor * window.planned_ms / 1000.0 + REPORT_LAG_S
    return Ceiling(window.began_at, max(0.0, limit_s - (owed - 1) * pace_s))


def _word_late(record: RankRecord, window: Window, now: Seconds) -> str:
    assert window.planned_ms is not None
    done, planned = record.ledger.open_batches, record.planned_batches
    took_ms = (now - window.began_at) * 1000.0
    return (
        f"{record.where} is late: {done} of {planned} batches after {took_ms:.0f} ms "
        f"of a window planned for {window.planned_ms:.0f} ms"
    )
