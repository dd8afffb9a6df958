"""The file of a rank on its own host: written whole, found again by its digest.

    <save_path>.rank<N>.pt         of the newest save
    <save_path>.prev.rank<N>.pt    of the one before it, and so on

A save moves the generations on, unless the newest file belongs to a save that was never
complete: that one is written over, so that a save which fails pushes no good file out. What
is newer than the save that a run goes on from is written over too, and never moved on.
What it is: writing, finding and reading. What it is not: what a file holds
(`rank_state`), nor the decision to write one.
"""

import hashlib
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

import torch

from flodl_core.checkpoint.generations import age_of, generation_stems, newest_stem
from flodl_core.checkpoint.whole_file import WholeFile, part_of, writing_whole
from flodl_core.errors import CheckpointError, kind_of
from flodl_core.messages.job import RankFileRef
from flodl_core.training.plain_state import Plain
from flodl_core.training.seat import Seat
from flodl_core.units import MIB

_LEAST_KEPT: Final = 2
"""Generations that a rank keeps at least: the newest one may belong to a save that fails."""
_FIX: Final = "the rank begins with a fresh optimizer"


def rank_suffix(rank: int) -> str:
    """Return what follows the stem in the name of a rank's file."""
    return f".rank{rank}.pt"


class RankFiles:
    """The files of one rank.

    Args:
        seat: whose save path, resumed bundle and number count.
    """

    def __init__(self, seat: Seat) -> None:
        spec = seat.envelope.spec
        self._seat = seat
        self._stem = Path(spec.save_path)
        self._stems = generation_stems(self._stem, max(_LEAST_KEPT, spec.keep_checkpoints))
        self._resume = spec.resume
        self._suffix = rank_suffix(seat.rank)
        self._written: int | None = None
        self._free_ages: list[int] = []
        self._digests: dict[Path, str] = {}

    def write(
        self, state: dict[str, Plain], version: int, *, saved_version: int | None
    ) -> RankFileRef:
        """Write the file of a save.

        Args:
            state: of the rank at that commit.
            version: of the save.
            saved_version: the newest version whose save is complete.

        Raises:
            CheckpointError: the system refused; the files that were there still are.
        """
        path = self._path(self._stem)
        keep = self._keeps_newest(version, saved_version) and path.exists()
        with writing_whole(path, before_replacing=self._move_on if keep else None) as file:
            save_state(state, file)
        self._written = version
        self._digests.clear()
        return RankFileRef(
            rank=self._seat.rank,
            host=self._seat.host.host,
            device=self._seat.device_name,
            suffix=self._suffix,
            sha256=file.digest,
            nbytes=file.nbytes,
            folder=str(path.parent.absolute()),
        )

    def find(self, ref: RankFileRef) -> Path:
        """Return where a file of the resumed bundle lies on this host.

        It is looked for beside this run's own files, where it was written, and beside the
        bundle: first under the names that the bundle and this run give it, in every generation,
        then under whatever name. The digest decides.

        Raises:
            CheckpointError: it is not there, or damaged; one clause says which.
        """
        similar: list[Path] = []
        for folder in self._folders(ref):
            with suppress(OSError):
                similar += [one for one in folder.iterdir() if one.name.endswith(ref.suffix)]
        similar.sort(key=lambda one: self._likeliness(one.name.removesuffix(ref.suffix)))
        for path in similar:
            if _size(path) == ref.nbytes and self._digest(path) == ref.sha256:
                return path
        folders = ", ".join(map(str, self._folders(ref)))
        if not similar:
            raise CheckpointError(f"no file *{ref.suffix} in {folders}", fix=_FIX)
        raise CheckpointError(
            f"{similar[0]} is damaged or of another save: its digest is not the bundle's", fix=_FIX
        )

    def _likeliness(self, name: str) -> tuple[int, int, str]:
        """Return the place of a stem among those to be looked at: the likeliest is the lowest."""
        bundle = Path(self._resume.stem) if self._resume is not None else self._stem
        if name == bundle.name:
            return 0, 0, name
        ages = [age_of(name, newest) for newest in (newest_stem(bundle), self._stem)]
        known = [age for age in ages if age is not None]
        return (1, min(known), name) if known else (2, 0, name)

    def _path(self, stem: Path) -> Path:
        return stem.with_name(stem.name + self._suffix)

    def _folders(self, ref: RankFileRef) -> Iterable[Path]:
        folders = [self._stem.parent]
        if ref.folder:
            folders.append(Path(ref.folder))
        if self._resume is not None:
            folders.append(Path(self._resume.stem).parent)
        return dict.fromkeys(folder.absolute() for folder in folders)

    def _keeps_newest(self, version: int, saved_version: int | None) -> bool:
        """Return whether the newest file belongs to a save that was complete."""
        if self._written is None:
            age = self._age_of_resumed() or 0
            self._free_ages = list(range(1, age))
            return age == 0
        return (
            self._written != version
            and saved_version is not None
            and self._written <= saved_version
        )

    def _age_of_resumed(self) -> int | None:
        """Return which of the own generations the run goes on from; None if it is none of them."""
        refs = self._resume.rank_files if self._resume is not None else ()
        here = [
            ref for ref in refs if ref.suffix == self._suffix and ref.host == self._seat.host.host
        ]
        for age, stem in enumerate(self._stems):
            path = self._path(stem)
            for ref in here:
                if _size(path) == ref.nbytes and self._digest(path) == ref.sha256:
                    return age
        return None

    def _move_on(self) -> None:
        """Let each generation become the one before it; the newest stays in place as well.

        The first that is newer than what the run went on from, and not its own, ends that.
        """
        last = self._free_ages.pop(0) if self._free_ages else len(self._stems) - 1
        paths = [self._path(stem) for stem in self._stems[: last + 1]]
        for older, newer in zip(reversed(paths[2:]), reversed(paths[1:-1]), strict=True):
            if newer.exists():
                newer.replace(older)
        part = part_of(paths[1])
        part.unlink(missing_ok=True)
        try:
            part.hardlink_to(paths[0])
        except OSError:
            shutil.copyfile(paths[0], part)
        part.replace(paths[1])

    def _digest(self, path: Path) -> str:
        if path not in self._digests:
            digest = hashlib.sha256()
            try:
                with path.open("rb") as file:
                    while data := file.read(MIB):
                        digest.update(data)
            except OSError:
                return ""
            self._digests[path] = digest.hexdigest()
        return self._digests[path]


def read_rank_file_untrusted(path: Path) -> dict[str, Plain]:
    """Read a file of a rank; no code of it is run.

    Raises:
        CheckpointError: it is no such file. Nothing else escapes.
    """
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        said = str(error).splitlines()[0] if str(error) else ""
        raise CheckpointError(
            f"{path} cannot be read ({type(error).__name__}: {said})", fix=_FIX
        ) from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} holds {kind_of(state)}", fix=_FIX)
    return state


class _Sink:
    """What torch writes to. It never raises: torch's writer does not survive an error."""

    def __init__(self, file: WholeFile) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: memoryview) -> int:
        """Append; after an error everything is dropped."""
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        """Do nothing: the file is flushed when it is whole."""


def save_state(state: dict[str, Plain], file: WholeFile) -> None:
    """Write a state; equal states give equal bytes.

    Raises:
        OSError: the system refused.
    """
    sink = _Sink(file)
    torch.save(state, sink)  # type: ignore[arg-type] # it needs no more of a file than this
    if sink.error is not None:
        raise sink.error


def _size(path: Path) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - one call for a file that may be gone
    except OSError:
        return -1
