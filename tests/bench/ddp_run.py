"""The recipe `synthetic` under torch's DistributedDataParallel, with the same waits, over gloo.

    python tests/bench/ddp_run.py --steps 5,5,60 --seconds 8

What it is: one process a rank, all in step; the model, optimizer, samples, batch and waits
of the recipe, and each batch read by its rank as the recipe's samples are. `ddp_rate`
returns the batches a second of all ranks together, after a few that are not counted.
What it is not: a part of the product.
Who drives it: `recipe_share`, or a person.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

import torch
import torch.distributed as dist
from jitter_job import Waits
from torch import nn
from torch.utils.data import default_collate

from flodl_core.recipes import synthetic
from flodl_core.recipes.synthetic import SyntheticSamples

WARM_STEPS = 10
LIMIT_S = 120.0


def ddp_rate(steps_ms: Sequence[float], seconds: float, *, jitter: float = 0.0) -> float:
    """Return the batches a second of all ranks.

    Args:
        steps_ms: what each rank's step waits, one a rank.
        seconds: how long is measured.
        jitter: each wait takes up to this part more or less.

    Raises:
        RuntimeError: a rank failed.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["--steps", ",".join(f"{step:g}" for step in steps_ms), "--seconds", str(seconds)]
    words += ["--jitter", str(jitter), "--port", str(port)]
    command = [sys.executable, __file__, *words, "--rank"]
    ranks = [
        subprocess.Popen(
            [*command, str(rank)],
            stdout=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        )
        for rank in range(len(steps_ms))
    ]
    try:
        said = [rank.communicate(timeout=LIMIT_S)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if any(rank.returncode for rank in ranks):
        raise RuntimeError("a rank of DistributedDataParallel failed; its error is above")
    return sum(float(json.loads(one)) for one in said)


def train(given: argparse.Namespace, steps_ms: Sequence[float]) -> float:
    """Train one rank of the cohort; return its batches a second."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    world, rank = len(steps_ms), given.rank
    at = f"tcp://127.0.0.1:{given.port}"
    dist.init_process_group("gloo", init_method=at, rank=rank, world_size=world)
    recipe = synthetic.job()
    model = nn.parallel.DistributedDataParallel(recipe.model())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    samples = SyntheticSamples(100_000_000)
    waits = Waits(steps_ms[rank], given.jitter, rank)

    def one(number: int) -> None:
        first = (number * world + rank) * recipe.batch_size
        features, values = default_collate(
            [samples[first + index] for index in range(recipe.batch_size)]
        )
        optimizer.zero_grad(set_to_none=True)
        nn.functional.mse_loss(model(features), values).backward()
        optimizer.step()
        threading.Event().wait(waits.next_s())

    for number in range(WARM_STEPS):
        one(number)
    dist.barrier()
    count = max(3, int(given.seconds * 1e3 / (max(steps_ms) + 2.0)))
    began = time.monotonic()
    for number in range(WARM_STEPS, WARM_STEPS + count):
        one(number)
    dist.barrier()
    rate = count / (time.monotonic() - began)
    dist.destroy_process_group()
    return rate


def main() -> None:
    """Train one rank, or measure a whole cohort and print its batches a second."""
    words = argparse.ArgumentParser()
    words.add_argument("--steps", default="5,5,60")
    words.add_argument("--seconds", type=float, default=8.0)
    words.add_argument("--jitter", type=float, default=0.0)
    words.add_argument("--rank", type=int)
    words.add_argument("--port", type=int)
    given = words.parse_args()
    steps_ms = [float(step) for step in given.steps.split(",")]
    if given.rank is None:
        print(f"{ddp_rate(steps_ms, given.seconds, jitter=given.jitter):.1f} batches/s")
    else:
        print(json.dumps(train(given, steps_ms)))


if __name__ == "__main__":
    main()
