"""The balancer, window by window: the order of a report and what verdicts do."""

import math

import pytest
from elche_world import ElcheWorld, row

from flodl_core.elche.balancer import Balancer
from flodl_core.elche.guards import NudgeDown, Stable, SuppressGrowth
from flodl_core.elche.record import ElchePhase, ElcheRecord
from flodl_core.elche.report import StartValues, WindowReport
from flodl_core.elche.settings import ElcheSettings, TimingScale
from flodl_core.elche.window_ledger import WindowLedger
from flodl_core.errors import ConfigError, LocalProtocolError
from flodl_core.ids import Rank


def settings(**knobs) -> ElcheSettings:
    return ElcheSettings(**knobs)


def test_before_anything_is_measured_all_do_the_anchor():
    world = ElcheWorld(5, 5, 60)
    assert world.counts == (10, 10, 10)
    assert world.balancer.anchor_rank is None
    assert world.balancer.overhead is None
    assert world.balancer.overhead_target == 0.05
    assert world.balancer.planned_window_ms is None
    assert world.balancer.phase is ElchePhase.PROBE
    assert world.balancer.reason == "nothing is measured yet"


def test_the_first_report_gives_each_rank_its_count():
    world = ElcheWorld(5, 7, 60)
    decision = world.report()
    assert decision.counts == {0: 120, 1: 86, 2: 10}
    assert (decision.anchor, decision.anchor_rank) == (10, 2)
    assert decision.phase is ElchePhase.WARMUP
    assert decision.measured
    assert decision.counts_changed
    assert world.balancer.ms_per_batch == {0: 5, 1: 7, 2: 60}
    assert world.balancer.planned_window_ms == 602  # 86 batches of 7 ms


def test_phases_change_at_the_first_fifth_and_twentieth_report():
    world = ElcheWorld(10, 20)
    phases = []
    for _ in range(21):
        phases.append(world.windows().phase)
    assert phases[0] is ElchePhase.WARMUP
    assert phases[3] is ElchePhase.WARMUP
    assert phases[4] is ElchePhase.STABLE
    assert phases[18] is ElchePhase.STABLE
    assert phases[19] is ElchePhase.MATURE
    assert phases[20] is ElchePhase.MATURE


def test_a_window_that_measured_nothing_changes_nothing():
    world = ElcheWorld(5, 60)
    world.report()
    decision = world.report(batches={0: 0, 1: 0})
    assert not decision.measured
    assert decision.counts == {0: 120, 1: 10}
    assert world.balancer.calibration_count == 1
    assert decision.reason == "the last window measured nothing: the counts stand"


def test_changes_within_five_percent_that_go_both_ways_are_ignored():
    world = ElcheWorld(5, 60)
    world.report()
    for ms in (5.2, 4.8, 4.8, 5.2) * 5:
        world.ms[Rank(0)] = ms
        world.report()
        assert world.counts == (120, 10)  # 115.4 and 125 are within


def test_a_small_change_is_followed_when_five_windows_in_a_row_ask_for_it():
    world = ElcheWorld(5, 60)
    world.report()
    world.ms[Rank(0)] = 5.2
    for _ in range(4):
        world.report()
        assert world.counts == (120, 10)
    world.report()
    assert world.counts == (115, 10)  # the trusted five: 5 x 5.2 ms, 600 / 5.2 = 115.4


def test_a_slow_first_window_costs_no_batch_for_good():
    world = ElcheWorld(6.2, 60)
    world.report(odd_ms={0: 6.5})
    assert world.counts == (92, 10)  # 600 / 6.5 = 92.3; 96.8 is within five percent of it
    world.windows(10)
    assert world.counts == (97, 10)


def test_one_hiccup_of_five_seconds_changes_no_count_and_no_anchor():
    world = ElcheWorld(5, 60, sync_ms=10)
    world.windows(6)
    before = world.counts
    anchor = world.balancer.anchor
    world.report(odd_ms={0: 47.0}, sync_ms=5010)
    world.balancer.apply(Stable())
    assert (world.counts, world.balancer.anchor) == (before, anchor)
    world.windows(6)
    assert (world.counts, world.balancer.anchor) == (before, anchor)


def test_a_tenfold_slow_down_is_followed_after_two_windows():
    world = ElcheWorld(10, 20)
    world.windows(8)
    assert world.counts == (20, 10)
    world.ms[Rank(0)] = 100
    world.windows(2)
    assert world.balancer.anchor_rank == 0
    assert world.counts == (10, 50)


