"""`<stem>.meta.json`: what a bundle is, and the marker that it is complete.

What it is: frozen models of the file, their checks, and the coverage of samples
that a resume would continue from.
What it is not: a writer; `bundle` writes it last, after every file it names.
Who drives it: `bundle`, and whoever reads a bundle.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flodl_core.coordinator.facts import Arrangement, SaveFacts
from flodl_core.dispatch.ranges import Range
from flodl_core.errors import CheckpointError
from flodl_core.ids import HostName, OuterKind, Rank, SaveReason
from flodl_core.messages.job import RunSpec

SCHEMA_VERSION: Final = 1

_NO_DIGEST: Final = "0" * 64
_OWN_DIGEST: Final = re.compile(rb'"meta_sha256": ?"([0-9a-f]{64})"')

Pair: TypeAlias = tuple[Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]]
Pairs: TypeAlias = tuple[Pair, ...]
"""Ranges, each [offset, size]."""


class MetaPart(BaseModel):
    """One frozen part of the meta file."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class SavedEpoch(MetaPart):
    """Which samples of an epoch are not in the saved consensus yet."""

    epoch: int = Field(ge=0)
    total_samples: int = Field(ge=0)
    uncovered_ranges: Pairs
    """[offset, size] in the pass's permutation, ascending and disjoint."""
    dropped_ranges: Pairs = ()
    """What was given up, likewise."""
    first_cycle: int = Field(default=1, ge=0)


class SavedRankFile(MetaPart):
    """What one rank wrote of its own, on its host; the bundle is complete without it."""

    rank: Annotated[Rank, Field(ge=0)]
    host: HostName
    device: str
    suffix: str
    """What follows the stem."""
    sha256: str
    nbytes: int = Field(ge=0)
    folder: str = ""
    """Where it was written, on that host."""


class SavedArrangement(MetaPart):
    """Who was to train which of the uncovered samples; of use to the same world only."""

    held: tuple[Pairs, ...]
    """By rank, in its order of training."""
    reserved: Pairs = ()
    """By rank, what nobody holds of its span; empty where all is held."""
    returned: Pairs = ()
    """What is dealt before any span, in that order."""


class SavedCoverage(MetaPart):
    """Where in the data the saved consensus stands; independent of the world."""

    seed: int
    batch_size: int = Field(ge=1)
    epoch_splits: int = Field(default=1, ge=1)
    n_samples: int = Field(ge=0)
    per_epoch: tuple[SavedEpoch, ...] = ()
    """Epochs that have begun and are not whole; empty between epochs."""
    arrangement: SavedArrangement | None = None


class FinishedEpoch(MetaPart):
    """The aggregate of an epoch that is whole."""

    epoch: int = Field(ge=0)
    pass_index: int = Field(ge=0)
    label: str
    loss: float | None = None
    samples: int = Field(ge=0)
    dropped: int = Field(default=0, ge=0)
    duration_s: float = Field(ge=0)
    syncs: int = Field(ge=0)
    metric: float | None = None
    metric_name: str | None = None
    report: str | None = None
    scalars: dict[str, float] = Field(default_factory=dict)
    """Means of what the job's steps noted, by name."""


class OpenEpoch(MetaPart):
    """What was reported of the epoch that is not whole."""

    loss_sum: float = 0.0
    """Of the mean losses, each times its samples."""
    loss_samples: int = Field(default=0, ge=0)
    scalars: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """(sum, count) by name."""
    duration_s: float = Field(default=0.0, ge=0)


class SavedOuter(MetaPart):
    """The outer optimizer of the run that saved; its velocity lies in a file of its own."""

    kind: OuterKind
    lr: float = Field(gt=0)
    momentum: float = Field(ge=0, lt=1)
    steps_next: bool
    """Whether the next average is stepped; the first one of a run is not."""


class BundleFacts(MetaPart):
    """What the coordinator knows of a save."""

    run_id: str
    run_name: str = ""
    host: str = ""
    """Where the files are written."""
    job: str = ""
    mode: str = ""
    model_sig: str = ""
    dataset_sig: str = ""
    epoch: int = Field(ge=0)
    """The first epoch that is not whole: where a resume goes on."""
    epochs: int = Field(default=0, ge=0)
    global_step: int = Field(ge=0)
    sync_round: int = Field(ge=0)
    """The committed version, that is the cycle that made this consensus."""
    world_size: int = Field(ge=1)
    ranks_alive: int = Field(default=0, ge=0)
    syncs: int = Field(default=0, ge=0)
    """Commits after the initial broadcast."""
    samples_trained: int = Field(default=0, ge=0)
    samples_dropped: int = Field(default=0, ge=0)
    reason: SaveReason
    coverage: SavedCoverage | None = None
    rank_files: tuple[SavedRankFile, ...] = ()
    """By rank; one that could not write its file is missing."""
    finished_epochs: tuple[FinishedEpoch, ...] = ()
    """Oldest first; the newest thousand."""
    open_epoch: OpenEpoch | None = None
    """Absent between epochs."""
    outer: SavedOuter | None = None
    """The rule that stepped the averages; absent where they were adopted as they are."""
    elche: dict[str, Any] | None = None
    """The state of the cadence: speeds, anchor, phase, the guard's history; none in Sync."""
    loss: float | None = None
    metric: float | None = None
    metric_name: str | None = None
    created_at: str = ""
    """UTC, ISO 8601."""


