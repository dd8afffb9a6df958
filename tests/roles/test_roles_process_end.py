"""A process that ran a job waits a little for the job's threads, then ends whatever is left."""

import itertools
import subprocess
import sys
import threading
import time

import pytest

from flodl_core.roles.process_end import threads_left


@pytest.fixture
def release():
    event = threading.Event()
    yield event
    event.set()


def left_running(release: threading.Event, name: str, *, daemon: bool = False) -> threading.Thread:
    thread = threading.Thread(target=release.wait, name=name, daemon=daemon)
    thread.start()
    return thread


def test_a_thread_that_stays_is_named_and_a_daemon_is_left_alone(release) -> None:
    left_running(release, "my writer")
    left_running(release, "my reader", daemon=True)
    assert threads_left(0.05, now=time.monotonic) == ("my writer",)


def test_a_thread_that_ends_in_time_keeps_nothing(release) -> None:
    thread = left_running(release, "my writer")
    threading.Timer(0.05, release.set).start()
    assert threads_left(10.0, now=time.monotonic) == ()
    assert not thread.is_alive()


def test_the_ceiling_is_one_for_all_threads(release) -> None:
    """The clock of this test is past it once the first thread is asked for."""
    for number in range(4):
        left_running(release, f"writer {number}")
    clock = itertools.chain([0.0], itertools.repeat(2000.0))
    assert len(threads_left(1000.0, now=lambda: next(clock))) == 4


@pytest.mark.slow
def test_a_process_ends_with_its_code_and_its_last_words_in_spite_of_a_thread() -> None:
    script = (
        "import threading; from flodl_core.roles.process_end import end_process\n"
        "threading.Thread(target=threading.Event().wait).start()\n"
        "print('last words', end=''); end_process(7)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (7, b"last words")
