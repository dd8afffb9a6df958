"""Where a run saves: the stem that is meant, tried out, and held against other runs.

    SaveHold.take ─▶ try_saving ─▶ the run lives ─▶ SaveHold.release
A run locks the file `<stem>.lock` beside its checkpoints while it lives, so that no other run
replaces them. The system frees the lock however the launcher ends; a file that a killed run
left is taken over by the next.

What it is: a path, a lock, and a trial. What it is not: saving (`saving`).
Who drives it: the launcher, before anything is removed or written at the stem.
"""

import contextlib
import errno
import fcntl
import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from flodl_core.checkpoint.bundle import check_writable, later_lack_of_room, stem_of
from flodl_core.checkpoint.generations import BUNDLE_SUFFIXES
from flodl_core.config.load import LoadedRun
from flodl_core.errors import CheckpointError, ConfigError
from flodl_core.messages.job import JobFacts
from flodl_core.roles.abandonable import run_abandonable
from flodl_core.roles.formation import outer_spec
from flodl_core.telemetry.run_directory import CHECKPOINT_STEM
from flodl_core.units import Seconds

LOCK_SUFFIX: Final = ".lock"
RELEASE_S: Seconds = 2.0
"""A disk that does not answer for longer keeps the file; the lock ends with the process."""
_HOLDER_BYTES: Final = 400
_CARE: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class SaveHold:
    """The locks of one run on the places that it saves to.

    Args:
        holder: what another run is told of this one.
        say: takes a line for the person who started the run.
        lock: the system's; not every file system has it.
    """

    def __init__(
        self,
        holder: str,
        say: Callable[[str], None],
        *,
        lock: Callable[[int, int], None] = fcntl.flock,
    ) -> None:
        self._holder = holder
        self._say = say
        self._lock = lock
        self._held: dict[Path, int] = {}

    def take(self, stem: Path, *, source: str) -> None:
        """Hold a stem; a place that cannot be written is left to the trial.

        Raises:
            ConfigError: another live run holds it, and which.
        """
        path = stem.with_name(stem.name + LOCK_SUFFIX).absolute()
        if path in self._held:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = _open(path)
        except OSError:
            return
        try:
            self._take_lock(descriptor, path)
        except BlockingIOError:
            raise _held_by(descriptor, stem, source) from None
        except OSError as error:
            os.close(descriptor)
            self._say(
                f"warning: {path.parent} takes no locks ({error.strerror}): nothing keeps another "
                "run from saving at the same path"
            )
            return
        if not _is_at(descriptor, path):
            os.close(descriptor)
            self.take(stem, source=source)
            return
        with (
            contextlib.suppress(OSError),
            os.fdopen(os.open(path, os.O_WRONLY | os.O_TRUNC | _CARE), "wb") as file,
        ):
            file.write(f"{self._holder}\n".encode(errors="replace"))
        self._held[path] = descriptor

    def _take_lock(self, descriptor: int, path: Path) -> None:
        """Lock a file that was opened to be read, so that its disk can be made read-only.

        NFS wants one that was opened to be written; there the descriptor becomes that.

        Raises:
            BlockingIOError: another process has the lock.
            OSError: there are no locks.
        """
        try:
            self._lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            writing = os.open(path, os.O_RDWR | _CARE)
            os.dup2(writing, descriptor, inheritable=False)
            os.close(writing)
            self._lock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    async def release(self) -> None:
        """Let go of everything, and remove the files; a disk that hangs holds nobody up."""
        while self._held:
            let_go = functools.partial(_let_go, *self._held.popitem())
            with anyio.move_on_after(RELEASE_S, shield=True):
                await run_abandonable(let_go, name="save-hold")


def place_of(save_path: str | None) -> Path | None:
    """Return the stem that a save path means; a directory takes the bundle inside."""
    if save_path is None:
        return None
    if save_path.endswith("/") or Path(save_path).is_dir():
        return Path(save_path) / CHECKPOINT_STEM
    return stem_of(save_path)


def try_saving(stem: Path, facts: JobFacts | None, loaded: LoadedRun) -> str | None:
    """Refuse a save path that cannot take a bundle; without facts, whatever its size.

    Returns:
        What a later save will fail for, one clause; None if it will for nothing that is known.

    Raises:
        ConfigError: it cannot, and why.
    """
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
        for suffix in BUNDLE_SUFFIXES:
            if stem.with_name(stem.name + suffix).is_dir():
                raise CheckpointError(f"{stem.name}{suffix} is a directory there")
        has_velocity, keep = outer_spec(loaded.run) is not None, loaded.run.keep_checkpoints
        geometry = facts.geometry if facts is not None else None
        check_writable(stem, geometry, has_velocity=has_velocity, keep=keep)
        if geometry is None:
            return None
        return later_lack_of_room(stem, geometry, has_velocity=has_velocity, keep=keep)
    except (CheckpointError, OSError) as error:
        reason = error.happened if isinstance(error, CheckpointError) else str(error)
        fix = error.fix if isinstance(error, CheckpointError) else ""
        raise ConfigError(
            "save_path",
            str(stem),
            reason,
            source=str(loaded.resolved["run.save_path"].source),
            fix=fix or "give a path that this user may write, with --save-path",
        ) from error


def _open(path: Path) -> int:
    """Return a descriptor of the file, made where it is missing.

    Another user's can be locked though it cannot be written.

    Raises:
        OSError: it can be neither made nor read.
    """
    try:
        return os.open(path, os.O_RDONLY | os.O_CREAT | _CARE, 0o644)
    except PermissionError:
        return os.open(path, os.O_RDONLY | _CARE)


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether a file is still the one at its path; who let go of it removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _held_by(descriptor: int, stem: Path, source: str) -> ConfigError:
    """Return the refusal that names the holder, and close the descriptor."""
    try:
        said = os.pread(descriptor, _HOLDER_BYTES, 0).decode(errors="replace").strip()
    except OSError:
        said = ""
    os.close(descriptor)
    return ConfigError(
        "save_path",
        str(stem),
        f"another live run saves there{f': {said}' if said else ''}",
        source=source,
        fix="give another path with --save-path, or stop that run",
    )


def _let_go(path: Path, descriptor: int) -> None:
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)
    os.close(descriptor)
