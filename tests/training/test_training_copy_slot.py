"""A rank that trains on while its snapshot is read: the reduce sees the snapshot only."""

import numpy as np
import pytest
import torch
from torch import nn
from training_cohort import LocalStar, envelope_for
from training_models import MemorySlot, Odd, geometry_of
from training_trained_on import claim, in_own_memory, linear_job

from flodl_core.ids import Mode, SyncOutcome
from flodl_core.planes.slot import Slot
from flodl_core.reduce.buckets import active_spans
from flodl_core.training.adopt import adopt_and_measure
from flodl_core.training.build import build_trainee
from flodl_core.training.flat import FlatLayout
from flodl_core.training.rounds import RankRounds
from flodl_core.training.seat import Seat
from flodl_core.training.snapshot import is_live, take_snapshot


@pytest.mark.parametrize(
    ("mode", "trains_in_slot"),
    [(Mode.CPU_SYNC, True), (Mode.CPU_CADENCE, True), (Mode.CPU_ASYNC, False)],
)
def test_only_a_mode_that_trains_on_gives_a_rank_memory_of_its_own(mode, trains_in_slot):
    job = linear_job()
    envelope = envelope_for(job, 2, mode=mode)
    slot = Slot.create(envelope.geometry)
    trainee = build_trainee(job, Seat(envelope=envelope, rank=0), slot)
    assert is_live(trainee.layout, slot.params) is trains_in_slot
    del trainee
    slot.close()


def test_a_copied_snapshot_has_the_bits_of_one_that_lies_in_the_slot():
    model, same = Odd(seed=3), Odd(seed=3)
    geometry = geometry_of(model)
    region = np.zeros(geometry.params_numel, np.float32)
    live = FlatLayout(model, geometry, params_memory=region)
    copied, slot, copy = (
        in_own_memory(same, geometry),
        MemorySlot(geometry, region),
        MemorySlot(geometry),
    )
    first, second = take_snapshot(live, slot, claim(1)), take_snapshot(copied, copy, claim(1))
    assert first == second
    np.testing.assert_array_equal(slot.params, copy.params)
    np.testing.assert_array_equal(slot.buffers, copy.buffers)


def test_training_on_changes_nothing_of_a_copied_snapshot():
    model = Odd(seed=3)
    geometry = geometry_of(model)
    layout, slot = in_own_memory(model, geometry), MemorySlot(geometry)
    take_snapshot(layout, slot, claim(1))
    params, buffers = slot.params.copy(), slot.buffers.copy()
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(tensor + 1)
    np.testing.assert_array_equal(slot.params, params)
    np.testing.assert_array_equal(slot.buffers, buffers)


def test_adoption_measures_the_snapshot_and_overwrites_the_model():
    model = nn.Linear(4, 1, bias=False)
    geometry = geometry_of(model)
    layout, slot = in_own_memory(model, geometry), MemorySlot(geometry)
    with torch.no_grad():
        model.weight.fill_(3.0)
    verdict = take_snapshot(layout, slot, claim(1))
    with torch.no_grad():
        model.weight.fill_(100.0)
    consensus = np.zeros(geometry.params_numel, np.float32)
    consensus[:4] = 2.0
    spans = active_spans(geometry, [True])
    found = adopt_and_measure(
        layout, consensus, snapshot=slot.params, spans=spans, norm=verdict.pre_norm
    )
    assert (found.divergence, found.pre_norm, found.post_norm) == (0.5, 6.0, 4.0)
    assert model.weight.tolist() == [[2.0] * 4]
    assert slot.params[:4].tolist() == [3.0] * 4


def test_ranks_that_train_on_meet_at_the_mean_of_their_snapshots():
    """Each rank goes on between its mark and the end of the cycle, for three cycles."""
    envelope = envelope_for(linear_job(), 2, mode=Mode.CPU_ASYNC)
    star = LocalStar(envelope)
    models = [nn.Linear(3, 2) for _ in range(2)]
    rounds = [
        RankRounds(in_own_memory(model, envelope.geometry), port)
        for model, port in zip(models, star.ports, strict=True)
    ]
    for cycle in range(3):
        for rank, model in enumerate(models):
            with torch.no_grad():
                model.weight.fill_(cycle + 4.0 * rank)
            rounds[rank].offer(claim(cycle, n=1 + 2 * rank))
            with torch.no_grad():
                model.weight.fill_(-50.0)
        for rank, model in enumerate(models):
            while (result := rounds[rank].wait(20.0)) is None:
                model.weight.data.add_(-1.0)
            assert result.outcome is SyncOutcome.COMMITTED
            assert result.divergence.pre_norm is not None
            assert (model.weight == cycle + 3.0).all()
    star.stop()
