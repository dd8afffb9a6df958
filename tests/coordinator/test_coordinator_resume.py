"""A run that goes on: versions, steps, coverage and what ranks are given first."""

from dataclasses import replace

import pytest
from coordinator_script import (
    RaiseAlert,
    SaveBundle,
    Script,
    control,
    of,
    ranges,
    rank_file,
    sent,
    tally,
)

from flodl_core.coordinator.events import (
    CheckpointRequested,
    DrainRequested,
    StopKind,
    StopRequested,
)
from flodl_core.coordinator.facts import (
    Arrangement,
    EpochCoverage,
    EpochFacts,
    OpenTotals,
    ResumePoint,
)
from flodl_core.coordinator.machine import Coordinator
from flodl_core.coordinator.settings import CoordinatorSettings
from flodl_core.dispatch.ranges import Range
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import HostName, Mode
from flodl_core.messages.job import ResumeSpec
from flodl_core.messages.rendezvous import RendezvousHello, Uid
from flodl_core.messages.timing import TensorBlob

STEPS = {"steps": TensorBlob(dtype="int64", shape=(), data=bytes(8))}


def point(**changes):
    """Version 7 of a pass of 24 samples, 8 of which are trained and 2 dropped."""
    return ResumePoint(
        **(
            {
                "epoch": 1,
                "sync_round": 7,
                "syncs": 6,
                "global_step": 16,
                "samples_trained": 32,
                "samples_dropped": 2,
                "coverage": EpochCoverage(
                    epoch=1,
                    total_samples=24,
                    uncovered=(Range(4, 8), Range(18, 6)),
                    dropped=(Range(16, 2),),
                    first_cycle=5,
                ),
                "finished": (
                    EpochFacts(
                        epoch=0,
                        pass_index=0,
                        label="0",
                        loss=1.5,
                        samples=24,
                        dropped=0,
                        duration_s=3.0,
                        syncs=4,
                    ),
                ),
                "local_buffers": STEPS,
            }
            | changes
        )
    )


class Resumed(Script):
    """A script whose coordinator goes on."""

    def __init__(self, resume, hosts=(("red", 2),), files=(), **numbers):
        super().__init__(hosts, **({"n_samples": 24, "epochs": 2} | numbers))
        spec = ResumeSpec(
            stem="m", bundle_id="b", sync_round=7, global_step=16, rank_files=tuple(files)
        )
        self.envelope = replace(self.envelope, spec=replace(self.envelope.spec, resume=spec))
        self.machine = Coordinator(
            self.envelope,
            CoordinatorSettings(checkpoint_every_s=None),
            has_eval=False,
            local_host=hosts[0][0],
            resume=resume,
        )


def plans(said):
    """What each rank is given, in order."""
    given = {}
    for rank, message in sent(said, control.StartEpoch | control.ExtendPartition):
        part = getattr(message, "plan", message)
        given.setdefault(rank, []).append((part.epoch, part.offset, part.size))
    return given


def begun(script):
    """Through cycle 0; what was said, and the ranks hold their plans."""
    for rank in range(script.world):
        script.hello(rank)
    script.tell(0, Uid(uid=bytes(128)))
    tallies = [tally(rank, n=int(rank == 0), samples=0) for rank in range(script.world)]
    for rank in range(script.world):
        script.ready(rank, 0, n=int(rank == 0), samples=0)
    script.rounds(0, tallies)
    for rank in range(script.world):
        script.ack(rank, 0)
    said, script.said = script.said, []
    script.checkpoint_result(0, 7, buffers=STEPS)
    return said


def test_ranks_get_the_saved_buffers_before_cycle_0_then_the_saved_step():
    script = Resumed(point())
    said = begun(script)
    to_rank_1 = [type(effect.message) for effect in said if getattr(effect, "rank", None) == 1]
    assert to_rank_1.index(control.RestoreLocals) < to_rank_1.index(control.RequestParams)
    assert sent(said, control.RestoreLocals, 1) == [control.RestoreLocals(local_buffers=STEPS)]
    assert sent(said, control.RequestParams, 1) == [control.RequestParams(cycle=0)]
    assert sent(said, control.Update, 1) == [control.Update(version=7, cycle=0)]
    assert sent(said, control.SetGlobalStep, 1) == [control.SetGlobalStep(n=16)]


