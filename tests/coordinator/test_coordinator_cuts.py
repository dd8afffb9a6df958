"""Cut: who has a window cut, what each rank brings, and where the unworked rest goes."""

import pytest
from coordinator_script import Announce, SaveBundle, Script, control, ends, of, sent, tally
from hypothesis import given, settings
from hypothesis import strategies as st
from paced_world import BATCH, PacedWorld

from flodl_core.coordinator.events import CheckpointRequested, StopKind, StopRequested
from flodl_core.ids import Mode, SaveReason, SyncOutcome
from flodl_core.messages.control import EpochPlan

pytestmark = pytest.mark.slow


def settled(world, windows=6):
    """A world whose counts follow the speeds, at the beginning of a window."""
    return world.run(windows)


def part_of_window(world, share):
    """Let a part of the planned window pass."""
    end = world.now + share * (world.windows[-1][1] - world.windows[-1][0])
    world.run(until=lambda: world.now >= end)


# a stop, a save


def test_a_stop_cuts_the_window_and_saves_what_is_done():
    world = settled(PacedWorld((10, 40), 4_000))
    part_of_window(world, 0.5)
    asked_at = world.now
    said = world.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    assert [rank for rank, _ in sent(said, control.Cut)] == [0, 1]
    assert not sent(said, control.RequestParams)
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    _, ended, batches, cut, planned = world.windows[-1]
    assert cut
    assert 0 < batches[0] < planned[0]
    assert 0 < batches[1] < planned[1]
    assert ended - asked_at < 0.040 + world.sync_s + 0.01  # one batch of the slowest, one average
    bundle = of(world.said, SaveBundle)[-1]
    assert bundle.reason is SaveReason.GRACEFUL_SHUTDOWN
    assert bundle.version == len(world.windows)
    (coverage,) = bundle.facts.coverage
    uncovered = {p for part in coverage.uncovered for p in range(part.offset, part.end)}
    assert uncovered == set(range(4_000 * BATCH)) - set(world.positions())
    world.saved(bundle.version)
    world.exiting(0)
    assert ends(world.exiting(1)).exit_code == 4


def test_an_average_that_waits_for_batches_has_no_ceiling_of_its_own_yet():
    world = settled(PacedWorld((10, 40), 4_000))
    limit_s = world.machine.view(world.now).reduce.stall_ceiling_s
    part_of_window(world, 0.5)
    world.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    asked_at = world.now
    seen = world.machine.view(asked_at + 0.001).reduce
    assert seen.pending_s == pytest.approx(0.001)
    assert seen.stall_ceiling_s is None
    world.run(until=lambda: world.machine.view(world.now).reduce.stall_ceiling_s is not None)
    assert limit_s < world.machine.view(world.now).reduce.stall_ceiling_s <= limit_s + 0.05


def test_a_checkpoint_is_saved_by_a_cut_and_training_goes_on_without_a_loss():
    world = settled(PacedWorld((10, 40), 600))
    part_of_window(world, 0.6)
    world.forget()
    world.handle(CheckpointRequested("operator"))
    assert "window_cut" in world.topics()
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    bundle = of(world.said, SaveBundle)[-1]
    assert bundle.version == len(world.windows)
    assert bundle.facts.samples_trained == len(world.positions())
    world.saved(bundle.version)
    world.run(until=lambda: bool(of(world.said, SaveBundle)[1:]))
    assert world.positions() == list(range(600 * BATCH))
    assert world.topics().count("window_cut") == 1


def test_the_meta_of_a_save_holds_the_state_of_the_cadence():
    world = settled(PacedWorld((10, 40), 4_000))
    world.handle(CheckpointRequested("operator"))
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    record = of(world.said, SaveBundle)[-1].facts.elche
    assert (record.anchor, record.anchor_rank, record.phase) == (10, 1, "stable")
    assert record.smoothed_ms_per_batch == pytest.approx((10.0, 40.0), rel=0.01)
    assert record.trend_history == (0.01,) * 5


def test_in_sync_a_stop_waits_for_the_batch_and_cuts_nothing():
    script = Script((("red", 2),)).start()
    script.batch(0)
    said = script.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    said += script.batch(1)
    assert not sent(said, control.Cut)
    assert len(sent(said, control.RequestParams)) == 2


