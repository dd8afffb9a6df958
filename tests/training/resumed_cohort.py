"""A cohort that saves at a commit, and another one that goes on from what it saved.

The consensus travels as the two regions that a rank adopted last, which is what a
root keeps; rank files travel through the disk, as the ranks wrote them.
"""

from dataclasses import dataclass

import numpy as np
from training_cohort import Cohort, MemoryStar

from flodl_core.ids import Cycle
from flodl_core.messages import control
from flodl_core.messages.job import ResumeSpec
from flodl_core.messages.rendezvous import RendezvousHello
from flodl_core.messages.timing import Batches, CheckpointResult, SyncAck, TensorBlob


@dataclass
class Saved:
    """What a save left."""

    params: np.ndarray
    buffers: np.ndarray
    locals: dict[str, TensorBlob]
    resume: ResumeSpec
    answers: dict[int, CheckpointResult]


def save(cohort, *, saved_version=None):
    """Ask every rank at the last commit; the ranks are held after it."""
    version = cohort.cycle - 1
    for rank in cohort.alive:
        cohort.send(
            rank,
            control.Checkpoint(version=version, target_rank=0, saved_version=saved_version),
        )
    answers = cohort.collect(CheckpointResult, cohort.alive)
    spec = cohort.envelope.spec
    return Saved(
        params=cohort.star.staging.params.copy(),
        buffers=cohort.star.staging.buffers.copy(),
        locals=answers[0].local_buffers,
        resume=ResumeSpec(
            stem=spec.save_path,
            bundle_id=f"{spec.run_id}-{version}-0",
            sync_round=version,
            global_step=cohort.global_step,
            rank_files=tuple(one.rank_file for one in answers.values() if one.rank_file),
        ),
        answers=answers,
    )


class ResumedStar(MemoryStar):
    """Gives the saved consensus in cycle 0, whatever the ranks have."""

    saved = None

    def mean(self, masses, region):
        if self.records[-1][0] == 0:
            return getattr(self.saved, region)
        return super().mean(masses, region)


def resume(job, world, saved, **spec):
    """Return a cohort that goes on from a save; enter it, then `meet_again`."""
    star = type("Star", (ResumedStar,), {"saved": saved})
    return Cohort(job, world, star=star, resume=saved.resume, **spec)


def meet_again(cohort, saved):
    """Bring a resumed cohort to where the saved one stood; returns the ranks' notes."""
    hellos = {who: m for who, m in cohort.seen if isinstance(m, RendezvousHello)}
    cohort.broadcast(control.RestoreLocals(local_buffers=saved.locals))
    cohort.global_step = saved.resume.global_step
    cohort.meet()
    cohort.cycle = saved.resume.sync_round + 1
    return {rank: hello.resume_note for rank, hello in hellos.items()}


def train_span(cohort, epoch, spans):
    """Train a span of samples a rank, one batch a window; the ranks are held after the last.

    Args:
        spans: by rank, (offset, size) in the pass.
    """
    size = cohort.envelope.spec.batch_size
    for rank, (offset, samples) in spans.items():
        plan = control.EpochPlan(epoch=epoch, offset=offset, size=samples, window_batches=1)
        cohort.send(rank, control.StartEpoch(plan=plan))
    windows = {samples // size for _, samples in spans.values()}
    assert len(windows) == 1
    last = windows.pop()
    for window in range(last):
        cohort.collect(Batches, cohort.alive)
        cohort.broadcast(control.RequestParams(cycle=Cycle(cohort.cycle)))
        cohort.collect(SyncAck, cohort.alive)
        cohort.cycle += 1
        cohort.global_step += len(spans)
        if window + 1 < last:
            cohort.release()
