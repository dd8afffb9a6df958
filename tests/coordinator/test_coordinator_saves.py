"""A save asks every alive rank: whose file is in the bundle, and what deaths do to it."""

import pytest
from coordinator_script import (
    EvictRank,
    RaiseAlert,
    SaveBundle,
    Script,
    codes,
    control,
    ends,
    of,
    rank_file,
    sent,
    tally,
)

from flodl_core.coordinator.cadence import CadenceSettings
from flodl_core.coordinator.events import CheckpointRequested, StopKind, StopRequested
from flodl_core.elche.settings import ElcheSettings
from flodl_core.ids import Mode, Round, RoundOutcome, SyncOutcome
from flodl_core.messages.control import Checkpoint
from flodl_core.messages.timing import TensorBlob


def blob(value):
    return {"steps": TensorBlob(dtype="int64", shape=(), data=value.to_bytes(8, "little"))}


def asked(ranks=3, **numbers):
    """A run whose ranks are asked for the save of version 1."""
    script = Script((("red", ranks),), n_samples=24, **numbers).start()
    script.handle(CheckpointRequested("operator"))
    script.cycle(1)
    return script


def test_every_alive_rank_is_asked_and_the_lowest_for_its_buffers():
    script = Script((("red", 3),), n_samples=24).start()
    script.lose(0)
    script.handle(CheckpointRequested("operator"))
    said = script.cycle(1, ranks=(1, 2))
    order = control.Checkpoint(version=1, target_rank=1)
    assert sent(said, control.Checkpoint) == [(1, order), (2, order)]


def test_the_bundle_is_written_when_the_last_rank_has_answered_and_names_their_files():
    script = asked()
    assert not of(script.checkpoint_result(2, 1, rank_file=rank_file(2)), SaveBundle)
    assert not of(script.checkpoint_result(0, 1, rank_file=rank_file(0)), SaveBundle)
    save = of(script.checkpoint_result(1, 1, rank_file=rank_file(1)), SaveBundle)[0]
    assert [one.rank for one in save.rank_files] == [0, 1, 2]


def test_only_the_targets_buffers_are_taken():
    script = asked(2)
    script.checkpoint_result(0, 1, buffers=blob(7))
    save = of(script.checkpoint_result(1, 1, buffers=blob(9)), SaveBundle)[0]
    assert save.local_buffers == blob(7)


def test_a_rank_that_cannot_write_its_file_is_named_and_missing_and_the_bundle_is_good():
    script = asked(2)
    said = script.checkpoint_result(1, 1, rank_file_error="No space left on device")
    alert = of(said, RaiseAlert)[0]
    assert (alert.alert_class, alert.rank) == ("save_failed", 1)
    assert "No space left on device" in alert.detail
    assert "fresh optimizer" in alert.detail
    save = of(script.checkpoint_result(0, 1, rank_file=rank_file(0)), SaveBundle)[0]
    assert [one.rank for one in save.rank_files] == [0]


def test_an_answer_of_another_version_or_a_second_one_changes_nothing():
    script = asked(2)
    assert codes(script.checkpoint_result(1, 0)) == ["checkpoint_out_of_place"]
    script.checkpoint_result(1, 1)
    assert codes(script.checkpoint_result(1, 1)) == ["checkpoint_out_of_place"]


def test_a_death_among_the_asked_does_not_hold_the_save_up():
    script = asked()
    script.checkpoint_result(0, 1, rank_file=rank_file(0))
    script.checkpoint_result(2, 1, rank_file=rank_file(2))
    save = of(script.lose(1), SaveBundle)[0]
    assert [one.rank for one in save.rank_files] == [0, 2]
    assert (save.facts.ranks_alive, save.facts.world_size) == (2, 3)


def test_a_file_of_a_rank_that_died_after_it_wrote_stays_in_the_bundle():
    script = asked(2)
    script.checkpoint_result(1, 1, rank_file=rank_file(1))
    script.lose(1)
    save = of(script.checkpoint_result(0, 1, rank_file=rank_file(0)), SaveBundle)[0]
    assert [one.rank for one in save.rank_files] == [0, 1]