def script_in_cadence():
    """Two ranks with windows of ten batches, by hand."""
    world = (("red", 2),)
    return Script(world, mode=Mode.CPU_CADENCE, n_samples=80, batch_size=2).start()


def finish_empty(script, cycle):
    """A cycle in which nobody brings anything."""
    nothing = [tally(rank, n=0, samples=0) for rank in (0, 1)]
    for rank in (0, 1):
        script.ready(rank, cycle, n=0, samples=0)
    script.rounds(cycle, nothing)
    script.ack(0, cycle, SyncOutcome.UNREALIZED)
    return script.ack(1, cycle, SyncOutcome.UNREALIZED)


def test_a_cut_that_finds_nothing_done_realizes_nothing_and_loses_nothing():
    script = script_in_cadence()
    said = script.handle(CheckpointRequested("operator"))
    assert len(sent(said, control.Cut)) == 2
    said = finish_empty(script, 1)
    plans = [update.next_plan for _, update in sent(said, control.Update)]
    assert plans == [
        EpochPlan(epoch=0, offset=0, size=20, window_batches=10, cohort_batches=20),
        EpochPlan(epoch=0, offset=40, size=20, window_batches=10, cohort_batches=20),
    ]
    orders = sent(said, control.Checkpoint)  # of version 0, which is still the last commit
    assert [(rank, order.version) for rank, order in orders] == [(0, 0), (1, 0)]


def test_a_cut_waits_for_the_answer_to_a_checkpoint():
    script = script_in_cadence()
    script.handle(CheckpointRequested("operator"))
    finish_empty(script, 1)
    said = script.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    assert not sent(said, control.Cut)
    assert not sent(script.checkpoint_result(0, 0), control.Cut)
    said = script.checkpoint_result(1, 0)
    assert [(rank, cut.cycle) for rank, cut in sent(said, control.Cut)] == [(0, 2), (1, 2)]


# the late


def test_a_rank_that_slows_tenfold_has_the_window_cut_within_one_and_a_half_windows():
    world = settled(PacedWorld((10, 10, 40), 30_000))
    planned_s = 0.4
    part_of_window(world, 0.5)
    world.batch_ms[2] = 400
    world.run(1)
    began, ended, batches, cut, planned = world.windows[-1]
    assert cut
    assert batches[2] < planned[2]
    assert world.cut_at - began < 1.5 * planned_s
    assert ended - world.cut_at < 0.4 + world.sync_s  # the batch that the slow rank was in
    assert "rank 2 (cpu:2 on red) is late" in " ".join(
        effect.text for effect in world.said if getattr(effect, "topic", "") == "window_cut"
    )
    world.run(12)
    counts = world.elche.batch_counts
    assert counts[0] == pytest.approx(40 * counts[2], rel=0.1)
    assert world.share_of_ideal(world.windows[-3:]) > 0.9


def test_a_window_is_cut_once_and_nobody_on_time_is_late():
    world = settled(PacedWorld((10, 10, 40), 30_000))
    world.run(20)
    assert "window_cut" not in world.topics()
    world.batch_ms[2] = 80
    world.run(1)
    assert world.topics().count("window_cut") == 1


def test_a_stretch_below_the_late_factor_is_waited_for():
    world = settled(PacedWorld((10, 10, 40), 30_000))
    world.batch_ms[2] = 50
    world.run(3)
    assert "window_cut" not in world.topics()
    lenient = settled(PacedWorld((10, 10, 40), 30_000, cadence={"late_factor": 4.0}))
    lenient.batch_ms[2] = 100
    lenient.run(1)
    assert "window_cut" not in lenient.topics()


def test_nobody_is_late_while_nothing_is_measured():
    world = PacedWorld((10, 2_000), 400).run(1)
    assert [batches for _, _, batches, _, _ in world.windows] == [(10, 10)]


# the late, and a save


def saved_slowly(mode, part_s):
    """A world in which ranks of one speed take that long to write their parts of a save."""
    world = settled(PacedWorld((10, 10), 8_000, mode=mode), 8)
    world.part_s = list(part_s)
    world.forget()
    world.handle(CheckpointRequested("operator"))
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    world.saved(of(world.said, SaveBundle)[0].version)
    return world