def test_only_the_holes_are_dealt_equally_in_whole_batches():
    # 14 samples are 7 batches: 4 for the first rank, 3 for the second
    script = Resumed(point())
    assert plans(begun(script)) == {0: [(1, 4, 8)], 1: [(1, 18, 6)]}
    script = Resumed(point(), hosts=(("red", 3),))
    assert plans(begun(script)) == {
        0: [(1, 4, 6)],
        1: [(1, 10, 2), (1, 18, 2)],
        2: [(1, 20, 4)],
    }


def test_a_rank_for_which_no_hole_is_left_gets_an_empty_plan():
    coverage = EpochCoverage(epoch=1, total_samples=24, uncovered=(Range(4, 2),))
    script = Resumed(point(coverage=coverage))
    assert plans(begun(script)) == {0: [(1, 4, 2)], 1: [(1, 0, 0)]}


def test_the_same_world_goes_on_with_what_each_rank_held():
    held = ((Range(18, 6),), (Range(8, 4), Range(4, 4)))
    script = Resumed(point(arrangement=Arrangement(held=held)))
    assert plans(begun(script)) == {0: [(1, 18, 6)], 1: [(1, 8, 4), (1, 4, 4)]}


def test_the_next_cycle_is_the_version_after_the_saved_one():
    script = Resumed(point())
    begun(script)
    said = script.batch(0) + script.batch(1)
    assert sent(said, control.RequestParams, 0) == [control.RequestParams(cycle=8)]
    for rank in (0, 1):
        script.ready(rank, 8)
    assert ranges(script.rounds(8, [tally(0), tally(1)])) == {(0, 4, 2), (1, 18, 2)}
    script.ack(0, 8)
    said = script.ack(1, 8)
    assert sent(said, control.Update, 0) == [control.Update(version=8, cycle=8)]
    assert sent(said, control.SetGlobalStep, 0) == [control.SetGlobalStep(n=18)]


def test_totals_and_finished_epochs_go_on():
    script = Resumed(point())
    begun(script)
    script.cycle(8)
    view = script.machine.view(script.now)
    assert (view.training.samples_done, view.training.samples_dropped) == (36, 2)
    assert (view.training.syncs, view.training.global_step) == (7, 18)
    assert sum(rank.share for rank in view.ranks) == pytest.approx(1.0)  # of what they trained
    assert [epoch.label for epoch in view.epochs] == ["0"]


def test_an_epoch_that_goes_on_is_aggregated_with_all_of_its_samples():
    script = Resumed(point(), hosts=(("red", 1),))
    begun(script)
    for cycle in range(8, 15):
        script.cycle(cycle)
    script.metrics(0, 14, epoch=1)
    facts = script.machine.view(script.now).epochs[-1]
    assert (facts.epoch, facts.samples, facts.dropped) == (1, 22, 2)
    assert facts.syncs == 10  # cycles 5 to 14


def test_loss_scalars_and_duration_of_an_epoch_are_of_both_runs():
    earlier = OpenTotals(
        loss_sum=2.0 * 8, loss_samples=8, scalars={"right": (6.0, 8.0)}, duration_s=100.0
    )
    script = Resumed(point(open_totals=earlier), hosts=(("red", 1),))
    begun(script)
    opened = script.now
    for cycle in range(8, 15):
        script.cycle(cycle)
    script.metrics(0, 14, epoch=1, loss=1.0, loss_samples=12, scalars={"right": (10.0, 12.0)})
    facts = script.machine.view(script.now).epochs[-1]
    assert facts.loss == pytest.approx((2.0 * 8 + 1.0 * 12) / 20)
    assert facts.scalars == {"right": pytest.approx(16 / 20)}
    assert facts.duration_s == pytest.approx(100.0 + script.now - opened, abs=1.0)


