"""Hundreds of seeded runs: nothing hangs, no sample is lost, every end has its cause."""

from functools import partial

import pytest
from seeded_runs import check_seeds

from flodl_core.simulation import simulate
from flodl_core.simulation.scenario import SIMULATED

pytestmark = pytest.mark.slow

SEEDS = 300
SHARDS = 20
IN_EACH = pytest.mark.parametrize("mode", SIMULATED)


@pytest.mark.simulation
@IN_EACH
@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_rule_holds_in_every_run(shard, mode):
    check_seeds(partial(simulate, mode=mode), range(shard, SEEDS, SHARDS))


@IN_EACH
@pytest.mark.parametrize("seed", [7, 36, 131, 344])
def test_one_seed_is_one_run(seed, mode):
    assert simulate(seed, mode) == simulate(seed, mode)
