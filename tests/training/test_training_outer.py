"""Ranks under an outer optimizer, against torch's own optimizers over averages."""

import pytest
import torch
from test_training_worker import Net, Points, points_job
from training_cohort import Cohort, LocalStar, envelope_for

from flodl_core.dispatch.permutation import Permutation
from flodl_core.ids import InnerState, OuterKind
from flodl_core.messages.job import OuterSpec
from flodl_core.training.seat import Seat

WORLD, WINDOWS, SEED = 2, 12, 3
SLOWMO = OuterSpec(kind=OuterKind.SLOWMO, lr=0.8, momentum=0.6)
NESTEROV = OuterSpec(kind=OuterKind.NESTEROV, lr=0.7, momentum=0.9)
FRESH = OuterSpec(kind=OuterKind.NESTEROV, lr=0.7, momentum=0.9, inner=InnerState.FRESH)


def adam_job(**changes):
    return points_job(
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.02), **changes
    )


def flat(model):
    return torch.cat([one.detach().reshape(-1) for one in model.parameters()])


def with_values(model, values):
    with torch.no_grad():
        at = 0
        for one in model.parameters():
            one.copy_(values[at : at + one.numel()].view(one.shape))
            at += one.numel()


def train_by_hand(outer: OuterSpec) -> torch.Tensor:
    """Train replicas one after the other; step their mean with torch.optim.SGD.

    Its momentum is the outer velocity, its gradient the way from the mean to where the
    window began. The first average is taken as it is.
    """
    seat = Seat(envelope=envelope_for(adam_job(), WORLD, seed=SEED), rank=0)
    torch.manual_seed(seat.seed("model"))
    first = Net()
    center = torch.nn.Parameter(flat(first).clone())
    is_diloco = outer.kind is OuterKind.NESTEROV
    over = torch.optim.SGD([center], lr=outer.lr, momentum=outer.momentum, nesterov=is_diloco)
    replicas = [Net() for _ in range(WORLD)]
    inner = [torch.optim.Adam(one.parameters(), lr=0.02) for one in replicas]
    data, size = Points(), 8
    ids = Permutation(len(data), SEED, 0).ids(0, len(data)).tolist()
    share = len(data) // size // WORLD * size
    for window in range(WINDOWS):
        ends = []
        for rank, model in enumerate(replicas):
            with_values(model, center.detach())
            if outer.inner is InnerState.FRESH:
                inner[rank] = torch.optim.Adam(model.parameters(), lr=0.02)
            begin = rank * share + window * size
            rows = [data[index] for index in ids[begin : begin + size]]
            x, y = (torch.stack(column) for column in zip(*rows, strict=True))
            inner[rank].zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            inner[rank].step()
            ends.append(flat(model))
        mean = torch.stack(ends).mean(0)
        if window == 0:
            center.data.copy_(mean)
            continue
        center.grad = center.detach() - mean
        over.step()
    return center.detach()


@pytest.mark.slow
@pytest.mark.parametrize("outer", [SLOWMO, NESTEROV, FRESH], ids=["slowmo", "nesterov", "fresh"])
def test_a_cohort_ends_where_torchs_optimizer_over_its_averages_ends(outer: OuterSpec) -> None:
    with Cohort(adam_job(), WORLD, star=LocalStar, seed=SEED, outer=outer) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=WINDOWS)
        ends = [flat(cohort.model(rank)) for rank in range(WORLD)]
        steps = [state_steps(cohort, rank) for rank in range(WORLD)]
        cohort.finish()
    cohort.star.stop()
    assert torch.equal(ends[0], ends[1])
    torch.testing.assert_close(ends[0], train_by_hand(outer), rtol=0, atol=2e-5)
    assert steps == [set() if outer is FRESH else {WINDOWS}] * WORLD


def state_steps(cohort: Cohort, rank: int) -> set[int]:
    """How many steps a rank's optimizer remembers; none where it has just begun anew."""
    optimizer = cohort.workers[rank].trainee.context.optimizer
    return {int(state["step"]) for state in optimizer.state.values()}
