"""What a rank minds on a wire that subtracts the last consensus: that sum and parts fit f32."""

import numpy as np
import pytest
import torch
from torch import nn
from training_cohort import LocalStar, envelope_for
from training_models import MemorySlot, geometry_of, laid_out

from flodl_core.ids import Cycle, SyncOutcome
from flodl_core.training.flat import FlatLayout
from flodl_core.training.job import TrainJob
from flodl_core.training.rounds import RankRounds
from flodl_core.training.snapshot import Claim, take_snapshot


def claim(cycle=1, *, n=1, world=1, reference=None):
    return Claim(
        cycle=Cycle(cycle), n=n, samples=n, gamma=1.0, world_size=world, reference=reference
    )


@pytest.mark.parametrize(
    ("value", "reference", "declared"),
    [
        (1.0e38, None, False),
        (3.0e38, None, False),
        (1.0e38, 0.0, False),
        (1.0e38, 0.6e38, False),
        (1.0e38, 0.8e38, True),
        (3.0e38, 0.0, True),
    ],
)
def test_value_and_reference_together_take_at_most_half_of_f32(value, reference, declared):
    """Half of the largest f32 is 1.7e38."""
    model = nn.Linear(1, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(value)
    layout, memory = laid_out(model)
    verdict = take_snapshot(layout, MemorySlot(layout.geometry, memory), claim(reference=reference))
    assert verdict.declared is declared
    if declared:
        assert verdict.fault == "weight times the mass 1 leaves the range of f32"


def test_a_rank_that_would_overflow_the_difference_declares_itself_and_the_others_go_on():
    """Two ranks: the f32 wire takes values to 1.7e38, the narrow one differences to 0.85e38."""
    job = TrainJob(
        model=lambda: nn.Linear(1, 1, bias=False),
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=lambda: [0] * 4,
        step=lambda ctx, batch: 0.0,
    )
    outcomes = {}
    for wire in ("f32", "bf16"):
        envelope = envelope_for(job, 2, wire_dtype=wire)
        star = LocalStar(envelope)
        models = [nn.Linear(1, 1, bias=False) for _ in range(2)]
        rounds = [
            RankRounds(FlatLayout(model, geometry_of(model), params_memory=port.slot.params), port)
            for model, port in zip(models, star.ports, strict=True)
        ]
        for cycle, values in enumerate([(0.1e38, 0.1e38), (-1e38, 0.1e38)]):
            for model, one, value in zip(models, rounds, values, strict=True):
                with torch.no_grad():
                    model.weight.fill_(value)
                one.offer(claim(cycle, world=2))
            results = []
            for one in rounds:
                while (result := one.wait(20.0)) is None:
                    pass
                results.append(result.outcome)
            outcomes[wire] = results
            assert np.isfinite(models[0].weight.item())
            assert models[0].weight.item() == models[1].weight.item()
        star.stop()
    assert outcomes["f32"] == [SyncOutcome.COMMITTED] * 2
    assert outcomes["bf16"] == [SyncOutcome.DECLINED, SyncOutcome.COMMITTED]
