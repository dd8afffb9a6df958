"""Somebody ends a run, or asks it for a checkpoint, while it trains."""

import shutil
import signal

import pytest
from aftermath import meta_of
from harness import SHORT_S, Launched
from safetensors.numpy import load_file

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(240)]

ENDLESS = ("synthetic", "--epochs", "100000", "--job-arg", "params=100", "--step-ms", "50")
"""Trains until somebody ends it."""

STUCK = ("synthetic", "--epochs", "2", "--step-ms", "600000", "--job-arg", "params=100")
"""Its first step takes ten minutes."""


@pytest.fixture(scope="module")
def runs(launch_ahead) -> dict[str, Launched]:
    """A run for each test, all of which go on until they are ended."""
    alone = ("--ranks", "1")
    far = ("--hosts", "2", "--ranks-per-host", "1", "--checkpoint-every-s", "0")
    return {
        "asked for a checkpoint": launch_ahead(*ENDLESS, *far),
        "terminated": launch_ahead(*ENDLESS, *alone),
        "interrupted twice": launch_ahead(*STUCK, *alone),
        "out of grace": launch_ahead(*STUCK, *alone, "--stop-grace-s", "1"),
        "ended at once": launch_ahead(*STUCK, *alone),
        "not saved": launch_ahead(*ENDLESS, *alone, "--save-path", "out/model"),
    }


def check_saved(run: Launched, *, at_least_version: int = 1) -> None:
    """The bundle is of a commit and says that somebody stopped the run."""
    meta = meta_of(run.stem)
    assert meta["reason"] == "graceful_shutdown"
    assert meta["sync_round"] >= at_least_version
    assert meta["sync_round"] == run.summary["syncs"]
    assert meta["samples_trained"] == run.summary["samples_trained"]
    assert load_file(f"{run.stem}.safetensors")["linear.weight"].shape == (1, 16)
    assert run.summary["checkpoint"] == f"{run.stem}.safetensors"


def test_a_checkpoint_a_hangup_and_an_interrupt(runs) -> None:
    run = runs["asked for a checkpoint"]
    run.until_trained(1)
    assert not run.stem.with_suffix(".meta.json").exists()
    said = run.flodl("checkpoint")
    assert said.code == 0, said
    assert "checkpoint requested" in said.out
    run.until_said("saved", "consensus.safetensors")
    taken = meta_of(run.stem)
    assert taken["reason"] == "checkpoint"
    assert taken["coverage"]["per_epoch"][0]["uncovered_ranges"]

    run.signal(signal.SIGHUP)
    before = run.document["training"]["samples_done"]
    run.until_trained(before + 1)

    run.signal(signal.SIGINT)
    assert run.finish() == 130
    run.check_quiet()
    check_saved(run, at_least_version=taken["sync_round"] + 1)
    assert run.summary["reason"] == "stopped"
    assert run.stem.with_name("consensus.prev.meta.json").exists()


def test_a_terminate_signal_finishes_the_window_and_saves(runs) -> None:
    run = runs["terminated"]
    run.until_trained(1)
    run.signal(signal.SIGTERM)
    assert run.finish() == 4
    run.check_quiet()
    check_saved(run)
    assert "SIGTERM" in run.summary["detail"]


def test_a_second_signal_ends_at_once(runs) -> None:
    run = runs["interrupted twice"]
    run.until("it trains", lambda: is_training(run))
    run.signal(signal.SIGINT)
    run.until_said("note", "once more: at once")
    run.signal(signal.SIGINT)
    assert run.finish(SHORT_S) == 5
    run.check_quiet()
    assert "at once by SIGINT" in run.summary["detail"]


def test_a_stop_by_command_past_its_grace_saves_what_is_committed(runs) -> None:
    run = runs["out of grace"]
    run.until("it trains", lambda: is_training(run))
    said = run.flodl("stop")
    assert said.code == 0, said
    assert "finishing the window" in said.out
    assert run.finish(SHORT_S) == 4
    run.check_quiet()
    check_saved(run, at_least_version=0)
    assert run.summary["samples_trained"] == 0


def test_a_stop_now_by_command_ends_at_once(runs) -> None:
    run = runs["ended at once"]
    run.until("it trains", lambda: is_training(run))
    said = run.flodl("stop", "--now")
    assert said.code == 0, said
    assert run.finish(SHORT_S) == 5
    run.check_quiet()
    assert "at once by operator" in run.summary["detail"]


def test_an_interrupt_before_the_window_opens_leaves_nothing(launch) -> None:
    run = launch(*ENDLESS, "--ranks", "1")
    run.process("inspector")
    run.signal(signal.SIGINT)
    assert run.finish(SHORT_S) == 130
    assert not list(run.place.glob("runs/*"))
    assert "Traceback" not in run.stderr


def test_a_last_save_that_fails_has_an_exit_code_of_its_own(runs) -> None:
    run = runs["not saved"]
    run.until_trained(1)
    shutil.rmtree(run.place / "out")
    (run.place / "out").write_text("a file where a folder was")
    run.signal(signal.SIGTERM)
    assert run.finish() == 5
    run.check_quiet()
    assert "the last save failed" in run.summary["detail"]
    own_file, bundle = run.texts("alert")
    assert "a resume gives it a fresh optimizer" in own_file
    assert "was not saved" in bundle
    assert run.summary["alerts"] == {"save_failed": 2}


def is_training(run: Launched) -> bool:
    """Whether some rank is in its step."""
    return any(row["state"] == "training" for row in run.document.get("ranks", ()))
