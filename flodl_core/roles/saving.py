"""Writes bundles: pins the root's committed values at once, writes them in a worker thread.

Whether and when to save is the coordinator's decision. A save that fails leaves
the last good bundle, and its error becomes the coordinator's event.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from flodl_core.checkpoint.bundle import remove_older, write_bundle
from flodl_core.checkpoint.meta import SavedOuter, SavedRankFile, describe_save
from flodl_core.checkpoint.values import SavedConsensus
from flodl_core.coordinator.effects import SaveBundle
from flodl_core.coordinator.view import CoordinatorView
from flodl_core.errors import CheckpointError
from flodl_core.ids import HostName
from flodl_core.messages.job import Envelope, OuterSpec
from flodl_core.net import clock
from flodl_core.planes.consensus import CommittedView
from flodl_core.planes.velocity import OuterState
from flodl_core.roles.abandonable import run_abandonable
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.telemetry.state import CheckpointState
from flodl_core.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedMarks:
    """How good the model is, for the meta file; None where it is not known."""

    loss: float | None
    metric: float | None
    metric_name: str | None


def marks_of(view: CoordinatorView) -> SavedMarks:
    """Return the marks as of this moment."""
    scored = [epoch for epoch in view.epochs if epoch.metric is not None]
    losses = [epoch.loss for epoch in view.epochs if epoch.loss is not None]
    return SavedMarks(
        loss=losses[-1] if losses else view.training.loss,
        metric=scored[-1].metric if scored else None,
        metric_name=scored[-1].metric_name if scored else None,
    )


@dataclass(frozen=True, slots=True)
class PinnedSave:
    """Committed values that the root holds still until they are written."""

    order: SaveBundle
    marks: SavedMarks
    view: CommittedView


class BundleWriter:
    """Writes the consensus bundles of one run.

    Args:
        stem: of the files.
        name: of the run.
        host: the launcher's host, which the meta file names.
        log: of the launcher.
        uptime: returns the age of the run, or None where it is not known.
    """

    def __init__(
        self,
        stem: Path,
        *,
        name: str,
        host: HostName,
        log: ProcessLog,
        uptime: Callable[[], Seconds | None] = lambda: None,
    ) -> None:
        self.stem = stem
        self.state = CheckpointState()
        self._name = name
        self._host = host
        self._log = log
        self._uptime = uptime
        self._envelope: Envelope | None = None
        self._pin: Callable[[int], CommittedView | None] = lambda _: None

    def use(self, envelope: Envelope, pin: Callable[[int], CommittedView | None]) -> None:
        """Learn what is saved, and how committed values are held still."""
        self._envelope, self._pin = envelope, pin

    def begin(self, order: SaveBundle, marks: SavedMarks) -> PinnedSave | str:
        """Pin the values of the ordered version; returns why not, if that cannot be."""
        view = self._pin(order.version if order.held_as is None else order.held_as)
        if order.held_as is not None and (view is None or view.version != order.held_as):
            if view is not None:
                view.release()
            return f"no rank brought version {order.version} to the launcher"
        if view is None:
            return f"version {order.version} is not the last commit any more"
        self.state = self.state.model_copy(update={"saving": True})
        return PinnedSave(order, marks, view)

    async def write(self, save: PinnedSave) -> str | None:
        """Write a pinned save; returns what went wrong, or None."""
        self._log.info("save_started", version=save.order.version, reason=save.order.reason.value)
        error: str | None = None
        try:
            await run_abandonable(lambda: self._write_pinned(save), name="bundle writer")
        except CheckpointError as failure:
            error = failure.happened
        except OSError as failure:
            error = f"{failure.strerror or failure}"
        self._note_end(save, error)
        return error

    def _write_pinned(self, save: PinnedSave) -> None:
        """Write in a thread of its own; the values are held still until it is over."""
        try:
            self._write(save)
        finally:
            save.view.release()

    def _write(self, save: PinnedSave) -> None:
        assert self._envelope is not None
        order, spec = save.order, self._envelope.spec
        resumed = spec.resume.bundle_id if spec.resume is not None else None
        facts = describe_save(
            order.facts,
            spec,
            reason=order.reason,
            host=self._host,
            created_at=clock.utc_iso(),
        )
        outer = save.view.outer
        write_bundle(
            self.stem,
            self._envelope.geometry,
            SavedConsensus(
                params=save.view.params,
                buffers=save.view.buffers,
                local_buffers=order.local_buffers,
                velocity=outer.velocity if outer is not None else None,
            ),
            facts=facts.model_copy(
                update={
                    "run_name": self._name,
                    "model_sig": self._envelope.model_sig,
                    "dataset_sig": self._envelope.dataset_sig,
                    "rank_files": tuple(SavedRankFile(**asdict(one)) for one in order.rank_files),
                    "outer": _saved_outer(spec.outer, outer),
                    **asdict(save.marks),
                }
            ),
            resumed=resumed,
        )
        remove_older(self.stem, spec.keep_checkpoints, resumed=resumed)

    def _note_end(self, save: PinnedSave, error: str | None) -> None:
        version = save.order.version
        if error is not None:
            self._log.error("save_failed", version=version, error=error)
            self.state = self.state.model_copy(update={"saving": False, "last_error": error})
            return
        self._log.info("save_complete", version=version, path=str(self.stem))
        self.state = CheckpointState(
            path=f"{self.stem}.safetensors",
            version=version,
            epoch=save.order.facts.epoch,
            reason=save.order.reason.value,
            rank_files=len(save.order.rank_files),
            at=clock.utc_iso(),
            uptime_s=self._uptime(),
        )


def _saved_outer(spec: OuterSpec | None, state: OuterState | None) -> SavedOuter | None:
    """Return what the meta file says of the outer optimizer; None if there is none."""
    if spec is None:
        return None
    steps_next = state is not None and state.steps_next
    return SavedOuter(kind=spec.kind, lr=spec.lr, momentum=spec.momentum, steps_next=steps_next)