def test_a_rank_that_a_cut_stopped_after_one_slow_batch_is_seen_to_be_slow():
    world = ElcheWorld(10, 20)
    world.windows(8)
    world.ms[Rank(1)] = 200
    for _ in range(2):
        world.report(batches={0: 20, 1: 1})
    assert world.balancer.ms_per_batch == {0: 10, 1: 200}
    assert world.counts == (200, 10)


def test_elections_after_the_first_wait_for_the_stable_phase():
    world = ElcheWorld(10, 20)
    world.windows(1)
    world.ms[Rank(0)] = 30
    world.windows(3)
    assert world.balancer.anchor_rank == 1
    world.windows(2)
    assert world.balancer.phase is ElchePhase.STABLE
    assert world.balancer.anchor_rank == 0


def test_a_challenger_within_ten_percent_does_not_take_the_seat():
    world = ElcheWorld(20, 20)
    world.windows(8)
    assert world.balancer.anchor_rank == 0
    world.ms[Rank(1)] = 21.9
    world.windows(8)
    assert world.balancer.anchor_rank == 0
    assert world.counts == (10, 9)
    world.ms[Rank(1)] = 22.1
    world.windows(8)
    assert world.balancer.anchor_rank == 1


def test_an_anchor_rank_that_missed_five_windows_loses_its_seat():
    world = ElcheWorld(10, 20)
    world.report()
    for _ in range(4):
        decision = world.report(batches={1: 0})
        assert (decision.anchor_rank, decision.measured) == (1, True)
    assert world.balancer.phase is ElchePhase.STABLE
    world.report(batches={1: 0})
    assert world.balancer.anchor_rank == 0
    assert world.counts == (10, 10)


def test_an_anchor_rank_forgotten_while_warming_up_loses_its_seat():
    world = ElcheWorld(10, 20)
    world.report()
    world.balancer.report(WindowReport(rows=()))
    for number in range(5):
        decision = world.report(batches={1: 0}, feeds_growth=False)
        assert decision.anchor_rank == (1 if number < 4 else 0)


def test_growth_waits_for_a_stable_verdict():
    world = ElcheWorld(10, 10, sync_ms=20)
    world.report()
    decision = world.report()  # 20 / 120 = 16.7 %, above twice the target
    assert decision.proposed_anchor == 20
    assert decision.anchor == 10
    assert decision.reason == (
        "averaging takes 16.7% of a window, target 5%: growth from 10 batches of rank 0 to 20 "
        "waits for the guard"
    )
    decision = world.balancer.apply(Stable())
    assert decision.counts == {0: 20, 1: 20}
    assert decision.counts_changed
    assert decision.proposed_anchor is None
    assert decision.reason == (
        "averaging takes 16.7% of a window, target 5%: the anchor grew from 10 to 20 batches of "
        "rank 0"
    )


def test_the_first_report_never_proposes():
    assert ElcheWorld(10, 10, sync_ms=1000).report().proposed_anchor is None


def test_while_warming_up_growth_needs_twice_the_target_and_then_the_target():
    world = ElcheWorld(10, 10, sync_ms=8)  # 8 / 108 = 7.4 %
    assert world.windows(5).anchor == 10
    assert world.balancer.reason.endswith(
        "not enough to grow while warming up, the anchor stays at 10 batches"
    )
    assert world.windows().anchor == 15  # ceil(10 · 7.407 / 5)
    assert world.windows(9).anchor == 16  # 8 / 158 = 5.06 %: ceil(15 · 1.013); 8 / 168 = 4.76 %


def test_a_proposal_is_forgotten_by_the_next_report():
    world = ElcheWorld(10, 10, sync_ms=20)
    world.report()
    world.report()
    world.sync_ms = 0
    world.report()
    world.report()
    assert world.balancer.apply(Stable()).anchor == 10


def test_the_longest_wait_for_a_batch_boundary_is_no_cost():
    balancer = Balancer(ElcheSettings(), (Rank(0),))
    for _ in range(3):
        report = WindowReport(rows=[row(0, 10, 10)], sync_ms=70, longest_boundary_wait_ms=45)
        balancer.report(report)
    assert balancer.overhead == pytest.approx(0.2)  # 25 / 125


def test_the_fill_of_the_anchor_rank_is_a_cost():
    world = ElcheWorld(10, 5, fill_ms=25)
    world.report()
    assert world.balancer.overhead == pytest.approx(0.2)


