"""The measuring scripts of unequal ranks count what they say."""

import argparse

import pytest
from cadence_run import measure_share, pace_of, window_rates
from hetero_tally import Tally
from jitter_job import Waits
from recipe_share import Shares


def filled(tmp_path):
    """Rank 0: steps of 2 s, 1 s apart, two windows; rank 1: steps of 4 s, without gaps."""
    tally = Tally.create(tmp_path / "tally", 2)
    for began, window in ((0, 0), (3, 0), (7, 1), (10, 1), (14, 2)):
        tally.note_batch(0, began, began + 2, window)
    for began, window in ((0, 0), (4, 1), (8, 1), (12, 2)):
        tally.note_batch(1, began, began + 4, window)
    tally.note_solo(0, 0.75, 0.1)
    return tally


def test_batches_at_the_ends_of_a_span_count_by_their_part(tmp_path):
    tally = filled(tmp_path)
    assert tally.count_between(0, 1, 8.5) == pytest.approx(0.5 + 1 + 0.75)
    assert tally.count_between(1, 3, 9) == pytest.approx(0.25 + 1 + 0.25)


def test_another_reader_of_the_file_sees_what_was_noted(tmp_path):
    tally = filled(tmp_path)
    other = Tally(tally.path, 2)
    assert other.batches(0).window.tolist() == [0, 0, 1, 1, 2]
    assert (other.solo(0), other.solo_slow(0), other.solo(1)) == (0.75, 0.1, 0.0)
    tally.slow_down(1, 10.0)
    assert (other.factor(0), other.factor(1)) == (1.0, 10.0)


def test_time_is_split_into_steps_gaps_and_what_lies_between_windows(tmp_path):
    pace = pace_of(filled(tmp_path), 0, 0, 12)
    assert pace.steps == pytest.approx(8 / 12)
    assert pace.data == pytest.approx(2 / 12)
    assert pace.between == pytest.approx(2 / 12)
    assert pace.stretch == pytest.approx(2 * 0.75)


def test_a_window_begins_with_its_first_batch_of_any_rank(tmp_path):
    tally = filled(tmp_path)
    assert tally.windows_done() == 2
    assert window_rates(tally) == [(0, 4, [2, 1]), (4, 12, [2, 2])]


def test_jittered_waits_stay_in_their_part_around_the_mean_and_come_again():
    waits = Waits(10.0, 0.2, 3)
    drawn = [waits.next_s() for _ in range(4000)]
    assert min(drawn) >= 0.008
    assert max(drawn) <= 0.012
    assert sum(drawn) / len(drawn) == pytest.approx(0.010, rel=0.01)
    again = Waits(10.0, 0.2, 3)
    assert [again.next_s() for _ in range(5)] == drawn[:5]


def test_shares_are_told_as_medians_with_their_range(capsys):
    words = argparse.Namespace(steps="5,60", overhead_targets="0.02", modes="a,b", jitter=0.2)
    shares = Shares(words)
    shares.found = {"a, target 0.02": [0.9, 0.97, 0.95], "DDP": [0.2]}
    shares.print_table()
    out = capsys.readouterr().out
    assert "| 5,60 ms, jitter 0.2 | share, median |" in out
    assert "| a, target 0.02 | 0.950 | 0.900 to 0.970 | 3 |" in out
    assert "| DDP | 0.200 | 0.200 to 0.200 | 1 |" in out


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.long
@pytest.mark.timeout(120)
def test_a_real_run_is_measured(capsys):
    """Two ranks of different speed: each is seen alone, and both train at the same time."""
    words = argparse.Namespace(sleeps=[2.0, 10.0], solo=0.3, windows=12, seconds=1.0)
    found = measure_share(words, ["--mode", "cpu_cadence"])
    fast, slow = found["counts"]
    assert fast > slow
    assert 0.1 < found["share"] < 1.5
    assert "share of the ideal" in capsys.readouterr().out
