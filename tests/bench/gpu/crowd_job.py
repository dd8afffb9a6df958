"""The recipe `digits` for more ranks than GPUs, with a fault on a GPU if one is asked for.

    flodl headless tests/bench/gpu/crowd_job.py:job --ranks 1 --target-ranks 2 --devices cuda:0 \\
        --nccl-interface lo --mode nccl_cadence
    flodl join --host other --job tests/bench/gpu/crowd_job.py:job --devices cuda:0 \\
        --nccl-interface lo

NCCL takes a GPU once a host. What hosts are is what NCCL_HOSTID says, so ranks that share a
GPU average through sockets, as between hosts: slowly, and with everything that a death
between hosts does.
"""

import dataclasses
import os
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from flodl_core.recipes import digits
from flodl_core.training.batches import Batch
from flodl_core.training.job import TrainJob
from flodl_core.training.step_context import StepContext

os.environ.setdefault("NCCL_HOSTID", f"rank-of-{os.getpid()}")
NEVER = 10**15
"""Cycles of a kernel that outlasts every ceiling."""


def job(*, fault: str = "none", rank: int = 0, at: int = 1) -> TrainJob:
    """Return the job.

    Args:
        fault: none; hang, a kernel that does not end; nan, parameters that are not finite;
            memory, more than there is; illegal, an index out of bounds on the GPU. For every
            rank and batch: compiled, a step with torch's own CUDA graphs; graphed, a step
            that is one CUDA graph.
        rank: that it befalls.
        at: number of the batch, from 1, in that rank; nan befalls all from there on.
    """
    plain = digits.job()
    if fault == "compiled":
        return dataclasses.replace(plain, compile=compiled)
    if fault == "graphed":
        return dataclasses.replace(plain, step=graphed_step())
    seen = 0

    def faulty_step(ctx: StepContext, batch: Batch) -> torch.Tensor | float:
        nonlocal seen
        seen += 1
        if ctx.rank == rank and (seen == at or (fault == "nan" and seen > at)):
            go_wrong(ctx.model, fault)
        return plain.step(ctx, batch)

    return dataclasses.replace(plain, step=faulty_step)


def go_wrong(model: nn.Module, fault: str) -> None:
    """Do the fault's harm."""
    if fault == "hang":
        torch.cuda._sleep(NEVER)
    if fault == "nan":
        with torch.no_grad():
            next(model.parameters()).fill_(float("nan"))
    if fault == "memory":
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    if fault == "illegal":
        places = torch.tensor([1 << 30], device="cuda")
        torch.zeros(4, device="cuda")[places].add_(1.0)


def compiled(model: nn.Module) -> nn.Module:
    """Return the model with its forward and backward as CUDA graphs of torch's compiler."""
    made: nn.Module = torch.compile(model, mode="reduce-overhead")
    return made


def graphed_step() -> Callable[[StepContext, Batch], torch.Tensor]:
    """Return a step whose forward and backward are one CUDA graph; odd batches go without."""
    graphs: list[tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor, torch.Tensor]] = []
    warm = 3

    def step(ctx: StepContext, batch: Batch) -> torch.Tensor:
        nonlocal warm
        images, labels = batch
        if graphs and images.shape == graphs[0][1].shape:
            graph, held_images, held_labels, loss = graphs[0]
            held_images.copy_(images)
            held_labels.copy_(labels)
            graph.replay()
        else:
            loss = run(ctx, images, labels).detach()  # what holds no graph of autograd's
            warm -= 1
            if warm == 0:
                graphs.append(record(ctx, images, labels))
        ctx.optimizer_step()
        return loss.detach().clone()

    def run(ctx: StepContext, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        ctx.optimizer.zero_grad(set_to_none=False)
        loss = functional.cross_entropy(ctx.model(images), labels)
        loss.backward()
        return loss

    def record(
        ctx: StepContext, images: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor, torch.Tensor]:
        held_images, held_labels = images.clone(), labels.clone()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            run(ctx, held_images, held_labels)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss = run(ctx, held_images, held_labels)
        graph.replay()
        return graph, held_images, held_labels, loss

    return step
