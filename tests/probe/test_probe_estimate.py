"""What several devices would do together, against values worked out by hand."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.probe.estimate import (
    Plan,
    averaging_s,
    estimate,
    nccl_averaging_s,
    ring_s,
    settled_anchor,
)
from flodl_core.probe.facts import SoloRate

PLAN = Plan(overhead_target=0.05, anchor=10, max_anchor=1000)


def rate(batch_ms, *, samples=10_000, device="cpu:0"):
    return SoloRate(
        device=device,
        batch_samples=10,
        batch_ms=batch_ms,
        data_ms=0.1,
        first_ms=100.0,
        batches=5,
        model_bytes=1_000_000,
        copy_bytes_per_s=1e9,
        samples=samples,
    )


def ways(*rates, plan=PLAN):
    return {way.name.partition(" (")[0]: way for way in estimate(rates, plan).ways}


def test_each_way_is_reckoned_by_its_formula():
    """10 and 40 ms a batch of 10; 1 MB at 1 GB/s: an averaging takes 5 + 5 ms, a ring 1 ms."""
    pair = (rate(10.0), rate(40.0))
    assert averaging_s(pair) == pytest.approx(0.010)
    assert ring_s(pair) == pytest.approx(0.001)
    found = ways(*pair)
    assert found["fastest alone"].samples_per_s == pytest.approx(1000)
    assert found["DDP"].samples_per_s == pytest.approx(20 / 0.041)
    assert found["cpu_sync"].samples_per_s == pytest.approx(20 / 0.050)
    assert found["cpu_cadence"].counts == (40, 10)
    assert found["cpu_cadence"].samples_per_s == pytest.approx(500 / 0.410)
    assert found["cpu_async"].samples_per_s == pytest.approx(500 / 0.402)
    assert found["cpu_cadence"].share == pytest.approx(500 / 0.410 / 1250)


def test_gpus_of_one_machine_are_reckoned_on_nccl_too():
    """1 MB: a ring of two at 0.1 GB/s takes 10 ms, four passes at 2 GB/s 2 ms, the rest 5 ms."""
    pair = tuple(
        replace(rate(batch_ms, device=device), peer_bytes_per_s=1e8, memory_bytes_per_s=2e9)
        for batch_ms, device in ((10.0, "cuda:0"), (40.0, "cuda:1"))
    )
    assert nccl_averaging_s(pair) == pytest.approx(0.017)
    found = {one.name: one for one in estimate(pair, PLAN, has_nccl=True).ways}
    assert found["nccl_sync"].samples_per_s == pytest.approx(20 / 0.057)
    assert found["nccl_cadence"].counts == (40, 10)
    assert found["nccl_cadence"].samples_per_s == pytest.approx(500 / 0.417)
    assert found["DDP"].samples_per_s == pytest.approx(20 / 0.050), "over the same link"
    for others, is_there in ((pair, False), ((pair[0], rate(40.0)), True), ((pair[0],) * 2, True)):
        ways_there = estimate(others, PLAN, has_nccl=is_there).ways
        assert not any(one.name.startswith("nccl") for one in ways_there)


def test_the_anchor_grows_until_averaging_is_within_its_target():
    """10 ms of 0.05 allow a window of 200 ms: five batches of 40 ms."""
    plan = Plan(overhead_target=0.05, anchor=1, max_anchor=1000)
    assert settled_anchor(40.0, 0.010, plan) == 5
    assert settled_anchor(40.0, 0.010, PLAN) == 10, "the first anchor is never undercut"
    small = Plan(overhead_target=0.05, anchor=1, max_anchor=3)
    assert settled_anchor(40.0, 0.010, small) == 3
    assert ways(rate(10.0), rate(40.0), plan=plan)["cpu_cadence"].counts == (20, 5)


def test_a_window_is_never_longer_than_a_pass_over_the_data():
    found = ways(rate(10.0, samples=100), rate(40.0, samples=100))["cpu_cadence"]
    assert found.counts == (8, 2)
    assert found.samples_per_s == pytest.approx(100 / 0.090)


def test_a_device_that_adds_too_little_is_said_to_be_not_worth_it():
    far = estimate((rate(10.0, device="cuda:0"), rate(400.0)), PLAN)
    assert not far.is_worth_it
    assert far.verdict.startswith("not worth it: cpu_async is expected at 1.0")
    assert "the fastest alone (cuda:0); train on that one" in far.verdict
    near = estimate((rate(10.0), rate(20.0)), PLAN)
    assert near.is_worth_it
    assert near.verdict.startswith("worth it: cpu_async is expected at 1.")


def test_one_device_has_nobody_to_average_with():
    alone = estimate((rate(10.0),), PLAN)
    assert [way.name for way in alone.ways] == ["fastest alone (cpu:0)"]
    assert alone.ways[0].share == 1.0
    assert (alone.is_worth_it, "one device" in alone.verdict) == (False, True)


@given(st.lists(st.floats(1.0, 500.0), min_size=2, max_size=8))
def test_no_way_exceeds_the_sum_and_cadence_beats_sync(batches_ms):
    found = estimate([rate(ms) for ms in batches_ms], PLAN)
    by_name = {way.name: way.samples_per_s for way in found.ways}
    assert all(way.share <= 1.0 + 1e-9 or way.counts for way in found.ways)
    assert by_name["cpu_async"] >= by_name["cpu_cadence"]
    assert by_name["cpu_cadence"] >= by_name["cpu_sync"] * 0.9
