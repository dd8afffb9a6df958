"""Which checkpoint a run goes on from: the newest complete one of where the user points.

What it is: the search through one stem, one run's directory, or all runs of a job, with
what was skipped and why; then the comparison with the run, and the values.
What it is not: how the run then stands (`checkpoint.resume`).
Who drives it: the launcher, before it opens the join window.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from flodl_core.checkpoint.bundle import Bundle, Skipped, find_bundle, stem_of
from flodl_core.checkpoint.regions import read_consensus, read_velocity
from flodl_core.checkpoint.resume import (
    LoadedBundle,
    RunNumbers,
    keeps_velocity,
    list_differences,
)
from flodl_core.checkpoint.values import SavedConsensus
from flodl_core.config.values import AUTO
from flodl_core.errors import CheckpointError, ConfigError
from flodl_core.ids import Mode
from flodl_core.messages.job import Geometry, OuterSpec
from flodl_core.telemetry.run_directory import CHECKPOINT_STEM, list_runs


@dataclass(frozen=True, slots=True)
class ResumeWish:
    """What the user said.

    Attributes:
        where: a stem, a run's directory, a directory of runs, or auto.
        source: where that was said.
        base: the directory of all runs.
        save_stem: of this run, where it was given.
        job: the run's job, by name.
    """

    where: str
    source: str
    base: Path
    save_stem: Path | None
    job: str

    def refuse(self, reason: str, fix: str) -> ConfigError:
        """Return the error that ends the command before anything is started."""
        return ConfigError("resume", self.where, reason, source=self.source, fix=fix)


@dataclass(slots=True)
class Found:
    """A bundle to go on from.

    Attributes:
        skipped: newer ones that are not complete, and why; runs that go on.
    """

    bundle: Bundle
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def lines(self) -> list[str]:
        """What the user is told of it."""
        meta = self.bundle.meta
        told = [f"skipped {one.path}: {one.why}" for one in self.skipped]
        when = f", saved {meta.created_at}" if meta.created_at else ""
        return [
            *told,
            f"goes on from {self.bundle.stem}: version {meta.sync_round}, epoch {meta.epoch + 1}, "
            f"step {meta.global_step}{when}",
        ]


def find_resume(wanted: ResumeWish) -> Found:
    """Return the newest complete bundle of where the user points; its digests are verified.

    Raises:
        ConfigError: there is none; what was skipped is named.
    """
    stems, skipped = _stems(wanted)
    for stem in stems:
        search = find_bundle(stem)
        skipped += search.skipped
        if search.bundle is not None:
            return Found(search.bundle, skipped)
    reasons = "; ".join(f"{one.path}: {one.why}" for one in skipped)
    looked = f"of job {wanted.job} under {wanted.base}" if wanted.where == AUTO else "there"
    raise wanted.refuse(
        f"there is no complete checkpoint {looked}" + (f" ({reasons})" if reasons else ""),
        "give the stem of a checkpoint or a run's directory, or start without --resume",
    )


def _stems(wanted: ResumeWish) -> tuple[list[Path], list[Skipped]]:
    """Return the stems to look at, the newest first, and runs that are passed over."""
    base = wanted.base
    stems: list[Path] = []
    if wanted.where != AUTO:
        path = Path(wanted.where)
        runs = list_runs(path)
        if [run.path for run in runs] == [path.absolute()]:
            return [runs[0].read_save_stem()], []
        if not runs:
            return [path / CHECKPOINT_STEM if path.is_dir() else stem_of(path)], []
        base = path
    elif wanted.save_stem is not None:
        stems.append(wanted.save_stem)
    skipped: list[Skipped] = []
    for run in list_runs(base):
        if run.is_live():
            skipped.append(Skipped(run.path, "its run goes on"))
        else:
            stems.append(run.read_save_stem())
    dated: list[tuple[str, Path]] = []
    for stem in dict.fromkeys(stems):
        search = find_bundle(stem, verify=False)
        if search.bundle is None:
            skipped += search.skipped
        elif search.bundle.meta.job == wanted.job:
            dated.append((search.bundle.meta.created_at, stem))
    return [stem for _, stem in sorted(dated, reverse=True)], skipped


def load_resume(
    found: Found,
    wanted: ResumeWish,
    *,
    numbers: RunNumbers,
    events: int,
    geometry: Geometry,
    outer: OuterSpec | None = None,
) -> LoadedBundle:
    """Compare a bundle with the run, and read its values.

    Args:
        found: the bundle.
        wanted: what the user said.
        numbers: of the run.
        events: epochs, split, that the run has.
        geometry: of the run.
        outer: its outer optimizer; the bundle's velocity is read if it is of the same kind.

    Raises:
        ConfigError: they differ, all differences are listed; nothing is left to train; or the
            bundle does not hold what it says, or has made way for another since it was found.
    """
    meta = found.bundle.meta
    differences = list_differences(meta, numbers)
    if differences:
        raise wanted.refuse(
            f"{found.bundle.stem} is of another run: " + "; ".join(differences),
            "run with what the checkpoint was made with, or start without --resume",
        )
    if meta.epoch >= events:
        raise wanted.refuse(
            f"{found.bundle.stem} has all {meta.epoch} epochs; nothing is left to train",
            "give more --epochs",
        )
    try:
        loaded = LoadedBundle(found.bundle, _read_values(found.bundle, geometry, outer))
        loaded.point(world_size=meta.world_size, mode=Mode(meta.mode))
    except (CheckpointError, ValueError) as error:
        happened = error.happened if isinstance(error, CheckpointError) else str(error)
        fix = error.fix if isinstance(error, CheckpointError) else ""
        raise wanted.refuse(
            f"{found.bundle.stem}: {happened}", fix or "use another checkpoint"
        ) from error
    return loaded


def _read_values(bundle: Bundle, geometry: Geometry, outer: OuterSpec | None) -> SavedConsensus:
    """Return what a bundle holds, with its velocity where the run goes on with it.

    Raises:
        CheckpointError: a file does not hold what the meta file says, or is of another save.
    """
    bundle_id = bundle.meta.bundle_id
    values = read_consensus(bundle.weights, geometry, bundle_id=bundle_id)
    if bundle.velocity is None or not keeps_velocity(bundle.meta, outer):
        return values
    return replace(values, velocity=read_velocity(bundle.velocity, geometry, bundle_id=bundle_id))
