"""Hints of the cadence: their forms, and what they must not meet."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.config.cadence_rules import read_callback_rank, read_speed_ratio, review_hints
from flodl_core.config.schema import RunConfig
from flodl_core.errors import ConfigError
from flodl_core.ids import CallbackPolicy, Mode


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("LEVEL", "level"),
        (" growth ", "growth"),
        ("None", "none"),
        ("lab.guards:Mine", "lab.guards:Mine"),
        ("some/Path/guard.py:make", "some/Path/guard.py:make"),
    ],
)
def test_a_guard_is_one_of_ours_or_names_an_attribute(given, kept):
    assert RunConfig(guard=given).guard == kept


@pytest.mark.parametrize("given", ["trend", "lab.guards", ":Mine", "lab:", "lab:2x", "lab:a b"])
def test_other_guards_are_refused(given):
    with pytest.raises(ConfigError) as caught:
        RunConfig(guard=given)
    assert caught.value.field == "guard"


def test_a_speed_ratio_names_the_slow_rank():
    ratio = read_speed_ratio(" 2:12.5 ")
    assert ratio is not None
    assert (ratio.rank, ratio.ratio) == (2, 12.5)
    assert read_speed_ratio(None) is None


@pytest.mark.parametrize(
    "given", ["2", "2:", ":3", "a:3", "2:0.5", "2:65", "2:nan", "2:1e", "-1:2"]
)
def test_other_speed_ratios_are_refused(given):
    with pytest.raises(ConfigError, match="RANK:R"):
        RunConfig(speed_ratio=given)


@given(st.integers(0, 999), st.floats(1, 64))
def test_every_ratio_from_one_to_sixty_four_is_read_back(rank, ratio):
    found = read_speed_ratio(f"{rank}:{ratio!r}")
    assert found is not None
    assert (found.rank, found.ratio) == (rank, ratio)


def test_who_runs_callbacks_is_a_policy_or_a_rank():
    assert read_callback_rank("Fastest") == (CallbackPolicy.FASTEST, None)
    assert read_callback_rank("sticky") == (CallbackPolicy.STICKY, None)
    assert read_callback_rank("rank:3") == (CallbackPolicy.FIXED, 3)


@pytest.mark.parametrize("given", ["fixed", "rank", "rank:", "rank:-1", "3", "slowest"])
def test_other_callback_ranks_are_refused(given):
    with pytest.raises(ConfigError, match="fastest, sticky or rank:N"):
        RunConfig(callback_rank=given)


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"partition_ratios": "2,1", "mode": "cpu_cadence"}, "partition_ratios"),
        ({"speed_ratio": "1:2", "mode": "cpu_sync"}, "speed_ratio"),
        ({"speed_ratio": "1:2", "pin_counts": "10,5"}, "speed_ratio"),
        ({"overshoot": 4, "mode": "cpu_cadence"}, "overshoot"),
        ({"easgd_alpha": 0.5, "mode": "cpu_sync"}, "easgd_alpha"),
    ],
)
def test_a_hint_with_nothing_to_say_is_refused(values, field):
    with pytest.raises(ConfigError) as caught:
        RunConfig(**values)
    assert caught.value.field == field


def test_hints_where_they_are_heard_are_kept():
    assert RunConfig(partition_ratios="2,1.5", mode="cpu_sync").partition_ratios == (2.0, 1.5)
    assert RunConfig(partition_ratios=3.5).partition_ratios == (3.5,)
    assert RunConfig(speed_ratio="1:2", mode="cpu_cadence").speed_ratio == "1:2"
    assert RunConfig(speed_ratio="1:2", mode="cpu_async").speed_ratio == "1:2"
    run = RunConfig(overshoot=0, easgd_alpha=1, mode="cpu_async")
    assert (run.overshoot, run.easgd_alpha) == (0, 1.0)


def test_what_is_for_async_is_refused_when_another_mode_is_chosen_for_it():
    run = RunConfig(easgd_alpha=0.25)
    with pytest.raises(ConfigError, match="for cpu_async, and the mode is cpu_cadence"):
        review_hints(
            mode=Mode.CPU_CADENCE,
            pin_counts=False,
            speed_ratio=False,
            partition_ratios=False,
            for_async=run.given_for_async,
        )


def test_the_defaults_of_the_cadence_stand():
    run = RunConfig()
    assert (run.guard, run.meta, run.relax_up) == ("level", True, False)
    assert (run.speed_ratio, run.partition_ratios) == (None, ())
    assert (run.callback_rank, run.eval_every) == ("fastest", 1)
