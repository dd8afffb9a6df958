"""The job contract: what TrainJob accepts, and what a step's helpers do."""

import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from flodl_core import TrainJob
from flodl_core.errors import JobError
from flodl_core.training.batches import move_batch
from flodl_core.training.callbacks import ARGUMENTS
from flodl_core.training.micro_batches import cut_batch
from flodl_core.training.step_context import Placement, StepContext

GOOD = {
    "model": lambda: nn.Linear(2, 1),
    "optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
    "dataset": lambda: [1, 2],
    "step": lambda ctx, batch: 0.0,
}


def context(optimizer=torch.optim.SGD, *, lr=0.1, **placement):
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    return StepContext(
        model, optimizer(model.parameters(), lr=lr), placement=Placement(**placement)
    )


def test_a_job_needs_four_functions_and_is_keyword_only():
    assert TrainJob(**GOOD).has_eval is False
    with pytest.raises(TypeError):
        TrainJob(GOOD["model"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("model", nn.Linear(2, 1).weight),
        ("step", 3),
        ("scheduler", 0.5),
        ("batch_size", 0),
        ("batch_size", True),
        ("batch_size", 2.5),
        ("epochs", -1),
        ("precision", "float64"),
        ("metric", lambda model, batches, device: 0.0),
        ("eval_dataset", lambda: [1]),
    ],
)
def test_a_field_that_cannot_be_used_is_named(field, value):
    with pytest.raises(JobError, match=field) as caught:
        TrainJob(**{**GOOD, field: value})
    assert caught.value.fix


WITH_EVAL = {
    **GOOD,
    "eval_dataset": lambda: [1],
    "metric": lambda model, batches, device: 0.0,
}


@pytest.mark.parametrize("field", ARGUMENTS)
def test_a_function_of_the_wrong_arguments_is_refused_with_those_it_is_given(field):
    needed = ARGUMENTS[field]
    names = ", ".join(needed)
    surplus = eval(f"lambda {', '.join([*needed, 'more'])}: None")
    with pytest.raises(JobError, match=rf"TrainJob.{field} cannot .* {field}\({names}\)") as caught:
        TrainJob(**{**WITH_EVAL, field: surplus})
    assert "missing a required argument: 'more'" in str(caught.value)
    assert caught.value.fix
    if needed:
        with pytest.raises(JobError, match="too many positional arguments"):
            TrainJob(**{**WITH_EVAL, field: lambda: None})
    fitting = eval(f"lambda {', '.join([*needed, 'more=1'])}: None")
    TrainJob(**{**WITH_EVAL, field: fitting})
    TrainJob(**{**WITH_EVAL, field: lambda *any_number: None})


def test_functions_whose_arguments_nobody_knows_are_taken():
    assert TrainJob(**{**GOOD, "compile": torch.compile, "scheduler": float}).compile


def test_a_metric_has_a_name():
    with pytest.raises(JobError, match="metric_name"):
        TrainJob(**{**WITH_EVAL, "metric_name": ""})


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 12))
def test_micro_batches_add_up_to_the_gradient_of_the_whole_batch(samples, micro_batch):
    torch.manual_seed(samples)
    x, y = torch.randn(samples, 3, dtype=torch.float64), torch.randn(samples, 1).double()
    gradients, losses = [], []
    for size in (None, micro_batch):
        ctx = context(micro_batch=size)
        ctx.model.double()
        losses.append(
            ctx.accumulate((x, y), lambda p, c=ctx: nn.functional.mse_loss(c.model(p[0]), p[1]))
        )
        gradients.append(ctx.model.weight.grad)
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-12, atol=1e-12)


def test_a_batch_may_be_any_tree():
    batch = {"x": [torch.arange(5), (torch.arange(5) * 2,)], "name": "all"}
    pieces = list(cut_batch(batch, 2))
    assert [share for _, share in pieces] == [0.4, 0.4, 0.2]
    assert pieces[2][0]["x"][1][0].tolist() == [8]
    assert pieces[0][0]["name"] == "all"
    assert move_batch(batch, torch.device("cpu"))["x"][0] is batch["x"][0]


