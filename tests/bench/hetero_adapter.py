"""The product as a mode of the bench of unequal ranks.

    cd …/bench
    PYTHONPATH=/path/to/repo/tests/bench python hetero_bench.py --sleeps 5,5,60 \
        --rounds 3 --seconds 6 --limit 900 solo ddp hetero_adapter:run hetero_adapter:run_fine

`run` trains with the defaults of cpu_cadence, `run_fine` with an overhead target of
0.02, `run_sync` in cpu_sync. The bench's rank 0 starts a run of its own world: a
launcher and one process a rank. It waits until the counts have been measured, takes the
batches of a span, ends the run and tells the others, who meanwhile rest. The span's
batches and seconds are returned; what starting, calibrating and ending took is not in.

FLODL_BENCH_WINDOWS is the number of windows before the span, 12 if it is not set;
FLODL_BENCH_OPTIONS are further options of `flodl headless`. The loss that the bench
prints is that of the consensus at the end, which has trained through these windows too.
"""

import os
import shlex
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from hetero_run import HeteroRun
from hetero_tally import rest
from safetensors.torch import load_file
from torch import nn

WINDOWS = 12


def run(ctx: Any, seconds: float) -> float:
    """Return this rank's batches in a span of `seconds`, in cpu_cadence."""
    return _measure(ctx, seconds, ["--mode", "cpu_cadence"])


def run_fine(ctx: Any, seconds: float) -> float:
    """Return as `run` does, with an overhead target of 0.02."""
    return _measure(ctx, seconds, ["--mode", "cpu_cadence", "--overhead-target", "0.02"])


def run_sync(ctx: Any, seconds: float) -> float:
    """Return as `run` does, in cpu_sync."""
    return _measure(ctx, seconds, ["--mode", "cpu_sync"])


def _measure(ctx: Any, seconds: float, options: list[str]) -> float:
    sleeps = torch.zeros(ctx.world, dtype=torch.float64)
    sleeps[ctx.rank] = ctx.sleep * 1e3
    dist.all_reduce(sleeps, group=ctx.group)
    told: list[Any] = [None]
    if ctx.rank == 0:
        told = [_take_span(ctx, seconds, sleeps=sleeps.tolist(), options=options)]
    dist.broadcast_object_list(told, src=0, group=ctx.group)
    batches, span_s, weights = told[0]
    ctx.net.load_state_dict(weights)
    ctx.t0 = time.monotonic() - span_s
    return float(batches[ctx.rank])


def _take_span(
    ctx: Any,
    seconds: float,
    *,
    sleeps: list[float],
    options: list[str],
) -> tuple[list[float], float, dict[str, torch.Tensor]]:
    job_args = {
        "model": "cnn" if isinstance(ctx.net[0], nn.Conv2d) else "mlp",
        "batch": ctx.batch,
        "lr": ctx.lr,
    }
    windows = int(os.environ.get("FLODL_BENCH_WINDOWS", WINDOWS))
    options = options + shlex.split(os.environ.get("FLODL_BENCH_OPTIONS", ""))
    with HeteroRun(sleeps, job_args=job_args, options=options) as product:
        product.wait_for_averages(1 + windows)
        began = time.monotonic()
        rest(seconds)
        ended = time.monotonic()
        counts = (product.state().get("elche") or {}).get("batch_counts")
        print(f"  product: counts {counts}", file=sys.stderr)
        product.end()
        batches = [product.tally.count_between(rank, began, ended) for rank in range(len(sleeps))]
        return batches, ended - began, load_file(product.weights)
