"""A run is live while its launcher lives, also where a file system has no locks."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flodl_core.telemetry.live_lock import HeldError, LiveLock, is_held


def no_locks(descriptor: int, operation: int) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


def ended_process() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_without_locks_a_file_is_held_while_the_process_that_it_names_lives(tmp_path):
    path = tmp_path / "live"
    lock = LiveLock(path, flock=no_locks)
    assert path.read_text() == f"{os.getpid()}\n"
    assert is_held(path, flock=no_locks)
    with pytest.raises(HeldError):
        LiveLock(path, flock=no_locks)
    lock.close()
    assert not is_held(path, flock=no_locks)


def test_without_locks_a_run_that_was_killed_is_not_live(tmp_path):
    path = tmp_path / "live"
    path.write_text(f"{ended_process()}\n")
    assert not is_held(path, flock=no_locks)
    LiveLock(path, flock=no_locks).close()


@pytest.mark.parametrize("text", ["", "x\n", "0\n", "-1\n", "9" * 30 + "\n"])
def test_without_locks_a_file_that_names_nobody_is_free(tmp_path, text):
    path = tmp_path / "live"
    path.write_text(text)
    assert not is_held(path, flock=no_locks)


def test_closing_without_locks_leaves_when_the_run_began(tmp_path):
    path = tmp_path / "live"
    lock = LiveLock(path, flock=no_locks)
    os.utime(path, ns=(5, 5))
    lock.close()
    assert path.stat().st_mtime_ns == 5


def test_with_locks_the_number_of_a_living_process_alone_holds_nothing(tmp_path):
    path = tmp_path / "live"
    path.write_text(f"{os.getpid()}\n")
    assert not is_held(path)
    lock = LiveLock(path)
    assert is_held(path)
    lock.close()


def test_a_file_that_cannot_be_written_is_told():
    with pytest.raises(OSError, match=r"Invalid argument|No space"):
        LiveLock(Path("/dev/full"))
