"""The simulator's own parts: virtual time, lanes, and what a seed draws."""

import random

from hypothesis import given
from hypothesis import strategies as st

from flodl_core.messages.control import SetGlobalStep
from flodl_core.simulation.__main__ import main
from flodl_core.simulation.draws import draw_scenario
from flodl_core.simulation.lanes import Delays, Lane, through_codec
from flodl_core.simulation.scenario import Scenario
from flodl_core.simulation.virtual_loop import VirtualLoop


@given(st.lists(st.floats(0.0, 100.0), max_size=30))
def test_things_are_done_in_the_order_of_their_instants_and_then_of_asking(delays):
    loop, done = VirtualLoop(), []
    for number, delay in enumerate(delays):
        loop.after(delay, lambda number=number: done.append((loop.now, number)))
    while loop.step():
        pass
    assert done == sorted((delay, number) for number, delay in enumerate(delays))
    assert (loop.done, loop.next_at) == (len(delays), None)


def run_lane(seed, sends, end):
    loop, arrived, ended = VirtualLoop(), [], []
    lane = Lane(
        loop,
        random.Random(seed),
        delays=Delays(1.0, 10.0, 0.3),
        deliver=arrived.append,
        on_end=lambda: ended.append(len(arrived)),
    )
    for number in range(sends):
        loop.at(number * 0.5, lambda number=number: lane.send(number))
    if end is not None:
        loop.at(sends * 0.25, getattr(lane, end))
    while loop.step():
        pass
    return arrived, ended


@given(st.integers(0, 1000), st.integers(0, 20))
def test_a_lane_keeps_its_order(seed, sends):
    assert run_lane(seed, sends, None) == (list(range(sends)), [])


@given(st.integers(0, 1000), st.integers(0, 20))
def test_a_closed_lane_delivers_all_that_was_sent_and_then_ends_once(seed, sends):
    arrived, ended = run_lane(seed, sends, "close")
    assert arrived == list(range(len(arrived)))
    assert ended == [len(arrived)]


@given(st.integers(0, 1000), st.integers(0, 20))
def test_a_cut_lane_loses_only_a_tail_and_ends_once(seed, sends):
    arrived, ended = run_lane(seed, sends, "cut")
    assert arrived == list(range(len(arrived)))
    assert len(arrived) <= sends
    assert ended == [len(arrived)]


@given(st.integers(0, 1000), st.integers(0, 20))
def test_a_silenced_lane_never_says_that_it_ended(seed, sends):
    arrived, ended = run_lane(seed, sends, "silence")
    assert arrived == list(range(len(arrived)))
    assert ended == []


def test_a_message_survives_the_codec():
    assert through_codec(SetGlobalStep(n=7)) == SetGlobalStep(n=7)


@given(st.integers(0, 10**6))
def test_a_seed_draws_the_same_scenario_every_time(seed):
    first = draw_scenario(seed)
    assert first == draw_scenario(seed)
    assert 1 <= first.world_size <= 9
    assert first.epoch_splits <= first.n_samples // first.batch_size


def test_generators_of_different_purposes_are_independent():
    scenario = Scenario(seed=3)
    assert scenario.rng("a").random() == scenario.rng("a").random()
    assert scenario.rng("a").random() != scenario.rng("b").random()
    assert scenario.rng("a", 1).random() != scenario.rng("a", 2).random()


def test_the_command_says_how_many_runs_ended_how(capsys):
    assert main(["--seeds", "2:5"]) == 0
    assert main(["--seeds", "4", "--verbose"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "3 seeds, 0 failed" in lines
    assert any(line.startswith("Outcome(seed=4") for line in lines)
