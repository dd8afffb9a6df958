"""What an outer optimizer's numbers make of `charlm`, played in one process without any machinery.

    python tests/bench/outer_numbers.py --anchors 4,10 --outer nesterov:0.7:0.9,nesterov:0.7:0.5
    python tests/bench/outer_numbers.py --inner kept --lr 0.0069 --seeds 1,2,3

Three ranks of the task of `convergence`, one after the other, with counts in the ratio of
their speeds, weighted averages and the outer step of `flodl_core.reduce.outer`: a run takes
seconds of one core, so that many numbers can be tried. Prints the evaluation of each run as
it ends. Real runs of the best are `convergence`'s. It asserts nothing.
"""

import argparse
import copy
import statistics
from dataclasses import dataclass
from itertools import product

import numpy as np
import torch
from convergence_jobs import charlm
from torch import nn
from torch.utils.data import default_collate

from flodl_core.ids import OuterKind
from flodl_core.reduce.outer import OuterAvg, OuterRule, OuterStep, outer_rule
from flodl_core.training.job import Batch, TrainJob

RATIOS = (2.6, 2.0, 1.0)
"""Batches of each rank for one of the slowest, as `convergence` comes to have them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Of one run.

    Attributes:
        anchor: batches of the slowest rank in a window.
        rule: of the outer step.
        is_fresh: whether each window begins with a fresh optimizer.
        lr: the job's own.
    """

    anchor: int
    rule: OuterRule
    is_fresh: bool
    lr: float


class Replicas:
    """The ranks' models and optimizers, and the parameters that they adopted last."""

    def __init__(self, job: TrainJob, numbers: Numbers) -> None:
        first = job.model()
        self._job = job
        self._numbers = numbers
        self._models = [copy.deepcopy(first) for _ in RATIOS]
        for model in self._models:
            model.train()
        self._optimizers = [job.optimizer(model) for model in self._models]
        self._step = None if isinstance(numbers.rule, OuterAvg) else OuterStep(numbers.rule)
        self._adopted = _flat(first)
        self._velocity = np.zeros_like(self._adopted)
        self._windows = 0

    @property
    def model(self) -> nn.Module:
        """A model that holds what was adopted last."""
        return self._models[0]

    def train(self, rank: int, batch: Batch, lr: float) -> None:
        """Take one step of a rank."""
        model, optimizer = self._models[rank], self._optimizers[rank]
        for group in optimizer.param_groups:
            group["lr"] = lr
        inputs, targets = batch
        optimizer.zero_grad(set_to_none=True)
        logits = model(inputs).flatten(0, 1)
        torch.autograd.backward(nn.functional.cross_entropy(logits, targets.flatten()))
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    def average(self, counts: list[int]) -> None:
        """Average by counts, step the average but for the first, and have all adopt it."""
        total = np.zeros(self._adopted.size, np.float64)
        for model, count in zip(self._models, counts, strict=True):
            total += count * _flat(model)
        stepped = (total / sum(counts)).astype(np.float32)
        if self._step is not None and self._windows:
            after = np.empty_like(self._velocity)
            self._step.step(stepped, previous=self._adopted, before=self._velocity, after=after)
            self._velocity = after
        self._windows += 1
        self._adopted = stepped
        for model, optimizer in zip(self._models, self._optimizers, strict=True):
            # Each gets memory of its own: this makes parameters views into what it is given.
            nn.utils.vector_to_parameters(torch.from_numpy(stepped.copy()), model.parameters())
            if self._numbers.is_fresh:
                optimizer.state.clear()


def play(numbers: Numbers, seed: int) -> float:
    """Train one pass; return nats a character on held-out text."""
    torch.manual_seed(seed)
    job = charlm(lr=numbers.lr)
    assert job.dataset is not None
    assert job.scheduler is not None
    assert job.eval_dataset is not None
    assert job.metric is not None
    samples, held_out = job.dataset(), job.eval_dataset()
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(seed)).tolist()
    batches = [order[at : at + job.batch_size] for at in range(0, len(order), job.batch_size)]
    batches = [ids for ids in batches if len(ids) == job.batch_size]
    replicas, done = Replicas(job, numbers), 0
    whole = [round(numbers.anchor * ratio) for ratio in RATIOS]
    while done < len(batches):
        part = min(1.0, (len(batches) - done) / sum(whole))
        counts = [int(part * count) for count in whole]
        counts[0] += min(sum(whole), len(batches) - done) - sum(counts) if part < 1 else 0
        at = done
        for rank, count in enumerate(counts):
            for index in range(count):
                global_step = done + index * sum(counts) // count
                batch = default_collate([samples[one] for one in batches[at]])
                replicas.train(rank, batch, numbers.lr * job.scheduler(global_step))
                at += 1
        replicas.average(counts)
        done = at
    replicas.model.eval()
    pieces = (
        default_collate([held_out[one] for one in range(at, min(at + 64, len(held_out)))])
        for at in range(0, len(held_out), 64)
    )
    with torch.no_grad():
        return float(job.metric(replicas.model, pieces, torch.device("cpu")))


def _flat(model: nn.Module) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy().copy()


def read_rule(text: str) -> OuterRule:
    """Return the rule of `avg`, or of KIND:LR:MOMENTUM."""
    kind, _, numbers = text.partition(":")
    if not numbers:
        return outer_rule(OuterKind(kind), lr=None, momentum=None)
    lr, momentum = map(float, numbers.split(":"))
    return outer_rule(OuterKind(kind), lr=lr, momentum=momentum)


def main() -> None:
    """Play every combination and print it."""
    words = argparse.ArgumentParser()
    words.add_argument("--anchors", default="10")
    words.add_argument("--outer", default="avg,nesterov:0.7:0.5", help="avg or KIND:LR:MOMENTUM")
    words.add_argument("--inner", default="kept,fresh")
    words.add_argument("--lr", default="0.004")
    words.add_argument("--seeds", default="1")
    given = words.parse_args()
    torch.set_num_threads(1)
    anchors, seeds = map(int, given.anchors.split(",")), list(map(int, given.seeds.split(",")))
    rates, outers = map(float, given.lr.split(",")), given.outer.split(",")
    for anchor, lr, outer, inner in product(anchors, rates, outers, given.inner.split(",")):
        numbers = Numbers(anchor=anchor, rule=read_rule(outer), is_fresh=inner == "fresh", lr=lr)
        found = [play(numbers, seed) for seed in seeds]
        print(
            f"anchor {anchor}, lr {lr:g}, {outer}, {inner}: "
            f"{statistics.mean(found):.3f} ({min(found):.3f}-{max(found):.3f})",
            flush=True,
        )


if __name__ == "__main__":
    main()
