"""Frozen parameters that the step changes itself are averaged; those that stay are left alone."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn
from training_cohort import Cohort, LocalStar
from training_models import MemorySlot, Odd, laid_out

from flodl_core.ids import Cycle, Mode
from flodl_core.planes.nccl.loopback import LoopbackFabric
from flodl_core.training.frozen import FrozenWatch, flag_changed
from flodl_core.training.job import TrainJob
from flodl_core.training.nccl_port import NcclPort
from flodl_core.training.snapshot import Claim, take_snapshot
from flodl_core.training.worker import RankWorker

X = torch.randn(64, 6, generator=torch.Generator().manual_seed(5))
BEGIN, DECAY = 7.0, 0.5


class Pupil(nn.Module):
    """A layer that learns, its teacher, and a base that never changes."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        self.own = nn.Linear(6, 1)
        self.teacher = nn.Linear(6, 1, dtype=dtype).requires_grad_(False)
        self.base = nn.Linear(6, 6, dtype=dtype).requires_grad_(False)
        with torch.no_grad():
            self.teacher.weight.fill_(BEGIN)


def follow(model):
    """Move the teacher as half of all published code does: behind autograd's back."""
    for ours, theirs in zip(model.own.parameters(), model.teacher.parameters(), strict=True):
        theirs.data.mul_(DECAY).add_(ours.data, alpha=1 - DECAY)


def pupil_job(*, begins_at=0, dtype=torch.float32):
    done = {}

    def step(ctx, batch):
        ctx.optimizer.zero_grad()
        loss = ctx.accumulate(batch, lambda part: ctx.model.own(part).square().mean())
        ctx.optimizer_step()
        done[ctx.rank] = done.get(ctx.rank, 0) + 1
        if done[ctx.rank] > begins_at:
            follow(ctx.model)
        return loss

    return TrainJob(
        model=lambda: Pupil(dtype),
        optimizer=lambda model: torch.optim.SGD(model.own.parameters(), lr=0.1),
        dataset=lambda: X,
        step=step,
        batch_size=4,
    )


def on_nccl(**port):
    """Return a rank that averages among ranks, with the stand-in of its library."""

    def make(seat, job, *, channel, **parts):
        nccl = NcclPort(
            rank=seat.rank,
            world_size=seat.envelope.world_size,
            fabric=LoopbackFabric(),
            listen=channel.heed_with,
            post=channel.post,
            note=lambda *_: None,
            **port,
        )
        return RankWorker(seat, job, channel=channel, nccl=nccl, **parts)

    return make


PLANES = {
    "memory": {},
    "shared": {"star": LocalStar},
    "nccl": {"worker": on_nccl(), "mode": Mode.NCCL_SYNC},
    "nccl-in-place": {"worker": on_nccl(in_place=True), "mode": Mode.NCCL_SYNC},
}


@contextmanager
def held(job, plane):
    """Have two ranks meet, and their models."""
    cohort = Cohort(job, 2, **PLANES[plane])
    try:
        with cohort:
            cohort.meet()
            yield cohort, [cohort.model(rank) for rank in range(2)]
            cohort.finish()
    finally:
        if isinstance(cohort.star, LocalStar):
            cohort.star.stop()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("plane", PLANES)
def test_a_teacher_that_the_step_moves_is_averaged_from_its_first_window_on(plane, dtype):
    with held(pupil_job(dtype=dtype), plane) as (cohort, models):
        bases = [model.base.weight.clone() for model in models]
        cohort.train_epoch(0, windows=4)
        teachers = [model.teacher.weight.clone() for model in models]
        assert all(
            torch.equal(model.base.weight, base) for model, base in zip(models, bases, strict=True)
        )
        layouts = [one.trainee.layout for one in cohort.workers]
        names = [[one.params[k].segment.name for k in one.untrained()] for one in layouts]
    assert torch.equal(*teachers), "each rank kept a teacher of its own"
    assert teachers[0].abs().max() < BEGIN / 8, "the teacher is as it began"
    assert names == [["base.weight", "base.bias"]] * 2, "what never changes is left out"


@pytest.mark.parametrize("plane", PLANES)
def test_a_teacher_that_begins_late_is_found_too(plane):
    with held(pupil_job(begins_at=4), plane) as (cohort, models):
        cohort.train_epoch(0, windows=5)
        teachers = [model.teacher.weight.clone() for model in models]
    assert torch.equal(*teachers)
    assert teachers[0].abs().max() < BEGIN


def test_what_the_cohort_saves_of_a_teacher_is_where_it_stands():
    with held(pupil_job(), "memory") as (cohort, models):
        cohort.train_epoch(0, windows=3)
        layout = cohort.workers[0].trainee.layout
        segment = next(p.segment for p in layout.params if p.segment.name == "teacher.weight")
        part = slice(segment.offset, segment.offset + segment.numel)
        saved = cohort.star.staging.params[part].copy()
        there = models[0].teacher.weight.numpy().copy().reshape(-1)
    np.testing.assert_array_equal(saved, there)


def claim():
    return Claim(cycle=Cycle(1), n=1, samples=4, gamma=1.0, world_size=2)


def test_one_bit_of_one_value_is_enough():
    model = Odd()
    layout, memory = laid_out(model)
    adopted = memory.copy()
    flag_changed(layout, memory, adopted)
    assert [layout.params[k].segment.name for k in layout.untrained()] == ["frozen"]
    with torch.no_grad():
        model.frozen[1] = torch.nextafter(model.frozen[1], torch.tensor(9.0))
    slot = MemorySlot(layout.geometry, memory)
    take_snapshot(layout, slot, claim(), adopted=adopted)
    flags = {one.segment.name: bit for one, bit in zip(layout.params, slot.flags, strict=True)}
    assert flags["frozen"]
    assert layout.untrained() == ()


def test_where_no_parameter_is_frozen_nothing_is_compared():
    layout, memory = laid_out(nn.Linear(3, 2))
    assert layout.untrained() == ()
    flag_changed(layout, memory, np.empty(0, np.float32))


@pytest.mark.parametrize("change", [[0], [1], [0, 1, 2]])
@pytest.mark.parametrize("is_kept", [True, False], ids=["compared", "summed"])
def test_a_region_on_a_device_is_watched_with_or_without_what_was_adopted(is_kept, change):
    model = Odd()
    layout, _ = laid_out(model)
    watch = FrozenWatch(layout, layout.region, layout.region.clone() if is_kept else None)
    watch.begin()
    watch.look()
    watch.flag()
    assert len(layout.untrained()) == 1
    model.frozen.data[change] += 1e-6
    watch.look()
    watch.flag()
    assert layout.untrained() == ()
    watch.look()
    watch.flag()
