"""What sets a rank apart: against its own past, its ceilings, and its twins."""

import pytest
from console_documents import rank, training, view_of, window

from flodl_console.view.facts import unacknowledged
from flodl_console.view.marks import RankMark, mark_ranks, times
from flodl_core.ids import RankPhase
from flodl_core.telemetry.state import ReduceState, WaitState


def past(*values_ms, windows=20):
    """Windows in which the ranks took so many ms a batch."""
    return tuple(window(seq, ms_per_batch=values_ms) for seq in range(1, windows + 1))


def mark_of(shown, number=0, *, windows=()):
    return mark_ranks(view_of(shown, windows=windows))[number]


def pending(pending_s=5.0):
    return ReduceState(
        state="pending", backend="cpu", cycle=9, version=8, pending_s=pending_s, stall_ceiling_s=300
    )


def test_without_a_document_nobody_is_marked():
    assert mark_ranks(view_of(None)) == {}


def test_a_rank_that_does_its_work_is_not_marked():
    assert mark_of(training(), windows=past(5.0, 5.0, 5.0, 5.0)).mark is RankMark.NONE


@pytest.mark.parametrize(
    ("cause", "note"), [("", "lost"), ("its process ended", "lost: its process ended")]
)
def test_a_lost_rank_is_missing_with_its_cause(cause, note):
    marked = mark_of(training(rank(0, state=RankPhase.LOST, cause=cause)))
    assert (marked.mark, marked.note) == (RankMark.MISSING, note)


def test_a_rank_that_is_silent_for_over_five_seconds_is_late():
    assert mark_of(training(rank(0, heartbeat_age_s=5.0))).mark is RankMark.NONE
    marked = mark_of(training(rank(0, heartbeat_age_s=7.2)))
    assert (marked.mark, marked.note) == (RankMark.LATE, "silent 7.2 s of 30 s")


def test_a_late_rank_says_what_its_wait_will_end_in():
    wait = WaitState(
        rank=0, host="red", phase="silent", age_s=7.2, ceiling_s=30, outcome="it is lost"
    )
    marked = mark_of(training(rank(0, heartbeat_age_s=7.2), waits=(wait,)))
    assert marked.note == "silent 7.2 s of 30 s, then it is lost"


def test_a_silent_rank_without_a_ceiling_says_how_long():
    shown = training(rank(0, heartbeat_age_s=7.2, heartbeat_ceiling_s=None))
    assert mark_of(shown).note == "silent 7.2 s"


def test_a_busy_rank_is_late_also_before_it_is_silent():
    busy = rank(0, state=RankPhase.BUSY, heartbeat_age_s=2.0)
    assert mark_of(training(busy)).note == "busy, not answering"
    silent = rank(0, state=RankPhase.BUSY, heartbeat_age_s=12.0)
    assert mark_of(training(silent)).note == "busy 12 s of 30 s"


@pytest.mark.parametrize(("age_s", "mark"), [(29.0, RankMark.NONE), (31.0, RankMark.LATE)])
def test_a_batch_is_late_after_three_times_its_mean(age_s, mark):
    slow_batches = rank(0, ms_per_batch=10_000.0, progress_age_s=age_s, progress_ceiling_s=300.0)
    assert mark_of(training(slow_batches)).mark is mark


def test_a_short_batch_is_late_after_five_seconds():
    stuck = rank(0, ms_per_batch=None, progress_age_s=6.0, progress_ceiling_s=300.0)
    assert mark_of(training(stuck)).note == "batch 6.0 s of 5 m 00 s"


def test_a_rank_is_slow_at_twice_its_own_earlier_time():
    history = past(5.0, 60.0)
    assert mark_of(training(rank(0, ms_per_batch=9.9)), windows=history).mark is RankMark.NONE
    marked = mark_of(training(rank(0, ms_per_batch=50.0)), windows=history)
    assert (marked.mark, marked.note) == (RankMark.SLOW, "×10 the usual 5.00 ms")
    assert marked.ratio == 10.0


def test_a_slow_card_that_was_always_slow_is_not_marked():
    shown = training(rank(0), rank(1, ms_per_batch=60.0))
    assert mark_of(shown, 1, windows=past(5.0, 60.0)).mark is RankMark.NONE


def test_a_rank_that_has_become_slow_stays_marked_while_most_of_its_past_is_slow():
    history = tuple(
        window(seq, ms_per_batch=(5.0 if seq <= 60 else 50.0,)) for seq in range(1, 201)
    )
    marked = mark_of(training(rank(0, ms_per_batch=50.0)), windows=history)
    assert marked.mark is RankMark.SLOW


