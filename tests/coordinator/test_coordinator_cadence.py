"""Cadence: counts follow speeds, chunks are dealt exactly once, windows end together."""

import math

import pytest
from coordinator_script import SaveBundle, Script, control, of, sent, tally
from paced_world import BATCH, PacedWorld

from flodl_core.coordinator.cadence import CadenceSettings
from flodl_core.coordinator.effects import Send
from flodl_core.coordinator.settings import CoordinatorSettings
from flodl_core.dispatch.ranges import Range
from flodl_core.elche.settings import ElcheSettings
from flodl_core.errors import ConfigError, LocalProtocolError
from flodl_core.ids import Mode
from flodl_core.messages.timing import Batch, Batches

pytestmark = pytest.mark.slow


def finish(world):
    """Play the end of the run: the save and the farewells."""
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    world.saved(of(world.said, SaveBundle)[-1].version)
    for rank in range(world.world):
        if rank not in world.lost_ranks:
            world.exiting(rank)
    assert world.machine.ended


# counts


@pytest.mark.parametrize(
    ("batch_ms", "share"),
    [((5, 5, 60), 0.95), ((10, 20, 40, 80), 0.95), ((10, 10, 10, 10), 0.92)],
)
def test_counts_are_the_ratio_of_speeds_within_twelve_windows(batch_ms, share):
    world = PacedWorld(batch_ms, 40_000, sync_s=0.01).run(12)
    counts = world.elche.batch_counts
    anchor = counts[batch_ms.index(max(batch_ms))]
    for count, ms in zip(counts, batch_ms, strict=True):
        assert count == pytest.approx(anchor * max(batch_ms) / ms, rel=0.1)
    world.run(20)
    assert world.share_of_ideal(world.windows[-10:]) > share


def test_the_first_window_is_equal_and_the_second_follows_the_speeds():
    world = PacedWorld((10, 40), 4_000).run(2)
    (_, _, first, _, _), (_, _, second, _, _) = world.windows
    assert first == (10, 10)
    assert second == (40, 10)


def test_a_rank_holds_itself_after_its_count_and_all_end_together():
    world = PacedWorld((10, 40), 4_000, sync_s=0.0).run(5)
    for began, ended, batches, cut, planned in world.windows[1:]:
        assert batches == planned
        assert not cut
        assert ended - began == pytest.approx(0.4, abs=0.01)


def test_pinned_counts_never_change_and_nobody_is_late():
    world = PacedWorld((10, 300), 300, elche={"pinned_counts": (7, 3)}).run(4)
    world.batch_ms[1] = 3_000
    world.run(4)
    assert [batches for _, _, batches, _, _ in world.windows] == [(7, 3)] * 8
    assert "window_cut" not in world.topics()
    assert world.elche.batch_counts == (7, 3)


def test_pinned_counts_must_be_one_a_rank():
    with pytest.raises(ConfigError, match="2 numbers for 3 ranks"):
        PacedWorld((1, 1, 1), 30, elche={"pinned_counts": (7, 3)})


def test_the_difference_of_counts_is_bounded():
    world = PacedWorld((5, 60), 4_000, elche={"max_batch_diff": 4}).run(6)
    assert world.elche.batch_counts == (14, 10)
    assert not sent(world.said, control.Throttle)


def test_a_window_never_holds_more_than_the_event():
    world = PacedWorld((1, 1), 12, elche={"initial_anchor": 50})
    assert sum(world.planned) == 12
    assert world.elche.window_cap_binding


def test_averaging_that_takes_too_much_makes_windows_longer_up_to_the_bound():
    world = PacedWorld((10, 10), 60_000, sync_s=0.05, elche={"max_anchor": 60}).run(40)
    assert world.elche.anchor == 60
    assert world.elche.batch_counts == (60, 60)
    cheap = PacedWorld((10, 10), 20_000, sync_s=0.001).run(25)
    assert cheap.elche.anchor == 10


def test_rising_divergence_above_the_threshold_keeps_windows_short():
    world = PacedWorld((10, 10), 60_000, sync_s=0.05)
    for step in range(12):
        world._divergence = 0.05 * 1.2**step
        world.run(1)
    assert world.elche.growth_enabled is False
    assert world.elche.last_verdict.startswith("suppress growth: divergence rose")
    assert world.elche.anchor < 30


def test_the_final_window_and_its_save_do_not_feed_growth():
    world = PacedWorld((10, 10), 100, sync_s=0.5, epochs=3, elche={"initial_anchor": 50})
    world.run(until=lambda: len(world.windows) >= 2)
    assert all(sum(batches) == 100 for _, _, batches, _, _ in world.windows)
    assert world.elche.overhead is None


# chunks and plans


def test_every_sample_is_trained_once_and_the_run_ends():
    world = PacedWorld((7, 20, 31), 333, epochs=2)
    finish(world)
    assert world.positions() == sorted(list(range(333 * BATCH)) * 2)


def test_the_last_window_is_shared_out_by_counts_and_nobody_gets_a_single_batch():
    world = PacedWorld((10, 40), 10 + 10 + 50 + 27)
    finish(world)
    batches = [batches for _, _, batches, _, _ in world.windows]
    assert batches == [(10, 10), (40, 10), (22, 5)]


def test_more_ranks_than_batches_idle_and_it_is_said():
    world = PacedWorld((10, 10, 10), 2)
    assert sorted(world.planned) == [0, 0, 2]
    assert "ranks_idle" in world.topics_at_start


def cadence_script(hosts=(("red", 2),), batches=60, **elche):
    settings = {"cadence": CadenceSettings(elche=ElcheSettings(**elche))}
    return Script(
        hosts, settings=settings, mode=Mode.CPU_CADENCE, n_samples=batches * 2, batch_size=2
    )


