"""Cadence in the simulator: windows of counts, cuts, drains, deaths in mid-window."""

import pytest
from seeded_runs import BATCHES, CALM, check_whole

from flodl_core.coordinator.events import StopKind
from flodl_core.ids import ExitCode, GuardKind, Mode
from flodl_core.simulation import run_scenario
from flodl_core.simulation.draws import draw_scenario
from flodl_core.simulation.lanes import Delays
from flodl_core.simulation.scenario import Action, Fault, Order, Scenario, Site, SpeedChange

pytestmark = pytest.mark.slow


def paced(**changes):
    return Scenario(seed=11, **(CALM | {"mode": Mode.CPU_CADENCE} | changes))


def test_a_seed_is_the_same_world_in_both_modes():
    for seed in range(30):
        sync, cadence = (draw_scenario(seed, mode) for mode in (Mode.CPU_SYNC, Mode.CPU_CADENCE))
        assert (sync.hosts, sync.faults, sync.orders) == (
            cadence.hosts,
            cadence.faults,
            cadence.orders,
        )


@pytest.mark.parametrize("hosts", [(1,), (2,), (3, 1), (1, 2, 3)])
@pytest.mark.parametrize("buffers", [0, 2])
def test_a_calm_run_trains_every_sample_once_in_far_fewer_averages_than_batches(hosts, buffers):
    outcome = run_scenario(paced(hosts=hosts, buffer_buckets=buffers))
    check_whole(outcome)
    assert 2 <= outcome.syncs <= 30


def test_passes_and_splits_begin_anew_and_lose_nothing():
    outcome = run_scenario(paced(epochs=2, epoch_splits=3))
    assert (outcome.exit_code, outcome.trained) == (ExitCode.DONE, 2 * 2 * BATCHES)


def test_a_run_over_the_codec_is_the_same_run():
    assert run_scenario(paced(wire=True)) == run_scenario(paced(wire=False))


@pytest.mark.parametrize("factor", [0.1, 10.0])
@pytest.mark.parametrize("rank", [0, 3])
def test_a_rank_whose_speed_changes_costs_no_sample(factor, rank):
    check_whole(run_scenario(paced(speed_changes=(SpeedChange(rank, 2.0, factor),))))


def test_slow_links_and_pinned_counts_change_no_count():
    slow = Delays(0.5, 3.0, 0.2)
    check_whole(run_scenario(paced(link_delays=slow, pinned_counts=(7, 7, 3, 1))))
    check_whole(run_scenario(paced(max_batch_diff=0, guard=GuardKind.NONE)))


@pytest.mark.parametrize("site", [site for site in Site if site is not Site.SHIP_BUCKET])
def test_a_killed_rank_costs_its_window_and_nothing_else(site):
    for rank in (1, 3):
        for nth in (1, 3):
            fault = Fault(Action.CRASH, rank, site, nth)
            outcome = run_scenario(paced(faults=(fault,)))
            assert outcome.exit_code in (ExitCode.DONE, ExitCode.FAILED)
            if outcome.exit_code == ExitCode.DONE:
                assert (outcome.trained, outcome.dropped) == (2 * BATCHES, 0)


@pytest.mark.parametrize("action", [Action.KILL_HOST, Action.CUT_LINK, Action.PARTITION])
@pytest.mark.parametrize("bucket", range(1, 11))
def test_a_host_lost_at_any_bucket_leaves_the_others_to_finish(action, bucket):
    outcome = run_scenario(paced(faults=(Fault(action, 2, Site.SHIP_BUCKET, bucket),)))
    check_whole(outcome, lost=2)


@pytest.mark.parametrize("at_s", [1.5, 2.0, 2.3, 3.0])
def test_a_checkpoint_by_cut_and_a_stop_by_cut(at_s):
    save = Order(at_s, None)
    stop = Order(at_s + 1.0, StopKind.SAVE, ExitCode.INTERRUPTED_SAVED)
    outcome = run_scenario(paced(orders=(save, stop), anchor=30, epochs=20))
    assert (outcome.exit_code, outcome.saves) == (ExitCode.INTERRUPTED_SAVED, 2)


@pytest.mark.parametrize("mode", [Mode.CPU_SYNC, Mode.CPU_CADENCE])
@pytest.mark.parametrize("host", [0, 1])
@pytest.mark.parametrize("at_s", [1.2, 2.0, 2.6, 4.0])
def test_a_host_may_be_drained_at_any_moment(mode, host, at_s):
    order = Order(at_s, None, drain=host)
    check_whole(run_scenario(paced(mode=mode, orders=(order,))))


def test_a_drain_beside_a_death_and_a_second_drain():
    orders = (Order(2.0, None, drain=1), Order(2.1, None, drain=0))
    fault = Fault(Action.CRASH, 3, Site.BETWEEN_MARKS, 2)
    outcome = run_scenario(paced(orders=orders, faults=(fault,)))
    check_whole(outcome, lost=outcome.lost)


def test_a_rank_that_is_not_finite_for_good_is_evicted_with_three_windows():
    outcome = run_scenario(paced(faults=(Fault(Action.POISON, 3, Site.IN_BATCH, 1),)))
    assert (outcome.exit_code, outcome.lost) == (ExitCode.DONE, 1)
    assert outcome.trained + outcome.dropped == 2 * BATCHES
    assert outcome.dropped > 0
