"""The consensus bundle on disk: written whole, found again, never half believed.

    <stem>.safetensors        the consensus: every tensor of the state dict
    <stem>.outer.safetensors  the velocity of an outer optimizer, where there is one
    <stem>.meta.json          written last; without it there is no bundle
    <stem>.prev.safetensors   the bundle before it
    <stem>.prev.meta.json     … and older ones at .prev2, .prev3, as many as are kept

A save first makes each bundle the one before it (if the newest is complete), then
puts the new weights in place, then the new meta; only then what is older than is kept
is removed. Whenever the process is killed, one of the generations is complete: the
meta and the weights carry one id, and the meta knows the digest of the weights.

A run that goes on from an older generation leaves the newer ones behind, whether they are
damaged or were not wanted: they are written over, never made the one before, and never
counted among those that are kept.

A velocity that is missing or damaged leaves a bundle complete: a run goes on from it with
a velocity of 0, and is told so. The files of ranks lie on their own hosts, where each
rank keeps its generations itself. The meta names them; a bundle is complete without them.

What it is: writing and finding. What it is not: the decision to save, nor a
reader of weights (`weights`).
Who drives it: the launcher, in a worker thread; resume and users read.
"""

import glob
import hashlib
import itertools
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flodl_core.checkpoint.generations import (
    BUNDLE_SUFFIXES,
    META_SUFFIX,
    OUTER_SUFFIX,
    TRIAL,
    WEIGHTS_SUFFIX,
    generation_stem,
    is_part_of,
    present_ages,
)
from flodl_core.checkpoint.meta import (
    BundleFacts,
    BundleMeta,
    FileEntry,
    meta_body,
    read_meta_untrusted,
)
from flodl_core.checkpoint.tensors import (
    TensorEntry,
    check_storable,
    list_tensors,
    list_velocity,
    velocity_bytes,
)
from flodl_core.checkpoint.values import SavedConsensus
from flodl_core.checkpoint.weights_file import BUNDLE_KEY, read_header_untrusted, write_weights
from flodl_core.checkpoint.whole_file import part_of, writing_whole
from flodl_core.errors import CheckpointError
from flodl_core.messages.job import Geometry
from flodl_core.units import MIB

_READ_BYTES: Final = MIB
_META_ROOM_BYTES: Final = MIB


@dataclass(frozen=True, slots=True)
class Bundle:
    """A complete bundle."""

    stem: Path
    meta: BundleMeta
    outer_flaw: str | None = None
    """What is wrong with the velocity that the meta file names; None if nothing is."""

    @property
    def weights(self) -> Path:
        """The weights file."""
        return _beside(self.stem, WEIGHTS_SUFFIX)

    @property
    def velocity(self) -> Path | None:
        """The velocity's file; None if there is none that can be used."""
        has_one = self.meta.entry(OUTER_SUFFIX) is not None and self.outer_flaw is None
        return _beside(self.stem, OUTER_SUFFIX) if has_one else None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A candidate that is no complete bundle, and why."""

    path: Path
    why: str


@dataclass(frozen=True, slots=True)
class BundleSearch:
    """The newest complete bundle, if any, and the newer ones that are not complete."""

    bundle: Bundle | None
    skipped: tuple[Skipped, ...]


def stem_of(path: Path | str) -> Path:
    """Return the stem that a path means: a bundle's file name without its suffix."""
    given = Path(path)
    for suffix in (OUTER_SUFFIX, WEIGHTS_SUFFIX, META_SUFFIX):
        if given.name.endswith(suffix) and given.name != suffix:
            return given.with_name(given.name.removesuffix(suffix))
    return given