def test_windows_that_do_not_feed_growth_leave_overhead_and_anchor():
    world = ElcheWorld(10, 10, sync_ms=4)
    world.windows(6)
    overhead = world.balancer.overhead
    for _ in range(4):
        decision = world.report(sync_ms=900, feeds_growth=False)
        assert decision.proposed_anchor is None
        world.balancer.apply(Stable())
    assert world.balancer.overhead == overhead
    assert world.balancer.anchor == 10


def test_suppress_growth_drops_the_proposal_and_latches_until_five_stable_verdicts():
    world = ElcheWorld(10, 10, sync_ms=20)
    world.windows(1)
    world.report()
    decision = world.balancer.apply(SuppressGrowth("divergence rose"))
    assert (decision.anchor, decision.growth_enabled) == (10, False)
    assert decision.reason == "growth is off: divergence rose"
    assert not decision.counts_changed
    for _ in range(4):
        world.windows(1)
    assert not world.balancer.growth_enabled
    assert world.report().proposed_anchor is None
    assert world.balancer.reason == (
        "averaging takes 16.7% of a window, target 5%: growth is off for 1 more stable cycles, "
        "divergence rose"
    )
    world.balancer.apply(Stable())
    assert world.balancer.growth_enabled
    assert world.balancer.anchor == 10
    assert world.windows().anchor == 20
    assert world.balancer.last_verdict == Stable()


def test_a_nudge_shrinks_the_anchor_also_below_its_bound():
    world = ElcheWorld(5, 60)
    world.windows(6)
    decision = world.balancer.apply(NudgeDown(0.5, "it drifts"))
    assert (decision.anchor, decision.growth_enabled) == (5, False)
    assert decision.counts == {0: 60, 1: 5}
    assert decision.reason == "growth is off and the anchor shrank from 10 to 5 batches: it drifts"
    assert world.balancer.apply(NudgeDown(0.0, "more")).anchor == 1


def test_a_nudge_whose_factor_is_no_number_only_latches():
    world = ElcheWorld(5, 60)
    world.windows(6)
    decision = world.balancer.apply(NudgeDown(math.nan, "it drifts"))
    assert (decision.anchor, decision.growth_enabled) == (10, False)
    assert decision.reason == "growth is off: it drifts"


def test_a_nudge_before_anything_is_measured_is_applied_too():
    world = ElcheWorld(5, 60)
    assert world.balancer.apply(NudgeDown(0.5, "why")).counts == {0: 5, 1: 5}


def test_the_window_cap_bounds_counts_and_stops_growth():
    world = ElcheWorld(5, 60, sync_ms=300)
    world.report()
    decision = world.balancer.set_window_cap(65)
    assert decision.counts == {0: 60, 1: 5}
    assert (decision.window_cap_binding, decision.counts_changed) == (True, True)
    assert world.windows(5).anchor == 10
    assert world.report().proposed_anchor is None
    assert world.balancer.reason.endswith(
        "the window cannot grow, it has all 65 batches of the event"
    )
    decision = world.balancer.set_window_cap(None)
    assert decision.counts == {0: 120, 1: 10}
    assert not decision.window_cap_binding
    assert world.windows().anchor == 20


def test_the_cap_leaves_each_rank_a_batch():
    world = ElcheWorld(5, 60, 60)
    assert world.balancer.set_window_cap(2).counts == {0: 1, 1: 1, 2: 1}


def test_the_anchor_stops_at_its_maximum():
    world = ElcheWorld(10, 10, sync_ms=500, settings=settings(max_anchor=30))
    assert world.windows(9).anchor == 30
    assert world.balancer.reason.endswith("the anchor is at its maximum of 30 batches")


def test_where_windows_do_not_grow_the_reason_says_so():
    world = ElcheWorld(10, 10, sync_ms=500, settings=settings(growth=False))
    decision = world.windows(9)
    assert (decision.anchor, decision.growth_enabled) == (10, False)
    assert decision.reason.endswith("windows do not grow in this mode")


def test_a_report_without_a_finite_cost_has_no_overhead():
    world = ElcheWorld(10, 20)
    decision = world.report(sync_ms=math.nan)
    assert decision.overhead is None
    assert decision.reason == "counts follow the speeds: the anchor is 10 batches of rank 1"


def test_a_window_that_does_not_feed_growth_says_so():
    world = ElcheWorld(10, 10, sync_ms=7)
    world.windows(5)
    assert world.report(feeds_growth=False).reason.endswith("this window does not count for growth")


