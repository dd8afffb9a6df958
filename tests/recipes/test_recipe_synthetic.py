import pytest
import torch
from recipe_runs import score, train

from flodl_core.errors import JobError
from flodl_core.recipes import synthetic


@pytest.mark.parametrize("params", [17, 18, 100_000])
def test_the_model_has_exactly_the_parameters_that_were_asked_for(params):
    model = synthetic.job(params=params).model()
    assert sum(one.numel() for one in model.parameters()) == params


def test_buffers_are_float_and_integer_and_move_with_each_batch():
    job = synthetic.job(buffers=5)
    (context,), _ = train(job, ranks=1, windows=3)
    assert context.model.drift.shape == (5,)
    assert context.model.drift.abs().sum() > 0
    assert context.model.batches_seen.item() == 3
    assert "drift" not in dict(synthetic.job(buffers=0).model().named_buffers())


def test_evaluating_moves_no_buffer():
    job = synthetic.job()
    model = job.model()
    score(job, model)
    assert model.batches_seen.item() == 0


def test_a_sample_follows_from_its_index_alone():
    one, other = synthetic.SyntheticSamples(100), synthetic.SyntheticSamples(1000)
    assert len(one) == 100
    assert torch.equal(one[7][0], other[7][0])
    assert not torch.equal(one[7][0], one[8][0])
    with pytest.raises(IndexError):
        one[100]


@pytest.mark.parametrize("params", [17, 50_000])
def test_the_linear_map_is_learned_whatever_the_size(params):
    job = synthetic.job(params=params)
    contexts, _ = train(job, ranks=2, windows=40)
    assert score(job, contexts[0].model) < 0.2


@pytest.mark.slow
def test_twenty_million_parameters_stay_finite():
    job = synthetic.job(params=20_000_000, samples=64)
    (context,), losses = train(job, ranks=1, windows=3)
    assert torch.isfinite(context.model.ballast).all()
    assert losses[0] < 1e3


@pytest.mark.parametrize(
    ("given", "expected"),
    [(0, (0.0,)), (7, (7.0,)), ((5, 5.5, 20), (5.0, 5.5, 20.0))],
)
def test_extra_milliseconds_are_one_for_all_or_one_a_rank(given, expected):
    assert synthetic.wait_times_ms(given) == expected


def test_further_ranks_wait_as_long_as_the_last_named():
    waits = synthetic.wait_times_ms((5, 20))
    assert [synthetic.wait_of(waits, rank) for rank in range(4)] == [5.0, 20.0, 20.0, 20.0]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"params": 16}, "params"),
        ({"params": 1.5}, "params"),
        ({"samples": 0}, "samples"),
        ({"samples": True}, "samples"),
        ({"buffers": -1}, "buffers"),
        ({"step_ms": -1}, "step_ms"),
        ({"step_ms": float("nan")}, "step_ms"),
        ({"step_ms": (5, "x")}, "step_ms"),
        ({"step_ms": ()}, "step_ms"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(options, named):
    with pytest.raises(JobError, match=f"synthetic: {named} "):
        synthetic.job(**options)