def test_answers_to_a_save_that_was_given_up_are_none_to_the_next_one_of_its_version():
    """The last cycle is saved; three of four ranks write still or have written, and one dies."""
    script = Script((("red", 4),), n_samples=8).start()
    script.handle(CheckpointRequested("operator"))
    script.cycle(1)
    for rank in (1, 2):
        script.metrics(rank, 2)
    script.checkpoint_result(1, 1, rank_file=rank_file(1, "aa"))
    script.lose(0)
    answer = script.checkpoint_result(2, 1, rank_file=rank_file(2, "aa"))
    assert codes(answer) == ["save_was_given_up"]
    assert codes(script.checkpoint_result(2, 1)) == ["checkpoint_out_of_place"]
    script.forget()
    script.metrics(3, 2)  # the event is over without a further commit, and so is the run
    orders = [(rank, one.version, one.target_rank) for rank, one in sent(script.said, Checkpoint)]
    assert orders == [(1, 1, 1), (2, 1, 1), (3, 1, 1)]
    script.forget()
    script.checkpoint_result(3, 1, rank_file=rank_file(3, "aa"))
    script.checkpoint_result(2, 1, rank_file=rank_file(2, "bb"))
    script.checkpoint_result(1, 1, buffers=blob(5), rank_file=rank_file(1, "bb"))
    assert not of(script.said, SaveBundle)  # rank 3 has answered the first order only
    said = script.checkpoint_result(3, 1, rank_file=rank_file(3, "bb"))
    (bundle,) = of(said, SaveBundle)
    assert bundle.local_buffers == blob(5)
    assert [(one.rank, one.sha256) for one in bundle.rank_files] == [
        (1, "bb"),
        (2, "bb"),
        (3, "bb"),
    ]


def test_a_save_after_an_epoch_is_not_answered_by_what_was_owed_before_it():
    settings = {"checkpoint_every_epochs": 1}
    script = Script((("red", 2),), n_samples=4, epochs=2, settings=settings).start()
    script.handle(CheckpointRequested("operator"))
    script.cycle(1)
    script.metrics(1, 2)
    script.forget()
    script.lose(0)
    assert [order.version for order in sent(script.said, Checkpoint, 1)] == [1]
    assert not of(script.checkpoint_result(1, 1), SaveBundle)
    (bundle,) = of(script.checkpoint_result(1, 1, buffers=blob(5)), SaveBundle)
    assert (bundle.reason, bundle.local_buffers) == ("checkpoint", blob(5))


def test_what_was_owed_of_another_version_is_not_waited_for():
    script = asked(2)
    script.lose(0)
    script.forget()
    script.cycle(2, ranks=[1])
    assert [order.version for order in sent(script.said, Checkpoint, 1)] == [2]
    assert codes(script.checkpoint_result(1, 1)) == ["checkpoint_out_of_place"]
    (bundle,) = of(script.checkpoint_result(1, 2, buffers=blob(5)), SaveBundle)
    assert (bundle.version, bundle.local_buffers) == (2, blob(5))


def last_save(ranks=2):
    """A run that is done but for its last save."""
    script = Script((("red", ranks),), n_samples=2 * ranks).start()
    script.cycle(1)
    for rank in range(ranks):
        script.metrics(rank, 2)
    return script


def test_when_the_target_of_the_last_save_dies_another_is_asked_for_buffers_only():
    script = last_save(3)
    script.checkpoint_result(2, 1, rank_file=rank_file(2))
    said = script.lose(0)
    order = control.Checkpoint(version=1, target_rank=1, with_rank_files=False)
    assert sent(said, control.Checkpoint) == [(1, order)]
    assert not of(script.checkpoint_result(1, 1, rank_file=rank_file(1)), SaveBundle)
    save = of(script.checkpoint_result(1, 1, buffers=blob(5)), SaveBundle)[0]
    assert save.local_buffers == blob(5)
    assert [one.rank for one in save.rank_files] == [1, 2]