@pytest.mark.parametrize("batch", [{"a": 1}, (torch.zeros(4), torch.zeros(3)), torch.tensor(1.0)])
def test_a_batch_that_cannot_be_cut_says_so(batch):
    with pytest.raises(JobError, match="batch"):
        list(cut_batch(batch, 2))


def test_a_step_through_the_helper_or_by_hand_counts_as_applied():
    for by_hand in (False, True):
        ctx = context()
        ctx.begin_batch(epoch=0, global_step=0, lr_factor=None)
        assert not ctx.finish_batch()
        ctx.backward(ctx.model(torch.ones(1, 3)).sum())
        assert by_hand or ctx.optimizer_step() is True
        if by_hand:
            ctx.optimizer.step()
        assert ctx.finish_batch()
        assert ctx.steps_applied == 1


@pytest.mark.parametrize("clip", [False, True])
def test_a_scaler_skips_a_step_with_infinite_gradients_and_says_so(clip):
    ctx = context(precision="float16")
    before = ctx.model.weight.detach().clone()
    for bad in (True, False):
        ctx.begin_batch(epoch=0, global_step=0, lr_factor=None)
        ctx.optimizer.zero_grad()
        ctx.backward(ctx.model(torch.ones(1, 3)).sum() * (float("inf") if bad else 1.0))
        if clip:
            ctx.clip_grad_norm(1.0)
        assert ctx.optimizer_step() is not bad
        assert ctx.finish_batch() is not bad
        assert torch.equal(ctx.model.weight, before) is bad
    assert ctx.steps_applied == 1


def test_scaled_gradients_are_clipped_by_their_true_norm():
    """The gradient of the sum of 3 weights × 1 and the bias is (1, 1, 1, 1): norm 2."""
    ctx = context(precision="float16")
    ctx.backward(ctx.model(torch.ones(1, 3)).sum())
    assert float(ctx.clip_grad_norm(0.5)) == pytest.approx(2.0)
    assert ctx.model.weight.grad.tolist()[0] == pytest.approx([0.25] * 3, rel=1e-4)


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [("float32", torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float16)],
)
def test_autocast_runs_in_the_jobs_precision(precision, dtype):
    ctx = context(precision=precision)
    with ctx.autocast():
        assert ctx.model(torch.ones(1, 3)).dtype == dtype


@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)])
def test_the_schedule_scales_the_first_rate_of_each_group(lr):
    ctx = context(torch.optim.Adam, lr=lr)
    for factor in (0.5, 0.1, 1.0):
        ctx.begin_batch(epoch=0, global_step=0, lr_factor=factor)
        assert ctx.learning_rate() == pytest.approx(0.1 * factor)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.Adagrad, torch.optim.LBFGS])