def test_what_was_reported_of_an_earlier_epoch_is_no_part_of_the_next():
    earlier = OpenTotals(loss_sum=100.0, loss_samples=8, duration_s=100.0)
    coverage = EpochCoverage(epoch=1, total_samples=24, uncovered=(Range(0, 2),))
    script = Resumed(point(coverage=coverage, open_totals=earlier), hosts=(("red", 1),), epochs=3)
    begun(script)
    script.cycle(8)
    script.metrics(0, 2, epoch=1, loss=1.0)
    for cycle in range(9, 21):
        script.cycle(cycle)
    script.metrics(0, 24, epoch=2, loss=1.0)
    first, second = script.machine.view(script.now).epochs[-2:]
    assert (first.loss, second.loss) == (pytest.approx(102.0 / 10), 1.0)
    assert second.duration_s < 100.0 <= first.duration_s


def test_a_save_in_mid_epoch_keeps_what_was_reported_of_it():
    earlier = OpenTotals(loss_sum=16.0, loss_samples=8, scalars={"a": (1.0, 2.0)}, duration_s=9.0)
    script = Resumed(point(open_totals=earlier))
    begun(script)
    script.handle(CheckpointRequested("operator"))
    script.cycle(8)
    script.metrics(0, 2, epoch=1, loss=1.0, scalars={"a": (3.0, 4.0), "b": (1.0, 1.0)})
    script.metrics(1, 2, epoch=1, loss=None, loss_samples=0)
    kept = of(script.checkpoint_results(8), SaveBundle)[0].facts.open_totals
    assert (kept.loss_sum, kept.loss_samples) == (18.0, 10)
    assert kept.scalars == {"a": (4.0, 6.0), "b": (1.0, 1.0)}
    assert kept.duration_s >= 9.0


def test_between_epochs_nothing_is_kept_of_one():
    script = Resumed(point(coverage=None, open_totals=None), hosts=(("red", 1),))
    begun(script)
    for cycle in range(8, 20):
        script.cycle(cycle)
    script.metrics(0, 24, epoch=1)
    assert of(script.checkpoint_result(0, 19), SaveBundle)[0].facts.open_totals is None


def test_an_epoch_of_which_nothing_is_left_is_aggregated_at_once():
    coverage = EpochCoverage(epoch=1, total_samples=24, uncovered=())
    script = Resumed(point(coverage=coverage))
    said = begun(script)
    assert plans(said) == {0: [(1, 0, 0)], 1: [(1, 0, 0)]}
    assert sent(said, control.EpochAggregated, 1)[0].epoch == 1
    assert sent(said, control.Checkpoint, 1)[0].version == 7
    # rank 0 has answered what it was asked first, and owes the answer to the last save
    assert not of(script.checkpoint_result(1, 7), SaveBundle)
    assert of(script.checkpoint_result(0, 7), SaveBundle)[0].reason == "graceful_shutdown"


def test_between_epochs_the_next_one_begins_whole():
    script = Resumed(point(coverage=None))
    assert plans(begun(script)) == {0: [(1, 0, 12)], 1: [(1, 12, 12)]}


def test_a_save_before_the_first_sync_is_of_the_version_that_was_taken_up():
    script = Resumed(point())
    begun(script)
    script.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    script.forget()
    script.wait(26.0, beating=(0, 1))
    save = of(script.said, SaveBundle)[0]
    assert (save.version, save.facts.sync_round, save.facts.syncs) == (7, 7, 6)
    assert save.local_buffers == STEPS
    assert save.facts.coverage == (point().coverage,)


def test_a_save_later_covers_both_runs():
    script = Resumed(point())
    begun(script)
    script.handle(CheckpointRequested("operator"))
    script.cycle(8)
    save = of(script.checkpoint_results(8), SaveBundle)[0]
    coverage = save.facts.coverage[0]
    assert coverage.uncovered == (Range(6, 6), Range(20, 4))
    assert coverage.dropped == (Range(16, 2),)
    assert coverage.first_cycle == 5
    assert save.facts.arrangement.held == ((Range(6, 6),), (Range(20, 4),))
    assert save.facts.samples_trained == 36