def test_a_stop_during_the_questions_of_a_save_makes_that_save_the_last_one():
    script = asked(2, settings={"stop_grace_s": 5.0})
    script.checkpoint_result(1, 1, rank_file=rank_file(1))
    script.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    script.forget()
    script.wait(6.0, beating=(0, 1))
    save = of(script.said, SaveBundle)[0]
    assert not sent(script.said, control.Checkpoint)
    assert [one.rank for one in save.rank_files] == [1]
    script.saved(1)
    script.exiting(0)
    assert ends(script.exiting(1)).exit_code == 4


def test_a_failed_save_tells_the_age_of_the_last_good_one_and_training_goes_on():
    script = asked(1, settings={"checkpoint_every_s": 60.0})
    script.checkpoint_results(1)
    alert = of(script.saved(1, error="No space left on device"), RaiseAlert)[0]
    assert alert.detail.endswith("this run has no good one yet")
    script.wait(61.0, beating=(0,))
    script.cycle(2)
    script.checkpoint_results(2)
    script.saved(2)
    script.wait(90.0, beating=(0,))
    assert sent(script.cycle(3), control.Update, 0)
    script.checkpoint_results(3)
    alert = of(script.saved(3, error="No space left on device"), RaiseAlert)[0]
    assert alert.detail.endswith("the last good one is version 2, 90 s old")
    assert sent(script.cycle(4), control.Update, 0)


def test_ranks_are_told_which_version_is_complete():
    script = asked(1)
    script.checkpoint_results(1)
    script.saved(1)
    script.handle(CheckpointRequested("operator"))
    script.cycle(2)
    assert sent(script.said, control.Checkpoint, 0)[-1].saved_version == 1


