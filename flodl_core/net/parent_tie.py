"""A child's first act: tie its life to its parent's, by two independent roads.

The kernel kills the child when the parent's thread that started it ends
(PR_SET_PDEATHSIG, Linux), and a thread sees the end of a pipe that only the
parent holds open. It runs in ranks, relays and agents, before anything else,
and starts no process itself (`flodl_core.net.children` does).
"""

import ctypes
import os
import signal
import threading
from collections.abc import Callable, Mapping
from typing import Final

from flodl_core.errors import LocalProtocolError
from flodl_core.ids import ExitCode

PARENT_PID_VARIABLE: Final = "FLODL_CHILD_PARENT_PID"
LIVENESS_FD_VARIABLE: Final = "FLODL_CHILD_LIVENESS_FD"

_PR_SET_PDEATHSIG: Final = 1


def tie_to_parent(
    parent_pid: int, liveness_fd: int, *, on_gone: Callable[[], None] | None = None
) -> None:
    """Make this process end with its parent, and deaf to Ctrl-C. Main thread only.

    Args:
        parent_pid: who started this process.
        liveness_fd: read end of a pipe whose write end only the parent holds.
        on_gone: called, on a thread of its own, when the pipe ends; by default
            the process exits at once.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    leave = on_gone or _leave
    die_with_parent()
    if os.getppid() != parent_pid:
        leave()
        return
    watch_parent(liveness_fd, leave)


def tie_from_environment(
    environ: Mapping[str, str], *, on_gone: Callable[[], None] | None = None
) -> None:
    """Do the same with what `children.spawn` left in the environment.

    Raises:
        LocalProtocolError: this process was not started by `children.spawn`.
    """
    try:
        parent_pid = int(environ[PARENT_PID_VARIABLE])
        liveness_fd = int(environ[LIVENESS_FD_VARIABLE])
    except (KeyError, ValueError) as error:
        raise LocalProtocolError(
            "this process is one of flodl's own children and was started by hand",
            fix="start `flodl headless` or `flodl join`.",
        ) from error
    tie_to_parent(parent_pid, liveness_fd, on_gone=on_gone)


def die_with_parent() -> None:
    """Ask the kernel for SIGKILL at the end of the thread that started this process, if it can.

    The parent may be gone already: compare its id afterwards.
    """
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def watch_parent(liveness_fd: int, leave: Callable[[], None]) -> None:
    """Call `leave`, on a thread of its own, at the end of the pipe that only the parent holds."""
    threading.Thread(
        target=_watch, args=(liveness_fd, leave), name="parent watch", daemon=True
    ).start()


def _watch(liveness_fd: int, leave: Callable[[], None]) -> None:
    try:
        while os.read(liveness_fd, 64):
            pass
    except OSError:
        pass
    leave()


def _leave() -> None:
    os._exit(ExitCode.JOIN_RUN_LOST)
