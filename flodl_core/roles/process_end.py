"""How a process that ran a job ends: at once, whatever threads the job left running.

What it is: a wait with a ceiling for those threads, and an end that asks nobody.
Who drives it: `rank`, `inspector` and `prober`.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from flodl_core.units import Seconds

THREADS_END_S: Seconds = 2.0
"""For threads of a job that still write when its rank is done; its host kills it at three."""


def end_process(code: int) -> NoReturn:
    """End this process at once: a thread that the job left running would keep it for ever."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def threads_left(wait_s: Seconds = THREADS_END_S, *, now: Callable[[], Seconds]) -> tuple[str, ...]:
    """Wait for threads that would keep this process; return the names of those that stay.

    Daemon threads keep no process and are left alone.

    Args:
        wait_s: for all of them together.
        now: monotonic, in seconds.
    """
    until = now() + wait_s
    keeping = [
        thread
        for thread in threading.enumerate()
        if not thread.daemon and thread is not threading.current_thread()
    ]
    for thread in keeping:
        thread.join(max(0.0, until - now()))
    return tuple(thread.name for thread in keeping if thread.is_alive())