@pytest.mark.parametrize("splits", [1, 2])
def test_saves_recur_after_as_many_passes_as_asked_for(splits):
    settings = {"checkpoint_every_epochs": 2}
    script = Script(
        (("red", 1),), n_samples=4, epochs=5, epoch_splits=splits, settings=settings
    ).start()
    cycles_an_event = 2 // splits
    versions = []
    for event in range(5 * splits):
        for number in range(cycles_an_event):
            script.cycle(event * cycles_an_event + number + 1)
        said = script.metrics(0, 4 // splits, epoch=event)
        for order in sent(said, control.Checkpoint, 0):
            versions.append(order.version)
            script.checkpoint_results(order.version)
            script.saved(order.version)
    # two cycles a pass: after 2 and 4 of 5 passes, and the last save
    assert versions == [4, 8, 10]


@pytest.mark.slow
def test_a_save_that_blocks_two_minutes_evicts_nobody():
    settings = {"stop_grace_s": 600.0}
    script = asked(2, settings=settings, progress_timeout_s=60.0)
    said = script.wait(120.0, beating=(0, 1))
    assert not of(said, EvictRank)
    assert not ends(said)
    script.checkpoint_results(1)
    script.batch(0)
    script.batch(1)
    for rank in (0, 1):
        script.ready(rank, 2)
    script.rounds(2, [tally(0), tally(1)])
    script.ack(0, 2)
    assert sent(script.ack(1, 2), control.Update, 0)
    script.batch(0)
    script.batch(1)
    said = script.wait(120.0, beating=(0, 1))
    assert not of(said, EvictRank)
    assert len(sent(script.saved(1), control.RequestParams)) == 2


def lost_all(script):
    script.lose(0)
    script.lose(1)


def lost_too_many(script):
    script.lose(1)


def stalled(script):
    script.batch(0)
    script.batch(1)
    script.wait(301.0, beating=(0, 1))


def never_finite(script):
    for number in (1, 2, 3):
        script.batch(0)
        script.batch(1)
        bad = [tally(rank, n=0, declared=True) for rank in (0, 1)]
        script.end(number, Round.CONTROL, RoundOutcome.UNREALIZED, (), bad)
        script.ack(0, number, SyncOutcome.UNREALIZED)
        script.ack(1, number, SyncOutcome.UNREALIZED)


def stopped_by_somebody(script):
    script.cycle(1)
    script.handle(StopRequested(StopKind.SAVE, 4, "SIGTERM"))
    script.wait(26.0, beating=(0, 1))


def asked_by_somebody(script):
    script.handle(CheckpointRequested("operator"))
    script.cycle(1)
    script.checkpoint_results(1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deed", "reason", "code"),
    [
        (asked_by_somebody, "checkpoint", None),
        (stopped_by_somebody, "graceful_shutdown", 4),
        (lost_all, "all_ranks_lost", 1),
        (lost_too_many, "max_failure_exceeded", 1),
        (stalled, "reduce_stall", 1),
        (never_finite, "non_finite", 1),
    ],
)
def test_every_reason_for_a_save_is_in_the_bundle_and_in_the_end(deed, reason, code):
    settings = {"max_failure": 1} if deed is lost_too_many else {}
    script = Script((("red", 2),), n_samples=24, settings=settings).start()
    deed(script)
    save = of(script.said, SaveBundle)[0]
    assert save.reason == reason
    script.saved(save.version)
    for rank in (0, 1):
        script.exiting(rank)
    end = ends(script.said)
    assert (end.exit_code if end else None) == code
    if code == 1:
        assert end.reason == reason


def pinned():
    """Two ranks in windows of one batch and three, for good."""
    cadence = CadenceSettings(elche=ElcheSettings(pinned_counts=(1, 3)))
    script = Script(
        (("red", 2),), n_samples=40, mode=Mode.CPU_CADENCE, settings={"cadence": cadence}
    )
    return script.start()


@pytest.mark.parametrize("is_stop", [True, False])
def test_with_pinned_counts_a_window_is_finished_before_a_save_and_not_cut(is_stop):
    script = pinned()
    script.batch(0)
    script.batch(1)
    wish = StopRequested(StopKind.SAVE, 4, "SIGTERM") if is_stop else CheckpointRequested("console")
    assert not sent(script.handle(wish), control.Cut)
    script.batch(1)
    assert len(sent(script.batch(1), control.RequestParams)) == 2
    script.ready(0, 1, n=1, samples=2)
    script.ready(1, 1, n=3, samples=6)
    script.rounds(1, [tally(0, n=1, samples=2), tally(1, n=3, samples=6)])
    script.ack(0, 1)
    assert len(sent(script.ack(1, 1), control.Checkpoint)) == 2


def saved_with_files(script, version, ranks=(0, 1)):
    """Ranks have written their files of a version, and the bundle is complete."""
    for rank in ranks:
        script.checkpoint_result(rank, version, rank_file=rank_file(rank))
    return script.saved(version)


def barren(script, number):
    """A cycle in which no rank has finite values."""
    for rank in (0, 1):
        script.batch(rank)
    for rank in (0, 1):
        script.ready(rank, number, n=0, samples=2)
    tallies = [tally(rank, n=0, samples=2, declared=True) for rank in (0, 1)]
    said = script.rounds(number, tallies)
    for rank in (0, 1):
        said += script.ack(rank, number, SyncOutcome.UNREALIZED)
    return said


def test_a_version_that_is_saved_again_without_answers_names_the_files_that_are_there():
    script = asked(ranks=2)
    saved_with_files(script, 1)
    script.lose(0)
    last = of(script.lose(1), SaveBundle)[0]
    assert (last.version, last.rank_files) == (1, (rank_file(0), rank_file(1)))


def test_another_version_names_no_files_of_the_one_before():
    script = asked(ranks=2)
    saved_with_files(script, 1)
    script.cycle(2)
    script.lose(0)
    last = of(script.lose(1), SaveBundle)[0]
    assert (last.version, last.rank_files) == (2, ())


def test_after_an_average_without_finite_values_no_rank_writes_over_its_good_file():
    script = asked(ranks=2)
    saved_with_files(script, 1)
    script.handle(CheckpointRequested("operator"))
    orders = sent(barren(script, 2), control.Checkpoint)
    assert [(order.version, order.with_rank_files) for _, order in orders] == [(1, False)] * 2
    said = script.checkpoint_results(1)
    assert of(said, SaveBundle)[0].rank_files == (rank_file(0), rank_file(1))
    script.saved(1)
    # the next average is well again, and so are the files
    script.handle(CheckpointRequested("operator"))
    orders = sent(script.cycle(3), control.Checkpoint)
    assert [(order.version, order.with_rank_files) for _, order in orders] == [(3, True)] * 2