class FileEntry(MetaPart):
    """One file of the bundle."""

    suffix: str
    """What follows the stem: the bundle's previous generation keeps its entries so."""
    sha256: str
    nbytes: int = Field(ge=0)
    host: str


class BundleMeta(BundleFacts):
    """The whole meta file."""

    schema_version: int = SCHEMA_VERSION
    bundle_id: str
    """Also stands in the weights file, so that files of two saves are never taken for one."""
    files: tuple[FileEntry, ...]
    meta_sha256: str | None = None
    """Of this file, with as many zeros in this place; absent where `meta_body` did not write it."""

    def entry(self, suffix: str) -> FileEntry | None:
        """Return the entry of a file, or None if the bundle has none such."""
        return next((one for one in self.files if one.suffix == suffix), None)


def describe_save(
    facts: SaveFacts,
    spec: RunSpec,
    *,
    reason: SaveReason,
    host: str = "",
    created_at: str = "",
) -> BundleFacts:
    """Return what a bundle's meta file says, from what the coordinator says of the save.

    Args:
        facts: of the effect SaveBundle.
        spec: of the run.
        reason: of the effect SaveBundle.
        host: this host's label.
        created_at: UTC, ISO 8601.
    """
    coverage = SavedCoverage(
        seed=facts.seed,
        batch_size=facts.batch_size,
        epoch_splits=facts.epoch_splits,
        n_samples=facts.n_samples,
        per_epoch=tuple(
            SavedEpoch(
                epoch=one.epoch,
                total_samples=one.total_samples,
                uncovered_ranges=_pairs(one.uncovered),
                dropped_ranges=_pairs(one.dropped),
                first_cycle=one.first_cycle,
            )
            for one in facts.coverage
        ),
        arrangement=_describe_arrangement(facts.arrangement),
    )
    return BundleFacts(
        run_id=spec.run_id,
        host=host,
        job=spec.job.name,
        mode=spec.mode.value,
        epoch=facts.epoch,
        epochs=facts.epochs,
        global_step=facts.global_step,
        sync_round=facts.sync_round,
        world_size=facts.world_size,
        ranks_alive=facts.ranks_alive,
        samples_trained=facts.samples_trained,
        samples_dropped=facts.samples_dropped,
        syncs=facts.syncs,
        finished_epochs=tuple(FinishedEpoch(**asdict(one)) for one in facts.finished),
        open_epoch=OpenEpoch(**asdict(facts.open_totals)) if facts.open_totals else None,
        reason=reason,
        coverage=coverage,
        elche=facts.elche.to_values() if facts.elche is not None else None,
        created_at=created_at,
    )


def _describe_arrangement(given: Arrangement | None) -> SavedArrangement | None:
    if given is None:
        return None
    return SavedArrangement(
        held=tuple(_pairs(parts) for parts in given.held),
        reserved=_pairs(given.reserved),
        returned=_pairs(given.returned),
    )


def _pairs(parts: Iterable[Range]) -> Pairs:
    return tuple((part.offset, part.size) for part in parts)


def meta_body(meta: BundleMeta) -> bytes:
    """Return the bytes of a meta file, its own digest among them."""
    blank = meta.model_copy(update={"meta_sha256": _NO_DIGEST})
    body = blank.model_dump_json(indent=2).encode() + b"\n"
    return _with_digest(body, hashlib.sha256(body).hexdigest())


def _with_digest(body: bytes, digest: str) -> bytes:
    """Return the body with another digest of its own; one without any stays as it is."""
    found = _OWN_DIGEST.search(body)
    if found is None:
        return body
    return body[: found.start(1)] + digest.encode() + body[found.end(1) :]


def read_meta_untrusted(body: bytes, *, path: str) -> BundleMeta:
    """Read a meta file.

    Args:
        body: its bytes.
        path: where it lies, for the text of the error.

    Raises:
        CheckpointError: it is no meta file of ours, or of a newer schema. Nothing
            else escapes.
    """
    try:
        meta = BundleMeta.model_validate_json(body)
    except (ValidationError, RecursionError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{path} is no meta file of a bundle ({_first_problem(error)})",
            fix="use another bundle; the weights file beside it may still be whole",
        ) from error
    if meta.schema_version > SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} has schema {meta.schema_version}, newer than ours ({SCHEMA_VERSION})",
            fix="use the flodl version that wrote it",
        )
    expected = hashlib.sha256(_with_digest(body, _NO_DIGEST)).hexdigest()
    if meta.meta_sha256 not in (None, expected):
        raise CheckpointError(
            f"{path} is damaged: its digest is another",
            fix="use another bundle; the weights file beside it may still be whole",
        )
    return meta


def _first_problem(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else str(first["msg"])
    return type(error).__name__