@pytest.mark.parametrize("windows", [(), past(5.0, windows=7), past(None), past(windows=20)])
def test_with_too_little_past_nobody_is_slow(windows):
    assert mark_of(training(rank(0, ms_per_batch=500.0)), windows=windows).mark is RankMark.NONE


def test_a_card_is_slow_against_its_twins_without_any_past():
    ranks = [rank(number, gpu="H200") for number in range(3)]
    slow = rank(3, gpu="H200", ms_per_batch=15.0)
    other = rank(4, gpu="other", ms_per_batch=90.0)
    shown = training(*ranks, slow, other)
    assert mark_of(shown, 3).note == "×3.0 the usual 5.00 ms"
    assert mark_of(shown, 4).mark is RankMark.NONE
    unmeasured = training(*ranks, rank(3, gpu="H200", ms_per_batch=None))
    assert mark_of(unmeasured, 3).mark is RankMark.NONE


def test_a_card_that_was_always_slower_than_its_twins_is_marked():
    ranks = [rank(number, gpu="H200") for number in range(3)]
    shown = training(*ranks, rank(3, gpu="H200", ms_per_batch=15.0))
    marked = mark_of(shown, 3, windows=past(5.0, 5.0, 5.0, 15.0))
    assert marked.note == "×3.0 the usual 5.00 ms"


def test_a_throttled_rank_says_so():
    assert mark_of(training(rank(0, throttled=True))).mark is RankMark.THROTTLED


def test_the_one_that_works_while_the_others_hold_is_awaited():
    working = rank(0, planned_batches=700, steps_in_window=100)
    others = [rank(number, state=RankPhase.HELD) for number in (1, 2)]
    marked = mark_of(training(working, *others))
    assert (marked.mark, marked.note) == (RankMark.AWAITED, "others wait, 3.0 s more")


@pytest.mark.parametrize(
    "fields",
    [
        {"planned_batches": None},
        {"planned_batches": 110, "steps_in_window": 100},
        {"planned_batches": 5, "steps_in_window": 9},
        {"planned_batches": 10**12},
        {"planned_batches": 700, "ms_per_batch": None},
    ],
)
def test_nobody_is_awaited_who_is_done_at_once_or_at_an_unknown_time(fields):
    working = rank(0, **fields)
    assert mark_of(training(working, rank(1, state=RankPhase.HELD))).mark is RankMark.NONE


def test_where_most_still_work_nobody_is_awaited():
    working = [rank(number, planned_batches=700) for number in (0, 1)]
    assert mark_of(training(*working, rank(2, state=RankPhase.HELD))).mark is RankMark.NONE


def test_who_has_not_acknowledged_a_pending_average_is_awaited():
    held = rank(0, state=RankPhase.HELD)
    shown = training(held, rank(1, state=RankPhase.REDUCING), reduce=pending())
    assert mark_of(shown, 1).note == "others wait"
    assert mark_of(shown, 0).mark is RankMark.NONE
    young = training(held, rank(1, state=RankPhase.REDUCING), reduce=pending(0.5))
    assert mark_of(young, 1).mark is RankMark.NONE


def test_a_missing_snapshot_is_waited_for_before_the_reduce():
    ranks = (
        rank(0, state=RankPhase.REDUCING),
        rank(1, state=RankPhase.SNAPSHOT),
        rank(2, state=RankPhase.HELD),
    )
    assert [one.rank for one in unacknowledged(training(*ranks, reduce=pending()))] == [1]


def test_an_average_that_waits_for_all_alike_waits_for_nobody_in_particular():
    reducing = [rank(number, state=RankPhase.REDUCING) for number in (0, 1)]
    assert unacknowledged(training(*reducing, reduce=pending())) == ()
    held = [rank(number, state=RankPhase.HELD) for number in (0, 1)]
    assert unacknowledged(training(*held, reduce=pending())) == ()
    assert unacknowledged(training(*reducing)) == ()


@pytest.mark.parametrize(
    ("ratio", "shown"), [(2.04, "×2.0"), (9.94, "×9.9"), (10.4, "×10"), (5_000.0, "×>999")]
)
def test_ratios_are_short(ratio, shown):
    assert times(ratio) == shown


def test_marks_are_worked_out_once_for_one_document_and_its_windows():
    view = view_of(training(), windows=past(5.0))
    assert mark_ranks(view) is mark_ranks(view)
    again = view_of(training(), windows=past(5.0))
    assert mark_ranks(again) is not mark_ranks(view)
    assert mark_ranks(again) == mark_ranks(view)