@pytest.mark.parametrize("mode", [Mode.CPU_CADENCE, Mode.CPU_ASYNC])
@pytest.mark.parametrize("part_s", [(1.0, 1.0), (0.0, 1.0)])
def test_a_rank_that_writes_its_part_of_a_save_is_not_late(mode, part_s):
    world = saved_slowly(mode, part_s)
    counts = world.elche.batch_counts
    world.run(2)
    began, ended, batches, cut, planned = world.windows[-2]
    assert not cut
    assert planned == counts
    assert min(batches) >= min(planned) > 20
    # a second of writing, then 10 ms a batch of whoever wrote, and at most one begun beyond
    assert ended - began == pytest.approx(1.0 + planned[1] * 0.01 + world.sync_s, abs=0.011)
    assert world.topics().count("window_cut") == 1, "the one in which the save was made"
    assert world.elche.batch_counts == counts


def test_a_rank_that_slows_down_after_a_save_is_late_from_when_all_have_written():
    world = saved_slowly(Mode.CPU_CADENCE, (0.2, 1.0))
    written_at, planned_s = world.now, world.planned[1] * 0.01
    world.batch_ms[1] = 400
    world.run(1)
    _, _, batches, cut, planned = world.windows[-1]
    assert cut
    assert batches[1] < planned[1]
    assert "rank 1 (cpu:1 on red) is late" in of(world.said, Announce)[-1].text
    assert world.cut_at - written_at < 1.5 * planned_s


# the rest


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(3, 60), min_size=1, max_size=4),
    st.integers(5, 150),
    st.lists(st.floats(0.01, 1.5), max_size=5),
    st.data(),
)
def test_cuts_at_any_moments_train_every_sample_once(batch_ms, batches, pauses, data):
    world = PacedWorld(batch_ms, batches, sync_s=data.draw(st.sampled_from([0.0, 0.015])))
    for pause in pauses:
        end = world.now + pause
        world.run(until=lambda end=end: world.now >= end or bool(of(world.said, SaveBundle)))
        if world.machine._state.ending:
            break
        world.handle(CheckpointRequested("operator"))
        world.run(until=lambda: bool(of(world.said, SaveBundle)))
        world.saved(of(world.said, SaveBundle)[-1].version)
        world.said = [effect for effect in world.said if not isinstance(effect, SaveBundle)]
    world.run(until=lambda: world.machine._state.ending)
    assert world.positions() == list(range(batches * BATCH))


def test_a_death_in_mid_window_costs_its_window_and_the_pool_takes_it_back():
    world = settled(PacedWorld((10, 10, 40), 500))
    part_of_window(world, 0.5)
    world.kill(0)
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    assert world.positions() == list(range(500 * BATCH))
    assert world.elche.batch_counts[0] == 0


def test_the_last_ranks_samples_wake_ranks_that_rest():
    world = PacedWorld((10, 10), 20, elche={"pinned_counts": (10, 10)})
    world.batch_ms[1] = 500
    world.run(until=lambda: world.now > 100.2)
    world.kill(1)
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    assert world.positions() == list(range(20 * BATCH))


def test_counts_that_shrink_in_mid_window_throttle_who_is_past_them():
    world = settled(
        PacedWorld((10, 10, 40), 600, elche={"max_batch_diff": 30}, cadence={"late_factor": 90.0})
    )
    assert world.planned == (40, 40, 10)
    world.batch_ms[1] = 200
    part_of_window(world, 0.6)
    world.forget()
    world.kill(2)
    assert world.elche.batch_counts == (10, 10, 0)
    world.run(1)
    assert [rank for rank, _ in sent(world.said, control.Throttle)] == [0]
    _, _, batches, cut, _ = world.windows[-1]
    assert not cut
    assert 30 < batches[0] < 40  # past its new count, more than 30 above the slowest
    assert batches[1] == 40
    world.batch_ms[1] = 10
    world.run(until=lambda: bool(of(world.said, SaveBundle)))
    assert world.positions() == list(range(600 * BATCH))


def test_without_a_bound_on_differences_nobody_is_throttled():
    world = settled(PacedWorld((10, 10, 40), 600))
    part_of_window(world, 0.6)
    world.kill(2)
    world.run(1)
    assert not sent(world.said, control.Throttle)
    assert world.windows[-1][2] == (40, 40, 0)