def write_bundle(
    stem: Path,
    geometry: Geometry,
    values: SavedConsensus,
    *,
    facts: BundleFacts,
    resumed: str | None = None,
) -> Bundle:
    """Write a bundle; memory beyond the arguments stays at a few megabytes.

    Every bundle that is there becomes the one before; `remove_older` ends that.

    Args:
        stem: of the files.
        geometry: of the run.
        values: of the commit; not changed.
        facts: what the coordinator knows of this save.
        resumed: id of the bundle that the run went on from; newer ones of other runs are
            written over.

    Raises:
        CheckpointError: it could not be written or holds values that are not finite;
            the bundle that was there is still complete, here or as the previous one.
    """
    entries = list_tensors(
        geometry,
        params=values.params,
        buffers=values.buffers,
        local_buffers=values.local_buffers,
    )
    bundle_id = f"{facts.run_id}-{facts.sync_round}-{os.urandom(4).hex()}"
    meta_path = _beside(stem, META_SUFFIX)

    def write(suffix: str, tensors: list[TensorEntry], *, first: bool) -> FileEntry:
        before = (lambda: _keep_older(stem, facts.run_id, resumed)) if first else None
        with writing_whole(_beside(stem, suffix), before_replacing=before) as file:
            write_weights(file, tensors, metadata={BUNDLE_KEY: bundle_id})
        return FileEntry(suffix=suffix, sha256=file.digest, nbytes=file.nbytes, host=facts.host)

    files = [write(WEIGHTS_SUFFIX, entries, first=True)]
    if values.velocity is not None:
        files.append(write(OUTER_SUFFIX, list_velocity(geometry, values.velocity), first=False))
    meta = BundleMeta(**facts.model_dump(), bundle_id=bundle_id, files=tuple(files))
    body = meta_body(meta)
    with writing_whole(meta_path) as meta_file:
        meta_file.write(body)
    if values.velocity is None:
        _remove(_beside(stem, OUTER_SUFFIX))
    return Bundle(stem, read_meta_untrusted(body, path=str(meta_path)))


def find_bundle(stem: Path | str, *, verify: bool = True) -> BundleSearch:
    """Return the newest complete bundle at `stem`, and what was skipped for it.

    Args:
        stem: of the bundle, or one of its files.
        verify: also compare digests, which reads every file once.
    """
    skipped: list[Skipped] = []
    newest = stem_of(stem)
    for age in present_ages(newest):
        candidate = generation_stem(newest, age)
        try:
            return BundleSearch(_open_bundle(candidate, verify=verify), tuple(skipped))
        except CheckpointError as error:
            skipped.append(Skipped(candidate, error.happened))
    return BundleSearch(None, tuple(skipped))


def check_writable(
    stem: Path,
    geometry: Geometry | None = None,
    *,
    has_velocity: bool = False,
    keep: int = 1,
) -> None:
    """Write, put in place and remove a small file at `stem`, and look for room.

    Its name is as long as any that a save needs. What an earlier process that was killed left
    at this stem half written is removed; what others write beside it stays.

    Args:
        stem: where bundles are going to be written.
        geometry: of the run, to know how much room a bundle takes.
        has_velocity: whether a velocity will lie beside the weights.
        keep: generations that are going to be kept.

    Raises:
        CheckpointError: a bundle could not be written there.
    """
    with suppress(OSError):
        for part in [one for one in stem.parent.iterdir() if is_part_of(one.name, stem)]:
            _remove(part)
    longest = _beside(generation_stem(stem, keep), OUTER_SUFFIX).name.removeprefix(stem.name)
    trial = _beside(stem, TRIAL.ljust(len(longest), "-"))
    with writing_whole(trial) as file:
        file.write(b"flodl writes here\n")
    with suppress(OSError):
        trial.unlink()
    if geometry is None:
        return
    needed = _bundle_bytes(geometry, has_velocity=has_velocity)
    free = shutil.disk_usage(stem.parent).free
    if free < needed:
        raise CheckpointError(
            f"{stem.parent} has {free // MIB} MiB free and a bundle takes {needed // MIB} MiB",
            fix="make room, or give another --save-path",
        )


def later_lack_of_room(
    stem: Path, geometry: Geometry, *, has_velocity: bool, keep: int
) -> str | None:
    """Return why a later save will fail although the first fits, one clause; None if none will.

    A save writes its bundle before the oldest one is removed.

    Args:
        stem: where bundles are going to be written.
        geometry: of the run.
        has_velocity: whether a velocity will lie beside the weights.
        keep: generations that are going to be kept.
    """
    needed = (keep + 1) * _bundle_bytes(geometry, has_velocity=has_velocity)
    free = shutil.disk_usage(stem.parent).free
    here = 0
    for part in stem.parent.glob(f"{glob.escape(stem.name)}.*"):
        with suppress(OSError):
            here += part.stat().st_size
    if free + here >= needed:
        return None
    return (
        f"{stem.parent} has {free // MIB} MiB free: {keep} kept checkpoints and the one that is "
        f"being written take {needed // MIB} MiB, so a later save will fail"
    )


def _bundle_bytes(geometry: Geometry, *, has_velocity: bool) -> int:
    needed = check_storable(geometry) + _META_ROOM_BYTES
    return needed + (velocity_bytes(geometry) if has_velocity else 0)


