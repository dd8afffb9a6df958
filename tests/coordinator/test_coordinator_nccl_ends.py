"""How a run on NCCL is saved and ends: the launcher has no values but what ranks bring it."""

import pytest
from coordinator_script import SaveBundle, Script, control, ends, of, sent

from flodl_core.coordinator.events import CheckpointRequested, StopKind, StopRequested
from flodl_core.ids import Mode, SyncOutcome


def with_session(ranks: int = 2, n_samples: int = 24) -> Script:
    """Ranks whose communicator is formed."""
    script = Script((("red", ranks),), mode=Mode.NCCL_SYNC, n_samples=n_samples).start()
    script.form_session()
    return script


def one_save(script: Script, version: int, publish: int) -> None:
    """All ranks answer a save's order; the lowest has brought the consensus."""
    script.checkpoint_results(version)
    (bundle,) = of(script.said, SaveBundle)
    assert (bundle.version, bundle.held_as) == (version, publish)


def averaged(script: Script, cycle: int) -> None:
    for rank in range(script.world):
        script.batch(rank)
    for rank in range(script.world):
        script.ready(rank, cycle)
    for rank in range(script.world):
        script.ack(rank, cycle)


def saved() -> Script:
    """Two ranks whose newest commit, version 1, is saved from the root's cycle 1."""
    script = with_session()
    script.handle(CheckpointRequested("operator"))
    averaged(script, 1)
    one_save(script, 1, 1)
    script.saved(1)
    return script


def stop() -> StopRequested:
    return StopRequested(StopKind.SAVE, 4, "SIGTERM")


def ended(script: Script) -> tuple[int, str]:
    for rank in range(script.world):
        script.exiting(rank)
    end = ends(script.said)
    assert end is not None
    return end.exit_code, end.detail


def test_a_stop_whose_grace_passes_after_the_newest_commit_was_saved_ends_as_saved() -> None:
    script = saved()
    script.forget()
    script.handle(stop())
    assert not sent(script.wait(24.9, beating=(0, 1)), control.ShutdownWithSave)
    said = script.wait(0.2, beating=(0, 1))
    assert not of(script.said, SaveBundle)
    assert len(sent(said, control.ShutdownWithSave)) == 2
    assert ended(script) == (4, "stopped by SIGTERM and saved")


def test_ranks_that_do_not_bring_it_again_leave_a_commit_as_saved_as_it_is() -> None:
    """The run is over, and its last commit is asked for once more, in vain."""
    script = with_session(n_samples=4)
    script.handle(CheckpointRequested("operator"))
    averaged(script, 1)
    one_save(script, 1, 1)
    script.saved(1)
    script.forget()
    for rank in range(2):
        script.metrics(rank, 2)
    assert len(sent(script.said, control.Checkpoint)) == 2
    for rank in range(2):
        script.lose(rank)
    assert not of(script.said, SaveBundle)
    end = ends(script.said)
    assert end is not None
    assert (end.exit_code, end.reason) == (0, "finished")


def test_a_commit_that_ranks_bring_again_is_written_again() -> None:
    script = with_session(n_samples=4)
    script.handle(CheckpointRequested("operator"))
    averaged(script, 1)
    one_save(script, 1, 1)
    script.saved(1)
    for rank in range(2):
        script.metrics(rank, 2)
    script.forget()
    one_save(script, 1, 2)
    script.saved(1)
    assert ended(script)[0] == 0


def test_a_failure_after_the_newest_commit_was_saved_says_nothing_of_a_save_that_failed() -> None:
    script = saved()
    script.forget()
    script.lose(0)
    script.lose(1)
    assert not of(script.said, SaveBundle)
    end = ends(script.said)
    assert end is not None
    assert (end.exit_code, end.reason) == (1, "all_ranks_lost")
    assert "the last save failed" not in end.detail


def test_a_commit_that_nobody_brought_is_not_saved_and_the_exit_code_says_so() -> None:
    script = saved()
    averaged(script, 2)
    script.forget()
    script.handle(stop())
    script.wait(25.1, beating=(0, 1))
    assert [(one.version, one.held_as) for one in of(script.said, SaveBundle)] == [(2, -1)]
    script.saved(2, "no rank brought version 2 to the launcher")
    assert ended(script)[0] == 5


@pytest.mark.parametrize(("version", "held_as"), [(0, 0), (1, -1)])
def test_before_any_save_the_launcher_has_what_the_run_began_with(
    version: int, held_as: int
) -> None:
    script = with_session()
    for cycle in range(1, version + 1):
        averaged(script, cycle)
    script.handle(stop())
    script.wait(25.1, beating=(0, 1))
    assert [(one.version, one.held_as) for one in of(script.said, SaveBundle)] == [
        (version, held_as)
    ]


def test_what_was_brought_last_is_written_from_there_if_its_bundle_was_not_complete() -> None:
    """In the first window nobody takes a step, so that what the run began with is brought anew."""
    script = with_session()
    script.handle(CheckpointRequested("operator"))
    for rank in range(2):
        script.batch(rank)
    for rank in range(2):
        script.ready(rank, 1, n=0)
    for rank in range(2):
        script.ack(rank, 1, SyncOutcome.UNREALIZED)
    one_save(script, 0, 1)
    script.saved(0, "No space left on device")
    script.forget()
    script.handle(stop())
    script.wait(25.1, beating=(0, 1))
    assert [(one.version, one.held_as) for one in of(script.said, SaveBundle)] == [(0, 1)]


def test_answers_to_an_order_that_was_given_up_do_not_stand_for_a_later_one() -> None:
    """The later one's cycle of the root is not over before all have answered that one too."""
    script = with_session(ranks=3, n_samples=6)
    script.handle(CheckpointRequested("operator"))
    averaged(script, 1)
    for rank in (1, 2):
        script.metrics(rank, 2)
    script.lose(0)
    assert [one.publish for one in sent(script.said, control.Checkpoint, 1)][-2:] == [1, 2]
    for rank in (1, 2):
        script.checkpoint_result(rank, 1)
    assert not of(script.said, SaveBundle)
    script.checkpoint_result(1, 1)
    (bundle,) = of(script.checkpoint_result(2, 1), SaveBundle)
    assert bundle.held_as == 2
