"""The cohort in one process averages and steps as the product's root does."""

import numpy as np
import pytest
import torch
from convergence_jobs import charlm
from outer_numbers import RATIOS, Numbers, Replicas, read_rule

from flodl_core.reduce.outer import NesterovMomentum, OuterAvg, SlowMomentum

pytestmark = pytest.mark.slow

COUNTS = [3, 2, 1]


def replicas_of(rule, *, is_fresh=False):
    torch.manual_seed(1)
    return Replicas(charlm(), Numbers(anchor=1, rule=rule, is_fresh=is_fresh, lr=0.01))


def flat(model):
    return torch.cat([one.detach().reshape(-1) for one in model.parameters()]).double().numpy()


def move(replicas, seed):
    """Add noise to every rank's parameters; return their mean by counts."""
    chance = torch.Generator().manual_seed(seed)
    for model in replicas._models:
        for one in model.parameters():
            one.data.add_(torch.randn(one.shape, generator=chance), alpha=0.01)
    ends = [count * flat(model) for model, count in zip(replicas._models, COUNTS, strict=True)]
    return sum(ends) / sum(COUNTS)


def test_the_first_average_is_adopted_and_the_next_is_stepped():
    replicas = replicas_of(NesterovMomentum(lr=0.7, momentum=0.5))
    first = move(replicas, 1)
    replicas.average(COUNTS)
    assert flat(replicas.model) == pytest.approx(first, abs=1e-6)
    velocity = np.zeros_like(first)
    adopted = first
    for seed in (2, 3):
        gradient = adopted - move(replicas, seed)
        velocity = 0.5 * velocity + gradient
        adopted = adopted - 0.7 * (0.5 * velocity + gradient)
        replicas.average(COUNTS)
        assert flat(replicas.model) == pytest.approx(adopted, abs=1e-6)
    assert all(np.array_equal(flat(one), flat(replicas.model)) for one in replicas._models)


@pytest.mark.parametrize("is_fresh", [False, True])
def test_ranks_share_no_memory_and_begin_anew_only_if_told_to(is_fresh):
    replicas = replicas_of(OuterAvg(), is_fresh=is_fresh)
    ids = torch.zeros((2, 64), dtype=torch.int64)
    for rank in range(len(RATIOS)):
        replicas.train(rank, (ids, ids), 0.01)
    replicas.average(COUNTS)
    replicas.train(0, (ids, ids), 0.01)
    ends = [flat(model) for model in replicas._models]
    assert not np.array_equal(ends[0], ends[1])
    assert np.array_equal(ends[1], ends[2])
    steps = {int(state["step"]) for state in replicas._optimizers[0].state.values()}
    assert steps == ({1} if is_fresh else {2})


def test_rules_are_read_from_words():
    assert read_rule("avg") == OuterAvg()
    assert read_rule("slowmo:0.7:0.3") == SlowMomentum(lr=0.7, momentum=0.3)
    assert read_rule("nesterov") == NesterovMomentum(lr=0.7, momentum=0.9)