def _open_bundle(stem: Path, *, verify: bool) -> Bundle:
    meta_path = _beside(stem, META_SUFFIX)
    try:
        body = meta_path.read_bytes()
    except FileNotFoundError:
        raise CheckpointError("its meta file is missing, so it was not finished") from None
    except OSError as error:
        raise CheckpointError(f"its meta file cannot be read ({error.strerror})") from error
    meta = read_meta_untrusted(body, path=str(meta_path))
    if meta.entry(WEIGHTS_SUFFIX) is None:
        raise CheckpointError("its meta file names no weights")
    outer_flaw: str | None = None
    for entry in meta.files:
        try:
            _check_file(stem, entry, meta.bundle_id, verify=verify)
        except CheckpointError as error:
            if entry.suffix != OUTER_SUFFIX:
                raise
            outer_flaw = error.happened
    return Bundle(stem, meta, outer_flaw)


def _check_file(stem: Path, entry: FileEntry, bundle_id: str, *, verify: bool) -> None:
    """Check that a file is there and is the one that the meta file names.

    Raises:
        CheckpointError: it is not, and why.
    """
    path = _beside(stem, entry.suffix)
    if not path.exists():
        raise CheckpointError(f"{path.name} is missing")
    if path.stat().st_size != entry.nbytes:
        raise CheckpointError(f"{path.name} has {path.stat().st_size} bytes, not {entry.nbytes}")
    if entry.suffix in (WEIGHTS_SUFFIX, OUTER_SUFFIX):
        header = read_header_untrusted(path)
        if header.metadata.get(BUNDLE_KEY) != bundle_id:
            of_what = "weights" if entry.suffix == WEIGHTS_SUFFIX else "velocity"
            raise CheckpointError(f"its {of_what} and its meta file are of two saves")
    if verify and _digest(path) != entry.sha256:
        raise CheckpointError(f"{path.name} is damaged: its digest is another")


def _keep_older(stem: Path, run_id: str, resumed: str | None) -> None:
    """Make each bundle the one before it, the oldest first, if the newest is to be kept.

    The first generation that is not to be kept makes room; what is older stays where it is.
    """
    line = _line(_complete(stem), run_id, resumed)
    free = next(age for age in itertools.count() if age not in line)
    for age in reversed(range(free)):
        source, target = generation_stem(stem, age), generation_stem(stem, age + 1)
        for suffix in BUNDLE_SUFFIXES:
            _link_over(_beside(source, suffix), _beside(target, suffix))


def remove_older(stem: Path, keep: int, *, resumed: str | None = None) -> None:
    """Remove the generations that are not kept, with the rank files that lie beside them.

    What the run left behind when it went on from an older generation goes as well; the files
    of ranks at those names stay, since ranks keep generations of their own.

    Args:
        stem: of the newest, which is complete.
        keep: complete generations that stay, the newest included; 1 or more.
        resumed: id of the bundle that the run went on from.
    """
    metas = _complete(stem)
    line = _line(metas, metas[0].run_id if 0 in metas else "", resumed)
    for age in present_ages(stem):
        old = generation_stem(stem, age)
        is_older = len(line) >= keep and age > line[keep - 1]
        if is_older or (age in metas and age not in line):
            for suffix in reversed(BUNDLE_SUFFIXES):
                _remove(_beside(old, suffix))
        if is_older:
            for path in old.parent.glob(f"{glob.escape(old.name)}.rank*.pt"):
                _remove(path)


def _complete(stem: Path) -> dict[int, BundleMeta]:
    """Return the generations that are complete, by age, the newest first; no digest is read."""
    found = {}
    for age in present_ages(stem):
        with suppress(CheckpointError):
            found[age] = _open_bundle(generation_stem(stem, age), verify=False).meta
    return found


def _line(metas: Mapping[int, BundleMeta], run_id: str, resumed: str | None) -> list[int]:
    """Return the ages of a run's own bundles, and of the one it went on from and those before."""
    begins = next((age for age, meta in metas.items() if meta.bundle_id == resumed), 0)
    return [age for age, meta in metas.items() if age >= begins or meta.run_id == run_id]


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _link_over(source: Path, target: Path) -> None:
    """Put a file in another's place too; one that is not there takes the other away."""
    if not source.exists():
        target.unlink(missing_ok=True)
        return
    part = part_of(target)
    part.unlink(missing_ok=True)
    try:
        part.hardlink_to(source)
    except OSError:
        shutil.copyfile(source, part)
    part.replace(target)


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while data := file.read(_READ_BYTES):
                digest.update(data)
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read ({error.strerror})") from error
    return digest.hexdigest()


def _beside(stem: Path, suffix: str) -> Path:
    return stem.with_name(stem.name + suffix)
