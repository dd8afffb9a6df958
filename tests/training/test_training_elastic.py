"""A rank that trained on moves towards the consensus, and is lent it for an evaluation."""

import numpy as np
import pytest
import torch
from torch import nn
from training_cohort import LocalStar, StarEnd, envelope_for
from training_models import MemorySlot, Odd, geometry_of
from training_trained_on import claim, in_own_memory, linear_job

from flodl_core.ids import Mode, SyncOutcome
from flodl_core.reduce.buckets import Run, active_spans
from flodl_core.reduce.easgd import blend
from flodl_core.training.device_copies import PIECE_VALUES
from flodl_core.training.elastic import blend_params, blend_region, lent_consensus
from flodl_core.training.rounds import RankRounds
from flodl_core.training.snapshot import take_snapshot


class Cohort:
    """Ranks with the real plane between them, each with a Linear whose weight is one number."""

    def __init__(self, *, alpha=0.5, world=2, **spec):
        envelope = envelope_for(linear_job(), world, mode=Mode.CPU_ASYNC, **spec)
        self.star = LocalStar(envelope)
        self.models = [nn.Linear(3, 2) for _ in range(world)]
        self.rounds = [
            RankRounds(in_own_memory(model, envelope.geometry), port, alpha=alpha)
            for model, port in zip(self.models, self.star.ports, strict=True)
        ]

    def fill(self, *values):
        for model, value in zip(self.models, values, strict=True):
            with torch.no_grad():
                model.weight.fill_(value)

    def offer(self, cycle, *ns):
        return [r.offer(claim(cycle, n=n)) for r, n in zip(self.rounds, ns, strict=True)]

    def results(self):
        found = []
        for one in self.rounds:
            while (result := one.wait(20.0)) is None:
                pass
            found.append(result)
        return found

    @property
    def weights(self):
        return [model.weight.detach().numpy().copy() for model in self.models]


@pytest.fixture
def cohort():
    one = Cohort()
    yield one
    one.star.stop()


def test_every_parameter_of_every_kind_moves_half_way_and_keeps_its_later_steps():
    model = Odd(seed=3)
    geometry = geometry_of(model)
    layout, slot = in_own_memory(model, geometry), MemorySlot(geometry)
    take_snapshot(layout, slot, claim(1))
    consensus = np.random.default_rng(5).normal(size=geometry.params_numel).astype(np.float32)
    spans = active_spans(geometry, [segment.trainable for segment in geometry.params])
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    with torch.no_grad():
        for placed in layout.params:
            placed.home.add_(0.25)
    blend_params(layout, consensus, snapshot=slot.params, spans=spans, alpha=0.5)
    for segment in geometry.params:
        now = dict(model.named_parameters())[segment.name].detach()
        if not segment.trainable:
            assert torch.equal(now, before[segment.name] + 0.25)
            continue
        flat = torch.from_numpy(consensus[segment.offset : segment.offset + segment.numel].copy())
        if now.is_complex():
            flat = torch.view_as_complex(flat.view(-1, 2))
        view = next(view for view in segment.views if view.name == segment.name)
        target = flat.as_strided(view.shape, view.strides, view.storage_offset)
        exact = 0.5 * before[segment.name].to(torch.complex128) + 0.5 * target + 0.25
        error = 2.0**-7 if now.dtype == torch.bfloat16 else 2.0**-21
        assert torch.allclose(now.to(torch.complex128), exact, rtol=error, atol=error)


@pytest.mark.parametrize("alpha", [0.1, 0.5, 1.0])
@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda",
            marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
        ),
    ],
)
def test_a_region_on_a_device_moves_to_the_same_bits_as_one_in_host_memory(alpha, device):
    size = PIECE_VALUES + 1_000
    rng = np.random.default_rng(7)
    own, snapshot, consensus = (rng.normal(size=size).astype(np.float32) for _ in range(3))
    spans = [Run(3, 40), Run(64, size - 64)]
    region = torch.from_numpy(own.copy()).to(device)
    blend_region(region, snapshot, consensus, spans, alpha=alpha)
    blend(own, snapshot, consensus, spans, alpha=alpha)
    assert region.cpu().numpy().tobytes() == own.tobytes()


def test_the_initial_broadcast_is_overwritten_whatever_alpha_is(cohort):
    cohort.fill(1.0, 9.0)
    cohort.offer(0, 1, 0)
    assert [result.outcome for result in cohort.results()] == [SyncOutcome.COMMITTED] * 2
    assert all((weight == 1.0).all() for weight in cohort.weights)


