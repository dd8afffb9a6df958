"""Child processes: exec'd, each the leader of its own session, ended as a whole group.

Nothing is forked that goes on as Python: a child is a fresh interpreter that
gets exactly the descriptors named. The parent's main thread starts it, because
the kernel ties the child to the thread that did (see `parent_tie`). Who is
started and what its death means is the roles' business.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, TypeAlias

import anyio
import anyio.to_thread

from flodl_core.errors import LocalProtocolError
from flodl_core.net.parent_tie import LIVENESS_FD_VARIABLE, PARENT_PID_VARIABLE
from flodl_core.units import Seconds

DATA_VARIABLE: Final = "FLODL_DATA"
"""Where the job finds the directory of this host's data."""
INTERFACE_VARIABLE: Final = "NCCL_SOCKET_IFNAME"
"""NCCL's own; it is read when its library is first used in a process."""
HASH_SEED_VARIABLE: Final = "PYTHONHASHSEED"
HASH_SEED: Final = "0"
"""Of every process that builds the job: a set of texts has the same order in all of them."""

EVICTION_S: Final = 10.0
"""From the polite signal to SIGKILL."""

UNKILLABLE_S: Final = 10.0
"""From SIGKILL to the moment a process that has not ended is left behind."""

Output: TypeAlias = int | IO[bytes] | None
"""Where a child's stream goes: a descriptor, an open file, or this process's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitStatus:
    """How a child ended."""

    code: int
    """Its exit code, or minus the signal number."""
    signal: str | None
    """Name of the signal that ended it, such as SIGKILL."""

    def __str__(self) -> str:
        """Return `exit code 3` or `SIGKILL`."""
        return self.signal or f"exit code {self.code}"


class Child:
    """One child process and its group. Await `wait` once at least, or nobody reaps it."""

    def __init__(self, process: "subprocess.Popen[bytes]", liveness: int) -> None:
        self._process = process
        self._liveness = liveness
        self._status: ExitStatus | None = None
        self._pidfd = _open_pidfd(process.pid)
        self._turn = anyio.Lock()

    @property
    def pid(self) -> int:
        """Its process id, which is its group's and session's too."""
        return self._process.pid

    @property
    def status(self) -> ExitStatus | None:
        """How it ended; None while it runs or has not been waited for."""
        return self._status

    async def wait(self) -> ExitStatus:
        """Wait for its end; whatever is left of its group is killed then. Repeatable."""
        async with self._turn:
            if self._status is None:
                await self._wait_ended()
                self._reap()
        assert self._status is not None
        return self._status

    def kill_group(self) -> None:
        """Send SIGKILL to the child and everything it started that stayed in its group."""
        self._signal_group(signal.SIGKILL)

    async def terminate_group(self, grace_s: Seconds = EVICTION_S) -> bool:
        """Send SIGTERM, and SIGKILL after `grace_s`; return whether the child has ended."""
        self._signal_group(signal.SIGTERM)
        with anyio.move_on_after(grace_s):
            await self.wait()
            return True
        self.kill_group()
        return await await_killed(self.wait)

    async def _wait_ended(self) -> None:
        """Return once the child has ended; it is not reaped, so its group id is still its own."""
        if self._pidfd is not None:
            await anyio.wait_readable(self._pidfd)
        else:
            await anyio.to_thread.run_sync(
                os.waitid, os.P_PID, self.pid, os.WEXITED | os.WNOWAIT, abandon_on_cancel=True
            )

    def _reap(self) -> None:
        self._signal_group(signal.SIGKILL)
        code = self._process.wait()
        name = signal.Signals(-code).name if code < 0 else None
        self._status = ExitStatus(code=code, signal=name)
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None
        if self._liveness >= 0:
            os.close(self._liveness)
            self._liveness = -1

    def _signal_group(self, number: signal.Signals) -> None:
        if self._status is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


async def await_killed(
    wait: Callable[[], Awaitable[object]], *, ceiling_s: Seconds = UNKILLABLE_S
) -> bool:
    """Wait for the end of what was killed, also where the caller is cancelled.

    A process that is stuck in the kernel, in the driver of a GPU that has fallen off its bus or
    in a disk that has stopped answering, ends when that lets go of it, which may be never.

    Args:
        wait: returns when it has ended.
        ceiling_s: how long that may take.

    Returns:
        Whether it has ended; the system ends the rest.
    """
    with anyio.move_on_after(ceiling_s, shield=True):
        await wait()
        return True
    return False


def spawn(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    pass_fds: Sequence[int] = (),
    stdout: Output = None,
    stderr: Output = None,
    stdin: Output = subprocess.DEVNULL,
) -> Child:
    """Start a child in its own session. Main thread only.

    Args:
        argv: program and arguments; no shell.
        env: its whole environment; who its parent is and the liveness pipe's
            number are added, for `parent_tie`.
        pass_fds: descriptors it gets under the same numbers; they stay open
            here. Every other descriptor is closed in it.
        stdout: None is this process's own.
        stderr: None is this process's own.
        stdin: nothing to read, unless a descriptor is given.

    Raises:
        LocalProtocolError: another thread called.
        OSError: the program cannot be started.
    """
    if threading.current_thread() is not threading.main_thread():
        raise LocalProtocolError(
            "a child was started from a thread that may end before the child does",
            fix="start children from the main thread.",
        )
    read_end, write_end = os.pipe()
    try:
        process = subprocess.Popen(
            list(argv),
            env={
                **env,
                PARENT_PID_VARIABLE: str(os.getpid()),
                LIVENESS_FD_VARIABLE: str(read_end),
            },
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=(*pass_fds, read_end),
            start_new_session=True,
        )
    except BaseException:
        os.close(write_end)
        raise
    finally:
        os.close(read_end)
    return Child(process, write_end)


def python_command(module: str, *words: str) -> list[str]:
    """Return the command that runs a module of ours in a fresh interpreter.

    The working directory is not on its search path, so that a file there cannot take the
    name of a standard or installed module.
    """
    return [sys.executable, "-P", "-m", module, *words]


def own_environment() -> dict[str, str]:
    """Return a copy of this process's environment, to be handed to a child or looked at."""
    return dict(os.environ)


def job_environment(data: Path | None, *, interface: str | None = None) -> dict[str, str]:
    """Return the same for a child that builds the job, with where this host keeps its data.

    Texts hash alike in all such children, unless the environment says otherwise.

    Args:
        data: this host's directory of data; None leaves what the environment says.
        interface: what NCCL is to use between hosts, likewise.
    """
    env = own_environment()
    if not env.get(HASH_SEED_VARIABLE):
        env[HASH_SEED_VARIABLE] = HASH_SEED
    if data is not None:
        env[DATA_VARIABLE] = str(data.absolute())
    if interface is not None:
        env[INTERFACE_VARIABLE] = interface
    return env


def _open_pidfd(pid: int) -> int | None:
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