def test_the_difference_of_counts_is_bounded():
    world = ElcheWorld(5, 60, settings=settings(max_batch_diff=30))
    assert world.report().counts == {0: 40, 1: 10}
    assert ElcheWorld(5, 60, settings=settings(max_batch_diff=0)).report().counts == {0: 10, 1: 10}


def test_pinned_counts_never_change():
    world = ElcheWorld(5, 60, 60, sync_ms=900, settings=settings(pinned_counts=(40, 7, 5)))
    world.balancer.set_window_cap(3)
    for _ in range(8):
        decision = world.windows(1)
    world.balancer.apply(NudgeDown(0.1, "why"))
    assert world.counts == (40, 7, 5)
    assert (world.balancer.anchor, world.balancer.anchor_rank) == (5, 2)
    assert decision.reason == "the counts are pinned"
    assert not world.balancer.growth_enabled
    assert not world.balancer.window_cap_binding
    assert decision.overhead == pytest.approx(0.75)  # 900 / (5 · 60 + 900)
    assert world.balancer.lose(Rank(2)).counts == {0: 40, 1: 7}
    assert (world.balancer.anchor, world.balancer.anchor_rank) == (7, 1)


def test_pinned_counts_must_be_one_a_rank():
    with pytest.raises(ConfigError, match="2 numbers for 3 ranks"):
        ElcheWorld(1, 1, 1, settings=settings(pinned_counts=(1, 2)))


def test_a_pinned_anchor_rank_that_did_not_move_is_said_so():
    world = ElcheWorld(5, 60, settings=settings(pinned_counts=(9, 3)))
    decision = world.report(batches={1: 0})
    assert not decision.measured
    assert decision.reason == "anchor rank 1 measured nothing: the counts stand"


def test_speed_hints_are_start_values():
    world = ElcheWorld(5, 60, 60, start=StartValues(speeds={Rank(0): 240.0, Rank(1): 20.0}))
    assert world.counts == (120, 10, 10)
    assert world.balancer.anchor_rank == 1
    world.ms = {Rank(0): 60.0, Rank(1): 5.0, Rank(2): 5.0}
    assert world.report().counts == {0: 10, 1: 120, 2: 120}


def test_hints_are_capped_and_useless_ones_are_left_out():
    hints = {Rank(0): 1e6, Rank(1): 1.0, Rank(2): 0.0}
    assert ElcheWorld(5, 60, 60, start=StartValues(speeds=hints)).counts == (640, 10, 10)


def test_the_hardware_prior_is_the_anchor_rank_until_the_first_report():
    world = ElcheWorld(5, 60, start=StartValues(anchor_rank=Rank(0)))
    assert world.balancer.anchor_rank == 0
    assert world.counts == (10, 10)
    assert world.report().anchor_rank == 1


def test_a_lost_rank_gets_no_count_and_its_seat_is_filled():
    world = ElcheWorld(5, 20, 60)
    world.windows(6)
    decision = world.balancer.lose(Rank(2))
    assert decision.counts == {0: 40, 1: 10}
    assert (decision.anchor, decision.anchor_rank) == (10, 1)
    assert decision.reason == "rank 2 is gone: 2 go on"
    assert decision.counts_changed
    assert not world.balancer.lose(Rank(2)).counts_changed
    assert world.balancer.lose(Rank(0)).counts == {1: 10}
    assert world.balancer.lose(Rank(1)).counts == {}
    assert world.balancer.planned_window_ms is None


def test_a_loss_before_the_first_report_leaves_the_others_their_start():
    world = ElcheWorld(5, 60, start=StartValues(anchor_rank=Rank(1)))
    decision = world.balancer.lose(Rank(1))
    assert decision.counts == {0: 10}
    assert decision.anchor_rank is None
    assert world.report().anchor_rank == 0


def test_rows_of_a_lost_rank_are_left_out():
    world = ElcheWorld(5, 60)
    world.windows(1)
    world.balancer.lose(Rank(1))
    decision = world.balancer.report(WindowReport(rows=[row(0, 120, 5), row(1, 1, 900)]))
    assert decision.counts == {0: 10}


def test_with_the_seat_empty_a_window_of_unmeasured_ranks_changes_nothing():
    world = ElcheWorld(5, 60)
    world.report(batches={0: 0})
    assert world.balancer.anchor_rank == 1
    for _ in range(3):
        assert world.report(batches={1: 0}).anchor_rank == 1


