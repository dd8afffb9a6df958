"""Files that are there whole or not at all.

What it is: bytes written to a file without a name, synced, and only then put in
place; on a file system without such files, to a hidden file beside the target.
A process that is killed before that leaves the old file, and (on Linux) nothing
else.
What it is not: a format.
Who drives it: `bundle`.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from flodl_core.errors import CheckpointError
from flodl_core.units import MIB

_WRITE_BUFFER_BYTES: Final = MIB
_UNNAMED: Final[int] = getattr(os, "O_TMPFILE", 0)


class WholeFile:
    """A file that is being written; `digest` and `nbytes` describe what it holds so far."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self.nbytes = 0

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer of bytes
        """Append a buffer of bytes."""
        view = memoryview(data).cast("B")
        self._file.write(view)
        self._hash.update(view)
        self.nbytes += view.nbytes

    @property
    def digest(self) -> str:
        """SHA-256 of what was written, in hex."""
        return self._hash.hexdigest()


@contextmanager
def writing_whole(
    path: Path,
    *,
    unnamed: bool = True,
    before_replacing: Callable[[], None] | None = None,
) -> Iterator[WholeFile]:
    """Write `path` anew; it takes its place when the block ends without an error.

    Args:
        path: the target; its directory is made if missing.
        unnamed: use a file without a name where the system has such.
        before_replacing: called when the new file is whole and the old one in place.

    Yields:
        The file to write to.

    Raises:
        CheckpointError: the system refused; the target is as it was.
    """
    part = part_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _refused(path, error) from error
    try:
        part.unlink(missing_ok=True)
        fd, has_name = _open_part(part, unnamed=unnamed)
        with os.fdopen(fd, "wb", buffering=_WRITE_BUFFER_BYTES) as file:
            yield WholeFile(file)
            file.flush()
            os.fsync(fd)
            if before_replacing is not None:
                before_replacing()
            if not has_name:
                _give_name(fd, part, folder)
        part.replace(path)
        os.fsync(folder)
    except OSError as error:
        raise _refused(path, error) from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        os.close(folder)


def part_of(path: Path) -> Path:
    """Return the hidden file that a target may be written in."""
    return path.with_name(f".{path.name}.part")


def _open_part(part: Path, *, unnamed: bool) -> tuple[int, bool]:
    if unnamed and _UNNAMED:
        with suppress(OSError):
            return os.open(part.parent, _UNNAMED | os.O_WRONLY | os.O_CLOEXEC, 0o644), False
    return os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), True


def _give_name(fd: int, part: Path, folder: int) -> None:
    os.link(
        f"/proc/self/fd/{fd}",
        part.name,
        src_dir_fd=folder,
        dst_dir_fd=folder,
        follow_symlinks=True,
    )


def _refused(path: Path, error: OSError) -> CheckpointError:
    is_long = error.errno == errno.ENAMETOOLONG
    return CheckpointError(
        f"cannot write {path} ({error.strerror or error})",
        fix="give a --save-path with a shorter name"
        if is_long
        else "make room, or give a --save-path that this user may write",
    )
