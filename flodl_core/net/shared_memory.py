"""Shared memory without a name: memory files, passed as descriptors, mapped by whoever holds one.

Nothing is created in a directory that outlives the processes, so nothing can be
left behind, whatever is killed. A file is sealed against shrinking, so that no
holder can make another one's mapping fault. Slots and staging segments lie in
such files; what is in them is the data plane's business.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import tempfile
from pathlib import Path
from typing import Final

from flodl_core.errors import LocalProtocolError, RemoteProtocolError

_MFD_CLOEXEC: Final = 0x0001
_MFD_ALLOW_SEALING: Final = 0x0002
_F_ADD_SEALS: Final = 1033
_F_GET_SEALS: Final = 1034
_F_SEAL_SHRINK: Final = 0x0002
_F_SEAL_GROW: Final = 0x0004

_FALLBACK_DIRECTORY: Final = Path("/dev/shm")  # noqa: S108 - only ever an unlinked file


def create_memfd(name: str, nbytes: int) -> int:
    """Create a zeroed memory file of `nbytes` and return its descriptor.

    The file can neither shrink nor grow, and the descriptor is closed on exec
    unless it is passed on purpose.

    Args:
        name: shown in /proc/PID/maps only; several files may share one.
        nbytes: at least 1.

    Raises:
        LocalProtocolError: `nbytes` is not positive.
        OSError: the kernel has no memory or no descriptor left.
    """
    if nbytes < 1:
        raise LocalProtocolError(f"a memory file of {nbytes} bytes was asked for; 1 is the least")
    fd = _anonymous_file(name)
    try:
        os.ftruncate(fd, nbytes)
        with contextlib.suppress(OSError):  # an unlinked file knows no seals
            fcntl.fcntl(fd, _F_ADD_SEALS, _F_SEAL_SHRINK | _F_SEAL_GROW)
    except BaseException:
        os.close(fd)
        raise
    return fd


def map_fd(fd: int, nbytes: int, *, writable: bool) -> mmap.mmap:
    """Map the first `nbytes` of a memory file, shared with every other holder.

    Args:
        fd: stays the caller's; the mapping survives its closing.
        nbytes: bytes to map, at least 1.
        writable: False maps it read-only.

    Raises:
        RemoteProtocolError: the file is smaller than `nbytes`.
    """
    size = os.fstat(fd).st_size
    if nbytes < 1 or size < nbytes:
        raise RemoteProtocolError(
            f"a shared segment of {nbytes} bytes was announced, but its file has {size}",
            fix="start every process of the run from the same version of flodl.",
        )
    access = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
    return mmap.mmap(fd, nbytes, flags=mmap.MAP_SHARED, prot=access)


def read_only_duplicate(fd: int) -> int:
    """Return a new descriptor of the same memory file that cannot be mapped writable.

    Where the system offers no way to reopen a descriptor, the duplicate is a
    plain one; the holder then only promises to map it read-only.
    """
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return os.dup(fd)


def is_sealed(fd: int) -> bool:
    """Whether the file can neither shrink nor grow any more."""
    try:
        seals: int = fcntl.fcntl(fd, _F_GET_SEALS)
    except OSError:
        return False
    wanted = _F_SEAL_SHRINK | _F_SEAL_GROW
    return seals & wanted == wanted


def _anonymous_file(name: str) -> int:
    flags = _MFD_CLOEXEC | _MFD_ALLOW_SEALING
    if hasattr(os, "memfd_create"):
        return os.memfd_create(name, flags)
    return _memfd_through_libc(name, flags) or _unlinked_file()


def _memfd_through_libc(name: str, flags: int) -> int | None:
    create = getattr(ctypes.CDLL(None, use_errno=True), "memfd_create", None)
    if create is None:
        return None
    fd = int(create(name.encode(), ctypes.c_uint(flags)))
    return fd if fd > 0 else None


def _unlinked_file() -> int:
    directory = _FALLBACK_DIRECTORY if _FALLBACK_DIRECTORY.is_dir() else None
    fd, path = tempfile.mkstemp(prefix="flodl-", dir=directory)
    Path(path).unlink()
    return fd


_guarded: set[int] = set()
_hook_installed = False


def guard_from_forks(fd: int) -> None:
    """Make any process forked from this one lose `fd`, until `unguard` is called.

    In the child the number then refers to /dev/null: an object that still
    believes to own it may close it without closing somebody else's file.
    """
    global _hook_installed
    if not _hook_installed:
        os.register_at_fork(after_in_child=_blank_guarded)
        _hook_installed = True
    _guarded.add(fd)


def unguard(fd: int) -> None:
    """Forget `fd`; to be called before its owner closes it."""
    _guarded.discard(fd)


def _blank_guarded() -> None:
    blank = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in _guarded:
        if fd != blank:
            with contextlib.suppress(OSError):
                os.dup2(blank, fd, inheritable=False)
    if blank not in _guarded:
        os.close(blank)
    _guarded.clear()
