"""Scalars that lie on a GPU: added up there, read once, in the order of the step."""

import pytest
import torch
from torch import nn

from flodl_core.errors import JobError
from flodl_core.training.share_totals import ShareTotals
from flodl_core.training.step_context import Placement, StepContext

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(180),
]

DEVICE = torch.device("cuda", 0)


def context() -> StepContext:
    model = nn.Linear(3, 1).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return StepContext(model, optimizer, placement=Placement(device=DEVICE))


def test_numbers_on_the_gpu_and_on_the_host_are_one_sum_and_what_is_not_finite_is_left_out():
    ctx, totals = context(), ShareTotals()
    for batch in range(3):
        ctx.scalar("right", torch.tensor(2 + batch, device=DEVICE), count=4)
        ctx.scalar("right", 1.0, count=4)
        ctx.scalar("right", torch.tensor(float("nan"), device=DEVICE), count=100)
        totals.add_scalars(0, ctx.take_scalars())
    assert totals.report(0, 0, 1.0).scalars == {"right": (12.0, 24.0)}
    assert totals.report(0, 0, 1.0).scalars == {}


def test_a_number_that_is_written_over_later_counts_as_it_was():
    ctx = context()
    kept = torch.ones((), device=DEVICE)
    ctx.scalar("static", kept)
    kept.fill_(1000.0)
    assert ctx.take_scalars()["static"].read() == (1.0, 1.0)


def test_noting_waits_for_nothing():
    ctx = context()
    started, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    started.record()
    torch.cuda._sleep(2_000_000_000)
    ctx.scalar("right", torch.ones((), device=DEVICE))
    taken = ctx.take_scalars()
    done.record()
    assert not done.query()
    assert taken["right"].read() == (1.0, 1.0)


def test_many_values_lose_no_digits():
    ctx = context()
    big = torch.tensor(2.0**24, device=DEVICE)
    ctx.scalar("sum", big)
    for _ in range(100):
        ctx.scalar("sum", torch.ones((), device=DEVICE))
    assert ctx.take_scalars()["sum"].read() == (2.0**24 + 100, 101.0)


def test_in_a_recording_it_is_refused_by_name():
    ctx = context()
    value = torch.ones((), device=DEVICE)
    graph = torch.cuda.CUDAGraph()
    with (
        pytest.raises(JobError, match="while a CUDA graph is recorded"),
        torch.cuda.graph(graph),
    ):
        ctx.scalar("right", value + 1)