def test_ranks_move_half_way_and_keep_what_they_trained_meanwhile(cohort):
    cohort.fill(0.0, 0.0)
    cohort.offer(0, 1, 0)
    cohort.results()
    cohort.fill(2.0, 8.0)
    cohort.offer(1, 1, 3)
    cohort.fill(2.5, 8.0)
    results = cohort.results()
    mean = (1 * 2.0 + 3 * 8.0) / 4
    assert [weight[0, 0] for weight in cohort.weights] == [(2 + mean) / 2 + 0.5, (8 + mean) / 2]
    assert results[0].divergence.post_norm == pytest.approx(
        np.sqrt(6 * mean**2 + float(np.square(cohort.models[0].bias.detach().numpy()).sum()))
    )


def test_a_rank_without_finite_values_becomes_the_consensus_as_a_whole(cohort):
    cohort.fill(0.0, 0.0)
    cohort.offer(0, 1, 0)
    cohort.results()
    cohort.fill(float("nan"), 4.0)
    assert [verdict.declared for verdict in cohort.offer(1, 2, 2)] == [True, False]
    results = cohort.results()
    assert results[0].outcome is SyncOutcome.DECLINED
    assert results[0].resets_state
    assert all((weight == 4.0).all() for weight in cohort.weights)


def test_a_poll_takes_all_rounds_that_have_ended_and_waits_for_none(cohort):
    cohort.fill(0.0, 0.0)
    cohort.rounds[0].offer(claim(0))
    assert cohort.rounds[0].poll() is None
    cohort.rounds[1].offer(claim(0, n=0))
    while cohort.rounds[1].wait(20.0) is None:
        pass
    result = None
    while result is None:
        result = cohort.rounds[0].poll()
    assert result.outcome is SyncOutcome.COMMITTED


def test_a_parameter_that_strayed_while_the_rank_trained_on_still_meets_the_consensus(cohort):
    cohort.fill(0.0, 0.0)
    cohort.offer(0, 1, 0)
    cohort.results()
    cohort.fill(2.0, 4.0)
    cohort.offer(1, 1, 1)
    cohort.models[0].weight.data = torch.full((2, 3), 2.5)
    results = cohort.results()
    assert results[0].strays == ("weight",)
    assert (cohort.weights[0] == (2.0 + 3.0) / 2 + 0.5).all()


def test_an_evaluation_sees_the_consensus_and_training_gets_its_own_bits_back(cohort):
    cohort.fill(0.0, 0.0)
    cohort.offer(0, 1, 0)
    cohort.results()
    cohort.fill(2.0, 4.0)
    cohort.offer(1, 1, 1)
    cohort.results()
    cohort.fill(2.75, 3.5)
    with cohort.rounds[0].lent_consensus():
        assert (cohort.models[0].weight == 3.0).all()
    assert (cohort.weights[0] == 2.75).all()


def test_what_is_lent_is_given_back_bit_by_bit_even_if_the_evaluation_raises():
    model = Odd(seed=3)
    geometry = geometry_of(model)
    layout = in_own_memory(model, geometry)
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rng = np.random.default_rng(5)
    params = rng.normal(size=geometry.params_numel).astype(np.float32)
    buffers = rng.normal(size=geometry.buffers_numel).astype(np.float32)
    spans = active_spans(geometry, [segment.trainable for segment in geometry.params])

    def evaluate():
        with lent_consensus(layout, params, buffers, spans=spans):
            assert not torch.equal(model.conv.weight, kept["conv.weight"])
            assert not torch.equal(model.norm.running_mean, kept["norm.running_mean"])
            assert torch.equal(model.frozen, kept["frozen"])
            assert torch.equal(model.counter, kept["counter"])
            raise RuntimeError("the metric failed")

    with pytest.raises(RuntimeError, match="the metric failed"):
        evaluate()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, kept[name]), name


def test_where_ranks_do_not_run_on_nothing_is_lent():
    envelope = envelope_for(linear_job(), 1)
    model = nn.Linear(3, 2)
    end = StarEnd.__new__(StarEnd)
    rounds = RankRounds(in_own_memory(model, envelope.geometry), end)
    before = model.weight.detach().clone()
    with rounds.lent_consensus():
        assert torch.equal(model.weight, before)