def test_a_rank_that_could_not_take_up_its_part_is_named():
    script = Resumed(point())
    note = "consensus.rank1.pt is not there"
    hello = RendezvousHello(dataset_sig="d" * 64, global_rank=1, host_name="red", resume_note=note)
    alert = of(script.tell(1, hello), RaiseAlert)[0]
    assert (alert.alert_class, alert.rank) == ("resume_incomplete", 1)
    assert alert.detail.endswith(f"begins with a fresh optimizer: {note}")


@pytest.mark.parametrize(
    "coverage",
    [
        EpochCoverage(epoch=0, total_samples=24, uncovered=()),
        EpochCoverage(epoch=1, total_samples=24, uncovered=(Range(20, 6),)),
        EpochCoverage(epoch=1, total_samples=24, uncovered=(Range(0, 8),), dropped=(Range(6, 4),)),
    ],
)
def test_a_coverage_that_does_not_fit_is_refused(coverage):
    with pytest.raises(LocalProtocolError, match="coverage of event"):
        Resumed(point(coverage=coverage))


def test_an_arrangement_of_other_samples_is_refused():
    with pytest.raises(LocalProtocolError, match="coverage of event"):
        Resumed(point(arrangement=Arrangement(held=((Range(4, 8),), ()))))


def in_cadence(**changes):
    settings = {"mode": Mode.CPU_CADENCE}
    return Resumed(point(**changes), **settings)


def test_in_cadence_holes_lie_in_a_pool_for_anybody():
    # 7 batches for counts of 10 each: the final window, 4 and 3
    assert plans(begun(in_cadence())) == {0: [(1, 4, 8)], 1: [(1, 18, 6)]}


def test_in_cadence_the_same_world_deals_what_was_held_first_then_the_spans():
    arrangement = Arrangement(
        held=((Range(10, 2),), (Range(22, 2),)),
        reserved=(Range(4, 6), Range(18, 4)),
    )
    assert plans(begun(in_cadence(arrangement=arrangement))) == {
        0: [(1, 10, 2), (1, 22, 2), (1, 4, 4)],
        1: [(1, 18, 4), (1, 8, 2)],
    }


@pytest.mark.parametrize("goes", ["dies", "drains"])
def test_what_a_rank_held_that_goes_before_the_event_begins_is_given_to_the_others(goes):
    # as it was held: rank 0 had 4 to 11, rank 1 had 18 to 23 in two parts
    arrangement = Arrangement(held=((Range(4, 8),), (Range(18, 4), Range(22, 2))))
    script = Resumed(point(arrangement=arrangement), hosts=(("red", 1), ("blue", 1)))
    for rank in range(2):
        script.hello(rank)
    script.tell(0, Uid(uid=bytes(128)))
    script.ready(0, 0, n=1, samples=0)
    if goes == "dies":
        script.lose(1)
    else:
        script.ready(1, 0, n=0, samples=0)
        script.handle(DrainRequested(HostName("blue"), "operator"))
    movers = [tally(rank, n=int(rank == 0), samples=0) for rank in range(1 + (goes == "drains"))]
    script.rounds(0, movers)
    script.ack(0, 0)
    if goes == "drains":
        script.ack(1, 0)
    given = plans(script.said)
    assert sorted(given[0]) == [(1, 4, 8), (1, 18, 4), (1, 22, 2)]
    assert 1 not in given


def test_what_is_saved_again_before_an_average_names_the_files_that_it_went_on_from():
    files = tuple(rank_file(rank) for rank in range(2))
    script = Resumed(point(), files=files)
    begun(script)
    script.lose(0)
    said = script.lose(1)
    assert of(said, SaveBundle)[0].version == 7
    assert of(said, SaveBundle)[0].rank_files == files


def test_files_of_ranks_that_this_world_has_not_are_not_named():
    files = tuple(rank_file(rank) for rank in range(3))
    script = Resumed(point(), files=files)
    begun(script)
    script.lose(0)
    assert of(script.lose(1), SaveBundle)[0].rank_files == files[:2]
