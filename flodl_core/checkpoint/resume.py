"""Going on from a bundle: whether it fits the run, and where the run then stands.

What it is: the list of what differs between a bundle and a run that would go on from it,
and the bundle's facts in the words of the coordinator.
What it is not: the search for a bundle, nor reading its values (`regions`).
Who drives it: the launcher: the list before the join window opens, the point when the
world has formed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flodl_core.checkpoint.bundle import Bundle
from flodl_core.checkpoint.meta import BundleMeta, Pairs, SavedCoverage, SavedEpoch
from flodl_core.checkpoint.values import SavedConsensus
from flodl_core.coordinator.facts import (
    Arrangement,
    EpochCoverage,
    EpochFacts,
    OpenTotals,
    ResumePoint,
)
from flodl_core.dispatch.epoch_plan import span_event
from flodl_core.dispatch.ranges import Range, merge_ranges, overlap_size, subtract_ranges
from flodl_core.elche.record import ElcheRecord
from flodl_core.errors import CheckpointError
from flodl_core.ids import Mode, OuterKind, Round
from flodl_core.messages.job import OuterSpec, RankFileRef, ResumeSpec
from flodl_core.messages.timing import TensorBlob

_DAMAGED = "use another bundle"
_PACED = (Mode.CPU_CADENCE, Mode.NCCL_CADENCE, Mode.CPU_ASYNC)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNumbers:
    """What a run must share with the bundle that it goes on from."""

    job: str
    seed: int
    batch_size: int
    epoch_splits: int
    n_samples: int
    dataset_sig: str
    model_sig: str


class LoadedBundle:
    """A bundle that a run goes on from, with its values until they are taken.

    Attributes:
        bundle: complete, its digests verified.
        local_buffers: integer and bool buffers, by state-dict name.
        velocity: of the outer optimizer; None if the run does not take it up, or it is 0.
    """

    def __init__(self, bundle: Bundle, values: SavedConsensus) -> None:
        self.bundle = bundle
        self.local_buffers = values.local_buffers
        self.velocity = values.velocity
        self._regions: dict[Round, NDArray[np.float32]] = {
            Round.PARAMS: values.params,
            Round.BUFFERS: values.buffers,
        }

    def take_regions(self) -> dict[Round, NDArray[np.float32]]:
        """Return the regions of the consensus, once; they are held no longer."""
        regions, self._regions = self._regions, {}
        return regions

    def take_velocity(self) -> NDArray[np.float32] | None:
        """Return the velocity, once; it is held no longer."""
        velocity, self.velocity = self.velocity, None
        return velocity

    def spec_for(self, outer: OuterSpec | None) -> ResumeSpec:
        """Return what every process of a run with that outer optimizer is told."""
        meta = self.bundle.meta
        return ResumeSpec(
            stem=str(self.bundle.stem),
            bundle_id=meta.bundle_id,
            sync_round=meta.sync_round,
            global_step=meta.global_step,
            rank_files=tuple(RankFileRef(**one.model_dump()) for one in meta.rank_files),
            steps_next=goes_on_stepping(self.bundle, outer),
        )

    def point(self, *, world_size: int, mode: Mode) -> ResumePoint:
        """Return where a run of that world and mode goes on.

        Raises:
            CheckpointError: what the meta file says does not hold together.
        """
        return resume_point(
            self.bundle.meta, world_size=world_size, mode=mode, local_buffers=self.local_buffers
        )


def list_differences(meta: BundleMeta, run: RunNumbers) -> tuple[str, ...]:
    """Return what keeps the run from going on from the bundle, each in words; none if it may."""
    saved = meta.coverage
    pairs: list[tuple[str, object, object]] = [("job", meta.job, run.job)]
    if saved is not None:
        pairs += [
            ("seed", saved.seed, run.seed),
            ("batch_size", saved.batch_size, run.batch_size),
            ("epoch_splits", saved.epoch_splits, run.epoch_splits),
            ("samples", saved.n_samples, run.n_samples),
        ]
    pairs += [
        ("dataset", meta.dataset_sig[:16], run.dataset_sig[:16]),
        ("model", meta.model_sig[:16], run.model_sig[:16]),
    ]
    return tuple(
        f"{name}: {before} in the bundle, {now} in this run"
        for name, before, now in pairs
        if before != now
    )


def resume_point(
    meta: BundleMeta,
    *,
    world_size: int,
    mode: Mode,
    local_buffers: Mapping[str, TensorBlob],
) -> ResumePoint:
    """Return where a run of that world and mode goes on.

    Raises:
        CheckpointError: what the meta file says of samples or cadence does not hold together.
    """
    saved = meta.coverage
    is_same_world = world_size == meta.world_size
    coverage = _coverage(meta, saved) if saved is not None and saved.per_epoch else None
    elche = None
    if is_same_world and meta.elche is not None:
        elche = ElcheRecord.from_values(meta.elche)
    whole = is_same_world and meta.ranks_alive == meta.world_size and meta.mode == mode
    return ResumePoint(
        epoch=meta.epoch,
        sync_round=meta.sync_round,
        syncs=meta.syncs,
        global_step=meta.global_step,
        samples_trained=meta.samples_trained,
        samples_dropped=meta.samples_dropped,
        coverage=coverage,
        arrangement=_arrangement(saved, coverage, world_size) if whole else None,
        elche=elche,
        finished=tuple(EpochFacts(**one.model_dump()) for one in meta.finished_epochs),
        open_totals=OpenTotals(**meta.open_epoch.model_dump()) if meta.open_epoch else None,
        local_buffers=local_buffers,
    )


def keeps_velocity(meta: BundleMeta, outer: OuterSpec | None) -> bool:
    """Return whether a run goes on with the outer optimizer of a bundle."""
    return outer is not None and meta.outer is not None and meta.outer.kind is outer.kind


def goes_on_stepping(bundle: Bundle, outer: OuterSpec | None) -> bool:
    """Return whether a run steps its first average, since the bundle's velocity goes on."""
    saved = bundle.meta.outer
    if saved is None or not keeps_velocity(bundle.meta, outer):
        return False
    return saved.steps_next and bundle.outer_flaw is None


