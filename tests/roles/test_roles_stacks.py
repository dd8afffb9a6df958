"""One line of what faulthandler printed: where a stuck rank is in its own code."""

import faulthandler
import tempfile
import threading
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from flodl_core.roles.stacks import summarize_stack

LIB = "/usr/lib/python3.11"
PACKAGES = f"{LIB}/site-packages"


def block(head: str, *frames: tuple[str, int, str]) -> str:
    lines = [f'  File "{file}", line {line} in {name}' for file, line, name in frames]
    return "\n".join([f"{head} (most recent call first):", *lines, ""])


WAITS = (f"{LIB}/threading.py", 327, "wait")
WORKER = ("/env/flodl_core/training/worker.py", 270, "_train")
BRIDGE = block("Thread 0x1", (f"{LIB}/selectors.py", 468, "select"), WORKER)


def test_the_training_thread_is_told_by_its_innermost_frames() -> None:
    text = BRIDGE + block(
        "Current thread 0x2",
        ("project/job.py", 31, "slow_loss"),
        ("project/job.py", 12, "step"),
        WORKER,
    )
    assert summarize_stack(text) == "slow_loss (job.py:31) ← step (job.py:12)"


def test_the_jobs_frame_is_told_under_those_of_a_library() -> None:
    deep = [(f"{PACKAGES}/torch/nn/module.py", number, f"call{number}") for number in range(6)]
    text = block("Thread 0x2", *deep, ("project/job.py", 12, "step"), WORKER)
    assert summarize_stack(text) == "call0 (module.py:0) ← step (job.py:12)"


def test_a_reader_beside_it_that_is_in_the_jobs_code_is_told_too() -> None:
    text = block("Thread 0x3", ("project/data.py", 9, "__getitem__"), WAITS)
    text += BRIDGE
    text += block("Thread 0x2", WAITS, ("/env/flodl_core/training/read_ahead.py", 130, "take"))
    assert summarize_stack(text) == (
        "wait (threading.py:327) ← take (read_ahead.py:130); beside it __getitem__ (data.py:9)"
    )


def test_nothing_is_told_where_nothing_was_printed() -> None:
    assert summarize_stack("") == ""
    assert summarize_stack("a job's own words\n") == ""


@given(st.text())
def test_any_text_gives_a_line(text: str) -> None:
    assert "\n" not in summarize_stack(text)


def test_what_the_interpreter_prints_is_understood() -> None:
    ready, go_on = threading.Event(), threading.Event()

    def read_a_sample() -> None:
        ready.set()
        go_on.wait()

    reader = threading.Thread(target=read_a_sample)
    reader.start()
    ready.wait()
    with tempfile.TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        told = summarize_stack(file.read())
    go_on.set()
    reader.join()
    assert f"({Path(__file__).name}:" in told
    assert "read_a_sample" in told
