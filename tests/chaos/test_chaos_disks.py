"""Disks that are full, read-only, slow or hang, and what a killed run left on one."""

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from aftermath import meta_of
from chaos_world import EVERY_RANK, PASSES, SAMPLES
from harness import SHORT_S

from flodl_core.checkpoint.bundle import find_bundle

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(150)]

MOUNT = shutil.which("mount")
NEEDS_MOUNT = pytest.mark.skipif(
    os.geteuid() != 0 or MOUNT is None, reason="a small file system needs root and mount"
)
FOUR_MB = 1_000_000
"""Parameters of a bundle that fits twice into ten megabytes, and not three times."""
LONG = ("--epochs", "4", "--checkpoint-every-epochs", "1")
HEARTBEAT_S = 2.0
BLOCKED_S = 5 * HEARTBEAT_S
HANGS_S = 4.0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of ten megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=10m", "flodl-chaos", str(place)],
        capture_output=True,
        text=True,
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@NEEDS_MOUNT
def test_a_full_disk_is_told_with_the_age_of_the_last_good_checkpoint(start, small_disk) -> None:
    stem = small_disk / "model"
    words = (*LONG, "--keep-checkpoints", "3", "--save-path", str(stem))
    world = start(*words, options={"params": FOUR_MB})
    told = world.run.until_said("alert", "save_failed", SHORT_S)
    assert "No space left on device" in told
    assert "the last good one is version" in told
    assert world.finish() == 5
    world.check_whole(passes=4)
    assert "the last save failed" in world.run.summary["detail"]
    search = find_bundle(stem)
    assert search.bundle is not None
    assert 0 < search.bundle.meta.samples_trained < 4 * SAMPLES
    assert not [path for path in small_disk.iterdir() if path.name.startswith(".")]


@NEEDS_MOUNT
def test_a_disk_that_becomes_read_only_costs_the_last_save_and_nothing_else(
    start, small_disk
) -> None:
    stem = small_disk / "model"
    world = start(*LONG, "--save-path", str(stem), park="rank3:compute:10")
    world.until_parked("rank3", "compute")
    world.run.until_said("saved", "model", SHORT_S)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    world.go()
    assert world.finish() == 5
    world.check_whole(passes=4)
    assert "Read-only file system" in world.run.summary["detail"]
    search = find_bundle(stem)
    assert search.bundle is not None
    assert search.bundle.meta.samples_trained == SAMPLES
    assert not search.skipped


def test_a_save_that_is_slow_is_shown_and_evicts_nobody(start) -> None:
    words = (*LONG, "--heartbeat-timeout-s", f"{HEARTBEAT_S:g}", "--heartbeat-interval-s", "0.5")
    world = start(*words, park="launcher:saving:1")
    world.until_parked("launcher", "saving")
    threading.Event().wait(BLOCKED_S)
    phases = [row["phase"] for row in world.run.fetch_state()["waits"]]
    assert any(phase.startswith("writing the save of version") for phase in phases), phases
    world.go()
    assert world.finish() == 0
    world.check_whole(passes=4)
    world.check_survivors(EVERY_RANK)
    assert world.run.summary["alerts"] == {}


def test_a_save_that_hangs_ends_the_run_at_its_ceiling_by_name(start) -> None:
    world = start(*LONG, "--stall-timeout-s", f"{HANGS_S:g}", park="launcher:saving:1")
    world.until_parked("launcher", "saving")
    assert world.run.finish(SHORT_S, leaves_guest=True) == 1
    assert world.finish() == 1
    assert world.run.summary["reason"] == "reduce_stall"
    assert f"has not ended in {HANGS_S:g} s" in world.run.summary["detail"]


def test_a_run_ends_though_the_disk_of_its_records_does_not_answer(start, tmp_path) -> None:
    stem = tmp_path / "out" / "model"
    world = start("--save-path", str(stem), park="launcher:recording:2")
    world.until_parked("launcher", "recording")
    assert world.finish() == 0
    assert any("does not answer: no summary.json" in text for text in world.run.texts("note"))
    assert not (world.run.directory / "summary.json").exists()
    assert meta_of(stem)["samples_trained"] == PASSES * SAMPLES


def test_what_a_killed_run_left_is_cleaned_by_the_next_which_goes_on(start, tmp_path) -> None:
    stem = tmp_path / "out" / "model"
    words = ("--checkpoint-every-epochs", "1", "--save-path", str(stem))
    first = start(*words, park="rank3:compute:10")
    first.until_parked("rank3", "compute")
    first.run.until_said("saved", "model", SHORT_S)
    first.strike(first.run.launcher, signal.SIGKILL)
    first.go()
    assert first.guest_ends().code == 7
    first.run.await_all_gone(SHORT_S)
    saved = meta_of(stem)
    assert saved["samples_trained"] == SAMPLES
    for name in (".model.safetensors.part", ".model.meta.json.part", ".model.rank0.pt.part"):
        stem.with_name(name).write_bytes(b"half of it")
    second = start(*words, "--resume", str(stem))
    assert second.finish() == 0
    assert not [path for path in stem.parent.iterdir() if path.name.startswith(".")]
    assert meta_of(stem)["samples_trained"] == PASSES * SAMPLES
    assert second.check_no_sample_twice() == (PASSES - 1) * SAMPLES
    second.check_survivors(EVERY_RANK, stem)
