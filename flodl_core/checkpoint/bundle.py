"""The consensus bundle on disk: written whole, found again, never half believed.

    <stem>.safetensors        the consensus: every tensor of the state dict
    <stem>.meta.json          written last; without it there is no bundle
    <stem>.prev.safetensors   the bundle before it
    <stem>.prev.meta.json     … and older ones at .prev2, .prev3, as many as are kept

A save first makes each bundle the one before it (if the newest is complete), then
puts the new weights in place, then the new meta; only then what is older than is kept
is removed. Whenever the process is killed, one of the generations is complete: the
meta and the weights carry one id, and the meta knows the digest of the weights.

The files of ranks lie on their own hosts, where each rank keeps its generations
itself. The meta names them; a bundle is complete without them.

What it is: writing and finding. What it is not: the decision to save, nor a
reader of weights (`weights`).
Who drives it: the launcher, in a worker thread; resume and users read.
"""

import glob
import hashlib
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from flodl_core.checkpoint.generations import (
    BUNDLE_SUFFIXES,
    META_SUFFIX,
    WEIGHTS_SUFFIX,
    generation_stem,
    present_ages,
)
from flodl_core.checkpoint.meta import (
    BundleFacts,
    BundleMeta,
    FileEntry,
    meta_body,
    read_meta_untrusted,
)
from flodl_core.checkpoint.tensors import check_storable, list_tensors
from flodl_core.checkpoint.weights_file import BUNDLE_KEY, read_header_untrusted, write_weights
from flodl_core.checkpoint.whole_file import part_of, writing_whole
from flodl_core.errors import CheckpointError
from flodl_core.messages.job import Geometry
from flodl_core.messages.timing import TensorBlob
from flodl_core.units import MIB

_READ_BYTES: Final = MIB
_META_ROOM_BYTES: Final = MIB


@dataclass(frozen=True, slots=True)
class Bundle:
    """A complete bundle."""

    stem: Path
    meta: BundleMeta

    @property
    def weights(self) -> Path:
        """The weights file."""
        return _beside(self.stem, WEIGHTS_SUFFIX)


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
    for suffix in (WEIGHTS_SUFFIX, META_SUFFIX):
        if given.name.endswith(suffix) and given.name != suffix:
            return given.with_name(given.name.removesuffix(suffix))
    return given


def write_bundle(
    stem: Path,
    geometry: Geometry,
    *,
    params: NDArray[np.float32],
    buffers: NDArray[np.float32],
    local_buffers: Mapping[str, TensorBlob],
    facts: BundleFacts,
) -> Bundle:
    """Write a bundle; memory beyond the arguments stays at a few megabytes.

    Every bundle that is there becomes the one before; `remove_older` ends that.

    Args:
        stem: of the files.
        geometry: of the run.
        params: the committed parameter region, f32; not changed.
        buffers: the committed buffer region, f32; not changed.
        local_buffers: integer and bool buffers of one rank at that commit.
        facts: what the coordinator knows of this save.

    Raises:
        CheckpointError: it could not be written or holds values that are not finite;
            the bundle that was there is still complete, here or as the previous one.
    """
    entries = list_tensors(geometry, params=params, buffers=buffers, local_buffers=local_buffers)
    bundle_id = f"{facts.run_id}-{facts.sync_round}-{os.urandom(4).hex()}"
    weights_path, meta_path = _beside(stem, WEIGHTS_SUFFIX), _beside(stem, META_SUFFIX)
    with writing_whole(weights_path, before_replacing=lambda: _keep_older(stem)) as file:
        write_weights(file, entries, metadata={BUNDLE_KEY: bundle_id})
    entry = FileEntry(
        suffix=WEIGHTS_SUFFIX, sha256=file.digest, nbytes=file.nbytes, host=facts.host
    )
    meta = BundleMeta(**facts.model_dump(), bundle_id=bundle_id, files=(entry,))
    body = meta_body(meta)
    with writing_whole(meta_path) as meta_file:
        meta_file.write(body)
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


def check_writable(stem: Path, geometry: Geometry | None = None) -> None:
    """Write, put in place and remove a small file at `stem`, and look for room.

    What an earlier process that was killed left there half written is removed.

    Args:
        stem: where bundles are going to be written.
        geometry: of the run, to know how much room a bundle takes.

    Raises:
        CheckpointError: a bundle could not be written there.
    """
    for part in stem.parent.glob(f"{glob.escape(part_of(_beside(stem, '')).stem)}.*.part"):
        with suppress(OSError):
            part.unlink(missing_ok=True)
    trial = _beside(stem, ".trial")
    with writing_whole(trial) as file:
        file.write(b"flodl writes here\n")
    with suppress(OSError):
        trial.unlink()
    if geometry is None:
        return
    needed = check_storable(geometry) + _META_ROOM_BYTES
    free = shutil.disk_usage(stem.parent).free
    if free < needed:
        raise CheckpointError(
            f"{stem.parent} has {free // MIB} MiB free and a bundle takes {needed // MIB} MiB",
            fix="make room, or give another --save-path",
        )


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
    for entry in meta.files:
        path = _beside(stem, entry.suffix)
        if not path.exists():
            raise CheckpointError(f"{path.name} is missing")
        if path.stat().st_size != entry.nbytes:
            raise CheckpointError(
                f"{path.name} has {path.stat().st_size} bytes, not {entry.nbytes}"
            )
    header = read_header_untrusted(_beside(stem, WEIGHTS_SUFFIX))
    if header.metadata.get(BUNDLE_KEY) != meta.bundle_id:
        raise CheckpointError("its weights and its meta file are of two saves")
    if verify:
        for entry in meta.files:
            path = _beside(stem, entry.suffix)
            if _digest(path) != entry.sha256:
                raise CheckpointError(f"{path.name} is damaged: its digest is another")
    return Bundle(stem, meta)


def _keep_older(stem: Path) -> None:
    """Make each bundle the one before it, the oldest first, if the newest is complete."""
    if not _is_complete(stem):
        return
    for age in reversed(present_ages(stem)):
        source, target = generation_stem(stem, age), generation_stem(stem, age + 1)
        if _is_complete(source):
            for suffix in BUNDLE_SUFFIXES:
                _link_over(_beside(source, suffix), _beside(target, suffix))


def remove_older(stem: Path, keep: int) -> None:
    """Remove the generations that are not kept, with the rank files that lie beside them.

    Args:
        stem: of the newest, which is complete.
        keep: generations that stay, the newest included; 1 or more.
    """
    for age in present_ages(stem):
        if age < keep:
            continue
        old = generation_stem(stem, age)
        files = [_beside(old, META_SUFFIX), _beside(old, WEIGHTS_SUFFIX)]
        files += old.parent.glob(f"{glob.escape(old.name)}.rank*.pt")
        for path in files:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _is_complete(stem: Path) -> bool:
    try:
        _open_bundle(stem, verify=False)
    except CheckpointError:
        return False
    return True


def _link_over(source: Path, target: Path) -> None:
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
