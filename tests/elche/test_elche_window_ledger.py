"""The window ledger: what counts on which scale."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.window_ledger import WindowLedger, delivered_spacing
from flodl_core.ids import Rank

R = Rank(3)
MS = st.floats(0.0, 1e6)
ANY = st.floats(allow_nan=True, allow_infinity=True)


def test_the_first_batch_is_the_fill_and_the_others_make_the_marginal_rate():
    ledger = WindowLedger()
    ledger.record_batch(5.0, 1.0, 40.0)
    ledger.record_batch(5.0, 1.0, 7.0)
    ledger.record_batch(6.0, 1.0, 9.0)
    window = ledger.window(R)
    assert (window.rank, window.batches, window.wall_ms) == (3, 3, 16.0)
    assert window.first_ms == 40.0
    assert (window.delivered_ms, window.delivered_batches) == (16.0, 2)
    assert window.marginal_ms == 8.0
    assert window.fill_excess_ms == 32.0
    assert window.per_batch_ms == pytest.approx(16 / 3)


def test_a_delivered_batch_never_costs_less_than_its_step_and_its_wait_for_data():
    ledger = WindowLedger()
    ledger.record_batch(5.0, 2.0, 1.0)
    ledger.record_batch(5.0, 2.0, 3.0)
    ledger.record_batch(5.0, 2.0)
    assert ledger.window(R).first_ms == 7.0
    assert ledger.window(R).delivered_ms == 14.0


def test_a_fast_first_batch_is_no_fill():
    ledger = WindowLedger()
    ledger.record_batch(5.0, 0.0)
    ledger.record_batch(9.0, 0.0)
    assert ledger.window(R).fill_excess_ms == 0.0


def test_one_batch_gives_no_marginal_rate_and_no_fill():
    ledger = WindowLedger()
    ledger.record_batch(5.0, 0.0, 90.0)
    assert ledger.window(R).marginal_ms is None
    assert ledger.window(R).fill_excess_ms == 0.0


def test_no_batch_costs_infinitely_much():
    window = WindowLedger().window(R)
    assert window.per_batch_ms == math.inf
    assert window.marginal_ms is None


def test_a_batch_that_took_no_time_is_no_delivered_sample():
    ledger = WindowLedger()
    ledger.record_batch(0.0, 0.0)
    ledger.record_batch(0.0, 0.0)
    assert ledger.window(R).marginal_ms is None


def test_a_callback_comes_out_of_both_scales_and_not_below_zero():
    ledger = WindowLedger()
    for _ in range(3):
        ledger.record_batch(10.0, 0.0, 12.0)
    ledger.callback_cost(20.0)
    assert ledger.window(R).wall_ms == 10.0
    assert ledger.window(R).delivered_ms == 4.0
    ledger.callback_cost(15.0)
    assert ledger.window(R).wall_ms == 0.0
    assert ledger.window(R).delivered_ms == 0.0
    assert ledger.batches == 3


def test_mean_loss_leaves_out_what_is_absent_or_not_finite():
    ledger = WindowLedger()
    assert ledger.mean_loss is None
    for loss in (1.0, None, math.nan, math.inf, 2.0):
        ledger.record_batch(1.0, 0.0, loss=loss)
    assert ledger.mean_loss == 1.5


def test_counting_and_timing_are_reset_apart():
    ledger = WindowLedger()
    for _ in range(2):
        ledger.record_batch(5.0, 0.0, 6.0, loss=1.0)
    ledger.reset_batches()
    assert ledger.batches == 0
    assert ledger.window(R).delivered_ms == 6.0
    ledger.record_batch(5.0, 0.0, 6.0)
    assert ledger.window(R).delivered_batches == 2
    ledger.reset_timing()
    assert ledger.batches == 1
    assert ledger.mean_loss is None
    ledger.record_batch(5.0, 0.0, 30.0)
    assert ledger.window(R).first_ms == 30.0
    ledger.reset()
    assert ledger.window(R) == WindowLedger().window(R)


@pytest.mark.slow
@given(st.lists(st.tuples(ANY, ANY, st.none() | ANY)))
def test_whatever_a_rank_reports_the_sums_stay_sound(batches):
    ledger = WindowLedger()
    for batch_ms, data_ms, delivered_ms in batches:
        ledger.record_batch(batch_ms, data_ms, delivered_ms)
    window = ledger.window(R)
    assert window.batches == len(batches)
    assert window.delivered_batches == max(0, len(batches) - 1)
    for value in (window.wall_ms, window.first_ms, window.delivered_ms, window.fill_excess_ms):
        assert value >= 0
        assert not math.isnan(value)


@pytest.mark.slow
@given(st.lists(st.tuples(MS, MS, MS), min_size=2))
def test_the_delivered_scale_is_never_below_the_compute_scale(batches):
    ledger = WindowLedger()
    for batch in batches:
        ledger.record_batch(*batch)
    window = ledger.window(R)
    assert window.first_ms + window.delivered_ms >= window.wall_ms * (1 - 1e-9)


def test_rows_of_a_coalesced_report_carry_their_own_spacing():
    assert delivered_spacing(50.0, (99.0, 5.0, 6.0)) == (39.0, 5.0, 6.0)
    assert delivered_spacing(8.0, (99.0, 5.0, 6.0)) == (0.0, 5.0, 6.0)
    assert delivered_spacing(8.0, (1.0,)) == (8.0,)
    assert delivered_spacing(8.0, ()) == ()


@pytest.mark.slow
@given(ANY, st.lists(ANY, max_size=8))
def test_spacings_of_a_report_are_never_negative_and_cover_a_gap_that_holds_them(gap, spacings):
    rows = delivered_spacing(gap, spacings)
    assert len(rows) == len(spacings)
    assert all(value >= 0 for value in rows)
    if rows and math.isfinite(gap) and sum(rows[1:]) <= gap:
        assert sum(rows) == pytest.approx(gap)
