"""Hundreds of seeded runs: nothing hangs, no sample is lost, every end has its cause."""

import pytest

from flodl_core.simulation import SimulationFailure, simulate

SEEDS = 300
SHARDS = 20


@pytest.mark.simulation
@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_rule_holds_in_every_run(shard):
    failures = []
    for seed in range(shard, SEEDS, SHARDS):
        try:
            simulate(seed)
        except SimulationFailure as failure:
            failures.append(str(failure))
    assert not failures, "\n".join(failures)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 36, 131, 344])
def test_one_seed_is_one_run(seed):
    assert simulate(seed) == simulate(seed)