def test_a_reset_optimizer_is_as_new_and_still_trains(optimizer):
    ctx, fresh = context(optimizer), context(optimizer)

    def closure_of(c):
        def closure():
            c.optimizer.zero_grad()
            loss = (c.model(torch.ones(2, 3)) ** 2).sum()
            loss.backward()
            return loss

        return closure

    start = [p.detach().clone() for p in ctx.model.parameters()]
    ctx.optimizer.step(closure_of(ctx))
    ctx.reset_state()
    assert not any(p.grad.any() for p in ctx.model.parameters())
    with torch.no_grad():
        for p, value in zip(ctx.model.parameters(), start, strict=True):
            p.copy_(value)
    ctx.optimizer.step(closure_of(ctx))
    fresh.optimizer.step(closure_of(fresh))
    for mine, theirs in zip(ctx.model.parameters(), fresh.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_reset_optimizer_forgets_its_moments_and_nothing_else():
    ctx = context(torch.optim.Adam, lr=0.5, precision="float16")
    ctx.backward(ctx.model(torch.ones(1, 3)).sum() * float("inf"))
    ctx.optimizer_step()
    scale = ctx._scaler.get_scale()
    ctx.optimizer.zero_grad()
    ctx.backward(ctx.model(torch.ones(1, 3)).sum())
    assert ctx.optimizer_step()
    grads = [p.grad.clone() for p in ctx.model.parameters()]
    assert ctx.optimizer.state
    ctx.reset_optimizer()
    assert not ctx.optimizer.state
    assert ctx.learning_rate() == 0.5
    assert ctx._scaler.get_scale() == scale
    for one, grad in zip(ctx.model.parameters(), grads, strict=True):
        assert torch.equal(one.grad, grad)


def test_a_reset_scaler_has_its_first_scale_again():
    ctx = context(precision="float16")
    ctx.backward(ctx.model(torch.ones(1, 3)).sum() * float("inf"))
    first = ctx._scaler.get_scale()
    ctx.optimizer_step()
    assert ctx._scaler.get_scale() < first
    ctx.reset_state()
    ctx.backward(ctx.model(torch.ones(1, 3)).sum())
    assert ctx._scaler.get_scale() == first


def clipped(ctx, *, loss_times=1.0, steps=True):
    """Train a batch; return the gradient's norm and how far the step went."""
    ctx.begin_batch(epoch=0, global_step=0, lr_factor=None)
    ctx.optimizer.zero_grad()
    before = ctx.model.weight.detach().clone()
    ctx.backward(ctx.model(torch.ones(2, 3)).square().mean() * loss_times)
    norm = ctx.clip_grad_norm(1e9)
    if steps and torch.isfinite(norm):
        ctx.optimizer_step()
    ctx.finish_batch()
    return float(norm), float((ctx.model.weight.detach() - before).norm())


def test_a_batch_that_is_clipped_and_not_stepped_leaves_the_next_its_own_scale():
    ctx, other = context(precision="float16", lr=1e-3), context(precision="float16", lr=1e-3)
    assert clipped(ctx, steps=False)[1] == 0.0
    assert clipped(ctx) == clipped(other), "the gradient is taken for one without a scale"


def test_a_step_left_out_for_gradients_that_are_not_finite_brings_the_scale_down():
    ctx = context(precision="float16", lr=1e-3)
    assert not math.isfinite(clipped(ctx, loss_times=1e35)[0])
    assert not math.isfinite(clipped(ctx, loss_times=1e35)[0])
    assert ctx.scaler_state()["scale"] == 65536.0 / 4


def test_scalars_are_summed_with_their_counts_and_taken_once():
    ctx = context()
    ctx.scalar("right", 3.0, count=4)
    ctx.scalar("right", 1.0, count=4)
    ctx.scalar("right", torch.tensor([2], requires_grad=False), count=0)
    taken = ctx.take_scalars()
    assert {name: one.read() for name, one in taken.items()} == {"right": (6.0, 8.0)}
    assert ctx.take_scalars() == {}


@pytest.mark.parametrize("bad", [math.nan, math.inf, torch.tensor(math.nan)], ids=str)
def test_a_scalar_that_is_not_finite_is_left_out_with_its_count(bad):
    ctx = context()
    ctx.scalar("norm", 3.0, count=2)
    ctx.scalar("norm", bad, count=5)
    assert ctx.take_scalars()["norm"].read() == (3.0, 2.0)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("", 1.0), "was given the name ''"),
        (("x" * 65, 1.0), "was given the name 'xxx"),
        ((3, 1.0), "was given the name an int"),
        (("a", "high"), "the value of ctx.scalar('a')"),
        (("a", None), "the value of ctx.scalar('a')"),
        (("a", torch.ones(2)), "the value of ctx.scalar('a')"),
        (("a", 1.0, -1), "was given the count -1"),
        (("a", 1.0, math.nan), "was given the count nan"),
        (("a", 1.0, "4"), "was given the count '4'"),
    ],
)
def test_a_scalar_that_is_none_is_refused_by_name(words, said):
    name, value, *count = words
    with pytest.raises(JobError, match=re.escape(said)):
        context().scalar(name, value, **({"count": count[0]} if count else {}))


def test_a_run_notes_a_bounded_number_of_names():
    ctx = context()
    for number in range(64):
        ctx.scalar(f"class {number}", 1.0)
    ctx.scalar("class 0", 1.0)
    with pytest.raises(JobError, match="65 names, the last of them 'class 64'"):
        ctx.scalar("class 64", 1.0)