def describe_outer(bundle: Bundle, outer: OuterSpec | None) -> tuple[str, ...]:
    """Return what of a bundle's outer optimizer a run does not take up, in words."""
    saved = bundle.meta.outer
    if saved is None or outer is None or saved.kind is not outer.kind:
        before, now = (OuterKind.AVG if one is None else one.kind for one in (saved, outer))
        if before is now:
            return ()
        rest = "" if outer is None else "; its velocity begins at 0"
        return (f"outer {now.value} now, {before.value} at the save{rest}",)
    changes = [
        f"{name} {now:g} now, {before:g} at the save"
        for name, before, now in (
            ("outer_lr", saved.lr, outer.lr),
            ("outer_momentum", saved.momentum, outer.momentum),
        )
        if before != now
    ]
    if bundle.outer_flaw is not None:
        changes.append(f"the outer velocity begins at 0: {bundle.outer_flaw}")
    return tuple(changes)


def describe_changes(meta: BundleMeta, *, world_size: int, mode: Mode) -> tuple[str, ...]:
    """Return what of the bundle a run of that world and mode does not take up, in words."""
    changes = []
    is_paced = mode in _PACED
    again = "; cadence is measured again" if is_paced else ""
    if world_size != meta.world_size:
        changes.append(f"{world_size} ranks now, {meta.world_size} at the save{again}")
    elif meta.mode != mode and is_paced and meta.elche is None:
        changes.append(f"mode {mode} now, {meta.mode} at the save{again}")
    elif meta.mode != mode:
        changes.append(f"mode {mode} now, {meta.mode} at the save")
    elif meta.ranks_alive < meta.world_size:
        changes.append(
            f"{meta.ranks_alive} of {meta.world_size} ranks were there at the save; what was left "
            "is shared out anew"
        )
    return tuple(changes)


def _coverage(meta: BundleMeta, saved: SavedCoverage) -> EpochCoverage:
    """Return the coverage of the open epoch, if it holds together.

    Raises:
        CheckpointError: it does not.
    """
    epoch = saved.per_epoch[0]
    found = EpochCoverage(
        epoch=epoch.epoch,
        total_samples=epoch.total_samples,
        uncovered=merge_ranges(_ranges(epoch.uncovered_ranges)),
        dropped=merge_ranges(_ranges(epoch.dropped_ranges)),
        first_cycle=epoch.first_cycle,
    )
    flaw = _flaw_of(meta, saved, epoch)
    if flaw:
        raise CheckpointError(f"the bundle's coverage does not hold: {flaw}", fix=_DAMAGED)
    return found


def _flaw_of(meta: BundleMeta, saved: SavedCoverage, epoch: SavedEpoch) -> str:
    whole = span_event(
        epoch.epoch, saved.n_samples, splits=saved.epoch_splits, batch_size=saved.batch_size
    ).whole
    parts = [*_ranges(epoch.uncovered_ranges), *_ranges(epoch.dropped_ranges)]
    if len(saved.per_epoch) != 1 or epoch.epoch != meta.epoch:
        return f"epoch {meta.epoch} is open and epoch {epoch.epoch} is covered in part"
    if epoch.total_samples != whole.size:
        return f"epoch {epoch.epoch} is said to have {epoch.total_samples} samples, {whole.size} it"
    if subtract_ranges(parts, [whole]) or overlap_size(parts):
        return f"ranges of epoch {epoch.epoch} overlap or lie outside of it"
    return ""


def _arrangement(
    saved: SavedCoverage | None, coverage: EpochCoverage | None, world_size: int
) -> Arrangement | None:
    """Return who held what, if that is just what is uncovered; else None."""
    if saved is None or saved.arrangement is None or coverage is None:
        return None
    given = saved.arrangement
    found = Arrangement(
        held=tuple(_ranges(parts) for parts in given.held),
        reserved=_ranges(given.reserved),
        returned=_ranges(given.returned),
    )
    parts = found.everything
    fits = len(found.held) == world_size and len(found.reserved) in (0, world_size)
    exact = merge_ranges(parts) == coverage.uncovered and not overlap_size(parts)
    return found if fits and exact else None


def _ranges(pairs: Iterable[tuple[int, int]] | Pairs) -> tuple[Range, ...]:
    return tuple(Range(offset, size) for offset, size in pairs)
