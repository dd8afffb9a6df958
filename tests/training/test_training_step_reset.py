"""What a step context forgets, and what it leaves where it is."""

import torch
from torch import nn

from flodl_core.training.step_context import Placement, StepContext


def context():
    model = nn.Linear(3, 1)
    return StepContext(model, torch.optim.SGD(model.parameters(), lr=0.1), placement=Placement())


def test_gradients_that_are_not_finite_are_forgotten_in_their_place():
    # a CUDA graph of the job goes on writing to the gradients that it was recorded with
    ctx = context()
    ctx.model(torch.ones(2, 3)).sum().backward()
    held = [parameter.grad for parameter in ctx.model.parameters()]
    for gradient in held:
        gradient.fill_(float("nan"))
    ctx.reset_state()
    for parameter, gradient in zip(ctx.model.parameters(), held, strict=True):
        assert parameter.grad is gradient
        assert not gradient.any()
    before = [parameter.detach().clone() for parameter in ctx.model.parameters()]
    ctx.optimizer.step()
    for parameter, value in zip(ctx.model.parameters(), before, strict=True):
        assert torch.equal(parameter, value)


def test_a_step_that_nobody_saw_counts_when_it_is_noted():
    ctx = context()
    ctx.begin_batch(epoch=0, global_step=0, lr_factor=None)
    assert not ctx.finish_batch()
    ctx.begin_batch(epoch=0, global_step=1, lr_factor=None)
    ctx.note_step()
    assert ctx.finish_batch()
    assert ctx.steps_applied == 1
