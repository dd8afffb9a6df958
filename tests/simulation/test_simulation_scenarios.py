"""Runs set up by hand: calm ones end well, and every fault at every site has its end."""

import pytest

from flodl_core.coordinator.events import StopKind
from flodl_core.ids import ExitCode
from flodl_core.simulation import run_scenario
from flodl_core.simulation.lanes import Delays
from flodl_core.simulation.scenario import Action, Fault, Order, Scenario, Site

pytestmark = pytest.mark.slow

CALM = {"hosts": (2, 2), "n_samples": 26, "batch_size": 2, "has_eval": True}


def calm(**changes):
    return Scenario(seed=5, **(CALM | changes))


@pytest.mark.parametrize("hosts", [(1,), (2,), (3, 1), (1, 2, 3)])
@pytest.mark.parametrize("buffers", [0, 2])
def test_a_calm_run_trains_every_sample_once(hosts, buffers):
    outcome = run_scenario(calm(hosts=hosts, buffer_buckets=buffers, epochs=2, epoch_splits=2))
    assert (outcome.exit_code, outcome.reason) == (ExitCode.DONE, "finished")
    assert (outcome.trained, outcome.dropped, outcome.lost) == (2 * 24, 0, 0)
    assert outcome.saves == 1


def test_a_run_over_the_codec_is_the_same_run():
    assert run_scenario(calm(wire=True)) == run_scenario(calm(wire=False))


def test_unequal_speeds_and_slow_links_change_no_count():
    slow = Delays(0.5, 3.0, 0.2)
    outcome = run_scenario(calm(batch_s=(0.01, 0.1, 1.0, 2.0), link_delays=slow))
    assert (outcome.exit_code, outcome.trained) == (ExitCode.DONE, 26)


def test_skipped_steps_are_dropped_and_the_rest_trained():
    outcome = run_scenario(calm(skip_share=0.5))
    assert outcome.exit_code == ExitCode.DONE
    assert outcome.dropped > 0
    assert outcome.trained + outcome.dropped == 26


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_killed_rank_costs_its_own_window_and_nothing_else(rank):
    fault = Fault(Action.CRASH, rank, Site.IN_BATCH, 2)
    outcome = run_scenario(calm(faults=(fault,)))
    assert (outcome.exit_code, outcome.lost) == (ExitCode.DONE, 1)
    assert (outcome.trained, outcome.dropped) == (26, 0)


@pytest.mark.parametrize("action", [Action.KILL_HOST, Action.CUT_LINK, Action.PARTITION])
@pytest.mark.parametrize("bucket", range(1, 13))
def test_a_host_lost_at_any_bucket_leaves_the_others_to_finish(action, bucket):
    fault = Fault(action, 2, Site.SHIP_BUCKET, bucket)
    outcome = run_scenario(calm(faults=(fault,)))
    assert (outcome.exit_code, outcome.lost) == (ExitCode.DONE, 2)
    assert (outcome.trained, outcome.dropped) == (26, 0)


@pytest.mark.slow
@pytest.mark.parametrize("site", [site for site in Site if site is not Site.SHIP_BUCKET])
@pytest.mark.parametrize("action", [action for action in Action if action is not Action.BUSY])
def test_every_fault_at_every_site_ends_the_run_in_its_time(site, action):
    for rank in (0, 3):
        for nth in (1, 2):
            outcome = run_scenario(calm(faults=(Fault(action, rank, site, nth),)))
            assert outcome.exit_code in (ExitCode.DONE, ExitCode.FAILED)


@pytest.mark.parametrize("rank", [0, 2])
def test_a_busy_rank_is_waited_for(rank):
    fault = Fault(Action.BUSY, rank, Site.IN_BATCH, 2)
    outcome = run_scenario(calm(faults=(fault,)))
    assert (outcome.exit_code, outcome.lost) == (ExitCode.DONE, 0)


def test_a_rank_that_is_not_finite_for_good_is_evicted():
    fault = Fault(Action.POISON, 3, Site.IN_BATCH, 1)
    outcome = run_scenario(calm(faults=(fault,), epochs=2))
    assert (outcome.exit_code, outcome.lost) == (ExitCode.DONE, 1)
    assert outcome.dropped == 3 * 2


def test_a_cohort_that_is_not_finite_ends_with_the_last_commit():
    faults = tuple(Fault(Action.POISON, rank, Site.BEFORE_READY, 2) for rank in range(4))
    outcome = run_scenario(calm(faults=faults))
    assert (outcome.exit_code, outcome.reason) == (ExitCode.FAILED, "non_finite")


@pytest.mark.parametrize("at_s", [0.2, 2.0, 3.0, 4.0])
def test_a_stop_saves_and_ends_with_its_code(at_s):
    order = Order(at_s, StopKind.SAVE, ExitCode.INTERRUPTED_SAVED)
    outcome = run_scenario(calm(orders=(order,), n_samples=200, batch_s=(0.5,) * 4))
    assert (outcome.exit_code, outcome.reason) == (ExitCode.INTERRUPTED_SAVED, "stopped")


def test_a_stop_now_ends_within_the_second():
    order = Order(2.0, StopKind.NOW, ExitCode.INTERRUPTED_SAVED)
    outcome = run_scenario(calm(orders=(order,), batch_s=(0.5,) * 4))
    assert outcome.ended_at_s < 3.0


def test_the_launcher_may_be_away_without_anybody_dying():
    outcome = run_scenario(calm(absences=((2.0, 8.0),), batch_s=(0.5,) * 4))
    assert (outcome.exit_code, outcome.lost) == (ExitCode.DONE, 0)


def test_a_launcher_that_is_away_above_the_heartbeat_ceiling_finds_nobody():
    outcome = run_scenario(calm(absences=((2.0, 40.0),), batch_s=(0.5,) * 4))
    assert (outcome.exit_code, outcome.lost) == (ExitCode.FAILED, 4)


def test_a_failed_write_is_an_exit_code_and_a_hanging_one_too():
    assert run_scenario(calm(failing_saves=(0,))).exit_code == ExitCode.NOT_SAVED
    assert run_scenario(calm(hanging_save=0)).exit_code == ExitCode.NOT_SAVED


def test_saves_on_the_way_hold_what_they_say():
    outcome = run_scenario(calm(checkpoint_every_s=0.5, batch_s=(0.2,) * 4, epochs=2))
    assert outcome.exit_code == ExitCode.DONE
    assert outcome.saves > 2
