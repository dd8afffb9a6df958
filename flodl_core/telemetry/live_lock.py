"""The lock of a run that goes on: it is freed however its launcher ends.

What it is: a lock on a file with the launcher's process id in it. A file system without locks
(Lustre without its option, some FUSE mounts) gets the process id alone, which is as good on
one host while no process has taken a dead launcher's number.
What it is not: the directory, or what is said where a run holds it.
Who drives it: `run_directory`.
"""

import contextlib
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Flock: TypeAlias = Callable[[int, int], None]


class HeldError(Exception):
    """A live run holds the file."""


class LiveLock:
    """A held lock; a lock that was not closed goes with its process.

    Args:
        path: the file, made where it is missing.
        flock: locks a descriptor, as `fcntl.flock`.

    Raises:
        HeldError: another holds it.
        OSError: the file cannot be made or written.
    """

    def __init__(self, path: Path, *, flock: Flock = fcntl.flock) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._is_locked = _takes(self._fd, fcntl.LOCK_EX, flock)
            if not self._is_locked and _holder_lives(self._fd):
                raise HeldError
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        """Free it; once."""
        if not self._is_locked:
            self._forget()
        os.close(self._fd)

    def _forget(self) -> None:
        """Name no holder any more; when the run began stays the time of the file."""
        with contextlib.suppress(OSError):
            begun_ns = os.fstat(self._fd).st_mtime_ns
            os.ftruncate(self._fd, 0)
            os.utime(self._fd, ns=(begun_ns, begun_ns))


def is_held(path: Path, *, flock: Flock = fcntl.flock) -> bool:
    """Return whether a live run holds the file; one that cannot be looked into is not."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _takes(fd, fcntl.LOCK_SH, flock) and _holder_lives(fd)
    except HeldError:
        return True
    except OSError:
        return False
    finally:
        os.close(fd)


def _takes(fd: int, kind: int, flock: Flock) -> bool:
    """Lock a file; return False where its file system has no locks."""
    try:
        flock(fd, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise HeldError from error
    except OSError:
        return False
    return True


def _holder_lives(fd: int) -> bool:
    text = os.pread(fd, 32, 0).strip()
    if not text.isdigit() or int(text) == 0:
        return False
    try:
        os.kill(int(text), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it lives, as another user's
        pass
    return True