def test_a_window_is_dealt_as_one_chunk_of_exactly_the_count():
    script = cadence_script(pinned_counts=(4, 2))
    script.start()
    assert script.machine._state.book.holdings(0) == [Range(0, 8)]
    for rank, count in ((0, 4), (1, 2)):
        for _ in range(count):
            script.batch(rank)
    for rank, count in ((0, 4), (1, 2)):
        script.ready(rank, 1, n=count, samples=2 * count)
    script.rounds(1, [control_tally(0, 4), control_tally(1, 2)])
    script.ack(0, 1)
    said = script.ack(1, 1)
    order = [(effect.rank, type(effect.message).__name__) for effect in of(said, Send)]
    assert order == [
        (0, "Update"),
        (0, "SetGlobalStep"),
        (1, "Update"),
        (1, "SetGlobalStep"),
    ]
    update = sent(said, control.Update, 0)[0]
    assert update.next_plan == control.EpochPlan(
        epoch=0, offset=8, size=8, window_batches=4, cohort_batches=6
    )
    assert sent(said, control.SetGlobalStep, 1)[0].n == 6


def control_tally(rank, batches):
    return tally(rank, n=batches, samples=2 * batches)


def test_a_chunk_in_two_ranges_is_told_before_the_step_that_releases_the_rank():
    script = cadence_script(batches=24, pinned_counts=(4, 4))
    script.start()
    said = script.lose(1)
    assert not sent(said, control.ExtendPartition)
    for _ in range(4):
        script.batch(0)
    script.ready(0, 1, n=4, samples=8)
    script.rounds(1, [control_tally(0, 4)])
    said = script.ack(0, 1)
    kinds = [type(effect.message).__name__ for effect in of(said, Send)]
    plan = sent(said, control.Update, 0)[0].next_plan
    assert kinds == ["Update", "SetGlobalStep"]
    assert (plan.offset, plan.size) == (24, 8)  # what the lost rank held goes first


# measures


def report(script, rank, *since_ms, age_ms=0.0):
    """One report of batches of 5 ms that waited 1 ms for their data."""
    rows = tuple(
        Batch(batch_ms=5.0, data_ms=1.0, since_previous_ms=since, step_count=1, samples=2)
        for since in since_ms
    )
    script.tell(rank, Batches(rank=rank, rows=rows, age_ms=age_ms))


def costs_of(script, rank):
    return script.machine._state.cohort[rank].ledger.open_costs.window(rank)


def test_the_first_batch_is_spaced_from_the_release_and_later_ones_by_themselves():
    script = cadence_script(pinned_counts=(4, 4)).start()
    script.now += 0.050
    report(script, 0, 999.0, 10.0)  # 50 ms since the release, of which 10 are the second's
    script.now += 0.070
    report(script, 0, 12.0)  # gathered with nothing, and late
    costs = costs_of(script, 0)
    assert (costs.batches, costs.wall_ms) == (3, 15.0)
    assert costs.first_ms == pytest.approx(40.0)
    assert costs.delivered_ms == pytest.approx(10.0 + 12.0)


def test_a_report_that_waited_is_taken_as_of_when_its_batch_was_done():
    script = cadence_script(pinned_counts=(4, 4)).start()
    script.now += 0.050
    report(script, 0, 0.0, age_ms=20.0)  # done 30 ms after the release, told 20 ms later
    script.now += 0.005
    report(script, 0, 0.0)  # done 25 ms after the first was
    costs = costs_of(script, 0)
    assert costs.first_ms == pytest.approx(30.0)
    assert costs.delivered_ms == pytest.approx(25.0)


@pytest.mark.parametrize("age_ms", [math.nan, math.inf, -5.0, 1e12])
def test_an_age_that_cannot_be_moves_no_batch_before_the_one_before_it(age_ms):
    script = cadence_script(pinned_counts=(4, 4)).start()
    script.now += 0.050
    report(script, 0, 0.0, age_ms=age_ms)
    assert 6.0 <= costs_of(script, 0).first_ms <= 50.0 + 1e-6


def test_a_batch_never_costs_less_than_its_step_and_its_data():
    script = cadence_script(pinned_counts=(4, 4)).start()
    script.now += 0.002
    report(script, 0, 0.0, 3.0)
    costs = costs_of(script, 0)
    assert (costs.first_ms, costs.delivered_ms) == (6.0, 6.0)


def test_rows_without_a_spacing_are_spaced_by_their_arrival():
    script = cadence_script(pinned_counts=(4, 4)).start()
    for pause in (0.030, 0.020, 0.040):
        script.now += pause
        report(script, 1, 0.0)
    costs = costs_of(script, 1)
    assert costs.first_ms == pytest.approx(30.0)
    assert costs.delivered_ms == pytest.approx(60.0)


def test_what_comes_after_the_snapshot_is_of_the_next_window():
    script = cadence_script(pinned_counts=(1, 1)).start()
    for rank in (0, 1):
        script.now += 0.010
        report(script, rank, 0.0)
    script.ready(0, 1)
    report(script, 0, 7.0)
    assert costs_of(script, 0).batches == 1
    assert script.machine._state.cohort[0].ledger.closing_costs.window(0).batches == 1


def test_a_late_factor_of_one_is_refused():
    with pytest.raises(LocalProtocolError, match="more than 1"):
        CadenceSettings(late_factor=1.0)


def test_sync_has_no_cadence():
    script = Script().start()
    view = script.machine.view(script.now).elche
    assert view.batch_counts == (1, 1, 1)
    assert view.phase == "inapplicable"
    assert CoordinatorSettings().cadence.late_factor == 1.5
