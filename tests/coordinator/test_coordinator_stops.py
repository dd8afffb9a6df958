"""A stop beside other ends: one that the run orders itself, a failure, an end that is under way."""

import pytest
from coordinator_script import Announce, SaveBundle, Script, codes, control, ends, of, sent

from flodl_core.coordinator.events import StopKind, StopRequested
from flodl_core.ids import Mode

NOT_SAVED = 5


def stop(kind=StopKind.SAVE, code=130):
    return StopRequested(kind, code, "SIGINT")


def topics(effects):
    return [effect.topic for effect in of(effects, Announce)]


# a stop of the run's own: one rank is left, or too many were lost


def alone(mode=Mode.NCCL_SYNC, **settings):
    """Of two ranks one is lost; NCCL needs two, so that the run stops after an average."""
    script = Script((("red", 2),), n_samples=24, mode=mode, settings=settings).start()
    script.form_session()
    script.lose(1)
    script.forget()
    return script


@pytest.mark.parametrize("settings", [{}, {"max_failure": 1}])
def test_a_stop_that_somebody_asks_for_takes_the_place_of_the_runs_own(settings):
    script = alone(**settings)
    said = script.wait(30.0, beating=(0,))
    assert not of(said, SaveBundle)  # its own may take its time
    script.forget()
    assert topics(script.handle(stop())) == ["stop_requested"]
    waits = [(one.age_s, one.ceiling_s) for one in script.machine.view(script.now + 6.0).waits]
    assert (6.0, 25.0) in waits
    assert codes(script.handle(stop())) == ["stop_already_requested"]
    assert not of(script.wait(25.0, beating=(0,)), SaveBundle)
    (bundle,) = of(script.wait(0.1, beating=(0,)), SaveBundle)
    assert (bundle.version, bundle.reason) == (0, "graceful_shutdown")
    script.saved(0)
    end = ends(script.exiting(0))
    assert (end.exit_code, end.reason) == (130, "stopped")
    assert end.detail == "stopped by SIGINT and saved"


def test_a_stop_of_the_runs_own_leaves_one_that_somebody_asked_for_as_it_is():
    script = Script((("red", 2),), n_samples=24, mode=Mode.NCCL_SYNC).start()
    script.handle(stop())
    script.wait(20.0, beating=(0, 1))
    script.lose(1)
    assert of(script.wait(5.1, beating=(0,)), SaveBundle)
    script.saved(0)
    assert ends(script.exiting(0)).exit_code == 130


# a failure before anything was committed


@pytest.mark.parametrize("mode", [Mode.NCCL_SYNC, Mode.NCCL_CADENCE])
def test_a_run_that_stops_by_itself_and_fails_before_its_first_commit_has_failed(mode):
    script = Script((("red", 2),), n_samples=24, mode=mode).rendezvous()
    script.lose(1, "signal 11")
    end = ends(script.lose(0, "signal 11"))
    assert (end.exit_code, end.reason) == (1, "initial_broadcast_failed")


def test_a_stop_that_somebody_asked_for_keeps_its_code_if_the_run_fails_before_a_commit():
    script = Script((("red", 2),), n_samples=24, mode=Mode.NCCL_SYNC).rendezvous()
    script.handle(stop())
    script.lose(1, "signal 11")
    assert ends(script.lose(0, "signal 11")).exit_code == 130


# a stop at once, while ranks leave


def leaving(error=None):
    """A run that was stopped and saved, unless that failed, and whose rank 1 is slow to leave."""
    script = Script((("red", 2),), n_samples=24).start()
    script.handle(stop())
    script.cycle(1)
    script.checkpoint_results(1)
    assert len(sent(script.saved(1, error), control.ShutdownWithSave)) == 2
    assert not ends(script.exiting(0))
    return script


def test_a_stop_at_once_while_ranks_leave_ends_a_saved_run_as_saved():
    script = leaving()
    said = script.handle(stop(StopKind.NOW, NOT_SAVED))
    end = ends(said)
    assert (end.exit_code, end.reason) == (130, "stopped")
    assert end.detail == "stopped by SIGINT and saved"
    (note,) = [one for one in said if getattr(one, "code", "") == "did_not_leave"]
    assert note.fields == {"ranks": "1"}


def test_a_stop_at_once_while_ranks_leave_a_run_that_was_not_saved_says_so():
    script = leaving("No space left on device")
    assert ends(script.handle(stop(StopKind.NOW, NOT_SAVED))).exit_code == NOT_SAVED


def test_a_stop_at_once_while_the_last_save_is_written_leaves_it_unsaved():
    script = Script((("red", 2),), n_samples=24).start()
    script.handle(stop())
    script.cycle(1)
    script.checkpoint_results(1)
    end = ends(script.handle(stop(StopKind.NOW, NOT_SAVED)))
    assert (end.exit_code, end.detail) == (NOT_SAVED, "stopped at once by SIGINT")