def test_a_rank_that_is_not_measured_yet_does_the_anchor():
    world = ElcheWorld(5, 20, 60)
    assert world.report(batches={1: 0}).counts == {0: 120, 1: 10, 2: 10}
    assert world.report().counts == {0: 120, 1: 30, 2: 10}


def test_the_compute_scale_leaves_waits_out():
    balancer = Balancer(ElcheSettings(scale=TimingScale.COMPUTE), (Rank(0), Rank(1)))
    rows = []
    for rank, step_ms in ((0, 5.0), (1, 10.0)):
        ledger = WindowLedger()
        for _ in range(3):
            ledger.record_batch(step_ms, 30.0, 80.0)
        rows.append(ledger.window(Rank(rank)))
    assert balancer.report(WindowReport(rows=rows)).counts == {0: 20, 1: 10}


def test_a_record_continues_in_another_balancer():
    world = ElcheWorld(5, 60, sync_ms=100)
    world.windows(8)
    record = world.balancer.record((0.1, 0.2))
    assert record.smoothed_ms_per_batch == (5.0, 60.0)
    assert record.trend_history == (0.1, 0.2)
    other = ElcheWorld(5, 60, sync_ms=100)
    assert other.balancer.restore(record)
    assert other.balancer.counts == world.balancer.counts
    assert other.balancer.anchor == world.balancer.anchor > 10
    assert other.balancer.phase is ElchePhase.STABLE
    assert other.balancer.reason == "the saved cadence goes on"
    assert other.balancer.record((0.1, 0.2)) == record


def test_a_record_of_another_world_is_not_taken_up():
    record = ElcheWorld(5, 60).balancer.record()
    world = ElcheWorld(5, 5, 60)
    assert not world.balancer.restore(record)
    assert world.counts == (10, 10, 10)
    assert world.balancer.reason == (
        "the saved cadence is of 2 ranks, not 3: speeds are measured anew"
    )


def test_a_record_without_speeds_is_a_fresh_start():
    world = ElcheWorld(5, 60)
    assert world.balancer.restore(ElcheWorld(9, 9).balancer.record())
    assert world.balancer.phase is ElchePhase.PROBE
    assert world.counts == (10, 10)
    assert world.report().counts == {0: 120, 1: 10}


def test_a_record_keeps_the_live_bounds_and_fills_an_unmeasured_seat():
    world = ElcheWorld(5, 60, sync_ms=2000)
    world.windows(10)
    assert world.balancer.anchor > 50
    record = world.balancer.record()
    other = ElcheWorld(5, 60, settings=settings(max_anchor=50))
    other.balancer.restore(record)
    assert other.balancer.anchor == 50
    world.balancer.lose(Rank(1))
    third = ElcheWorld(5, 60)
    third.balancer.restore(world.balancer.record())
    assert third.balancer.anchor_rank == 0
    assert third.balancer.counts[Rank(1)] == third.balancer.anchor


def test_a_record_whose_anchor_rank_is_nobody_gets_another():
    record = ElcheRecord(
        anchor=12,
        anchor_rank=Rank(9),
        smoothed_ms_per_batch=(5.0, 60.0),
        phase=ElchePhase.MATURE,
        calibration_count=0,
    )
    world = ElcheWorld(5, 60)
    assert world.balancer.restore(record)
    assert world.balancer.anchor_rank == 1
    assert world.counts == (144, 12)
    assert world.balancer.calibration_count == 1


def test_pinned_counts_stay_after_a_restore():
    record = ElcheWorld(5, 60).balancer.record()
    world = ElcheWorld(5, 60, settings=settings(pinned_counts=(4, 3)))
    assert world.balancer.restore(record)
    assert world.counts == (4, 3)
    assert world.balancer.anchor == 3


def test_a_restore_after_the_beginning_is_our_own_mistake():
    world = ElcheWorld(5, 60)
    record = world.balancer.record()
    world.report()
    with pytest.raises(LocalProtocolError):
        world.balancer.restore(record)
    other = ElcheWorld(5, 60)
    other.balancer.lose(Rank(0))
    with pytest.raises(LocalProtocolError):
        other.balancer.restore(record)


def test_counts_cannot_be_changed_from_outside():
    world = ElcheWorld(5, 60)
    with pytest.raises(TypeError):
        world.balancer.counts[Rank(0)] = 3  # type: ignore[index]
