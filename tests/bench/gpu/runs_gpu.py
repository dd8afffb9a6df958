"""Whole runs on real GPUs: the same result on either plane, DDP's rates beside ours, a death.

    python tests/bench/gpu/runs_gpu.py --ranks 2 --what one same gpt kill stop

Runs are `flodl headless` with its own processes; rates are taken from the run's records,
the first quarter of the windows left out, so that neither start nor forming counts. One
JSON object a line.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from whole_run import HERE, LONG_S, Crowd, Run, left_on_gpus, tell

from flodl_core.net import clock

BATCH = 8


def same(ranks: int) -> None:
    """The same job, seed and pinned counts on NCCL and through the root."""
    counts = ",".join(str(3 + 4 * rank) for rank in range(ranks))
    words = ("digits", "--ranks", str(ranks), "--pin-counts", counts, "--epochs", "2")
    runs = {mode: Run(*words, "--mode", mode) for mode in ("nccl_cadence", "cpu_cadence")}
    codes = {mode: run.finish() for mode, run in runs.items()}
    if any(codes.values()):
        tell("same", {"codes": codes, "story": [run.story() for run in runs.values()]})
        return
    ours, theirs = (run.values() for run in runs.values())
    apart = {
        name: float((ours[name] - value).norm() / value.norm().clamp_min(1e-30))
        for name, value in theirs.items()
        if value.is_floating_point()
    }
    syncs = len(runs["nccl_cadence"].windows())
    said = {"codes": codes, "relative": max(apart.values()), "tensors": len(apart), "syncs": syncs}
    tell("same", {**said, "reaches": max(apart.values()) <= syncs * 1e-6})


def one() -> None:
    """How long a batch takes in a run of one rank: where host and GPU are the only limits."""
    for name in ("gpt_job", "pictures_job"):
        words = (f"{HERE / name}.py:job", "--ranks", "1", "--mode", "cpu_cadence")
        run = Run(*words, "--overhead-target", "0.02", GPT_SAMPLES="6000")
        code, rate, rows = run.finish(), run.rate(), run.windows()
        said = {
            "code": code,
            "rate": rate,
            "ms_per_batch": [row["ms_per_batch"][0] for row in rows[-4:]],
        }
        tell(name, said if code == 0 else {**said, "story": run.story()})


def baseline(ranks: int, path: Path) -> dict[str, Any]:
    """DDP's rates, from the script beside ours."""
    done = subprocess.run(
        [sys.executable, str(path), str(ranks)], capture_output=True, text=True, timeout=LONG_S
    )
    if done.returncode:
        return {"error": done.stderr[-1500:]}
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def gpt(ranks: int, path: Path, samples: int) -> None:
    """Rates of the GPT beside DDP's."""
    ddp = baseline(ranks, path)
    tell("ddp", ddp)
    if "solo" not in ddp:
        return
    solo, step_ms = ddp["solo"], ddp["step_ms"]
    job = f"{HERE / 'gpt_job.py'}:job"
    equal = [1.0] * ranks
    fine = ("--overhead-target", "0.02")
    cases: dict[str, tuple[list[float], tuple[str, ...]]] = {
        "auto equal, 0.02": (equal, ("--mode", "auto", *fine)),
        "nccl one 3x, 0.02": ([*equal[1:], 3.0], ("--mode", "nccl_cadence", *fine)),
        "nccl one 6x, 0.02": ([*equal[1:], 6.0], ("--mode", "nccl_cadence", *fine)),
        "nccl equal": (equal, ("--mode", "nccl_cadence")),
        "nccl one 3x": ([*equal[1:], 3.0], ("--mode", "nccl_cadence")),
        "cpu equal, 0.02": (equal, ("--mode", "cpu_cadence", *fine)),
    }
    for name, (factors, words) in cases.items():
        extra = ",".join(f"{(factor - 1) * step_ms:.2f}" for factor in factors)
        ideal = sum(solo / factor for factor in factors)
        run = Run(
            *(job, "--ranks", str(ranks), *words),
            GPT_EXTRA_MS=extra,
            GPT_SAMPLES=str(int(samples * ideal / (solo * ranks)) // BATCH * BATCH),
        )
        code, rate = run.finish(), run.rate()
        syncs = [row["sync_ms"] for row in run.windows() if row.get("sync_ms")]
        said: dict[str, Any] = {
            "code": code,
            "rate": rate,
            "sum_of_solo": ideal,
            "ratio": rate / ideal if rate else None,
            "sync_ms": statistics.median(syncs) if syncs else None,
            "windows": len(run.windows()),
            "last": run.windows()[-1] if run.windows() else None,
            "mode": run.mode(),
        }
        tell(name, said if code == 0 else {**said, "story": run.story()})
    tell("ddp, again", baseline(ranks, path))  # a host's own speed may have changed meanwhile


def kill(ranks: int) -> None:
    """Kill ranks one by one until one is left."""
    crowd = Crowd(ranks, "--epochs", "100000")
    run = crowd.run
    deaths: list[dict[str, Any]] = []
    for rank in reversed(range(1, ranks)):
        run.go_on(5)
        began = clock.now()
        for pid in run.pids("rank", f"rank{rank}"):
            os.kill(pid, signal.SIGKILL)
        deaths.append({"left": rank})
        if rank > 1:
            deaths[-1] |= {"next_cycle": run.go_on(1), "s": clock.now() - began}
    code = crowd.finish()
    said = {"code": code, "last_death_to_end_s": clock.now() - began, "deaths": deaths}
    tell("kill", {**said, "story": crowd.story(code), "left": left_on_gpus()})


def stop(ranks: int) -> None:
    """Stop a rank; the others go on without it. Wake it: it is told, and exits."""
    crowd = Crowd(ranks, "--epochs", "100000", "--heartbeat-timeout-s", "5")
    run = crowd.run
    run.go_on(5)
    began = clock.now()
    pids = run.pids("rank", f"rank{ranks - 1}")
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    said: dict[str, Any] = {"next_cycle": run.go_on(2), "s": clock.now() - began}
    for pid in pids:
        try:
            os.kill(pid, signal.SIGCONT)
        except ProcessLookupError:
            said["gone"] = True  # who is evicted is killed, if it does not leave by itself
    run.go_on(5)
    run.process.send_signal(signal.SIGTERM)
    said["code"] = code = crowd.finish()
    tell("stop", {**said, "story": crowd.story(code), "left": left_on_gpus()})


def main() -> None:
    """Run what was asked for."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--ranks", type=int, default=2)
    arguments.add_argument("--what", nargs="+", default=["same", "gpt", "kill"])
    arguments.add_argument("--ddp", type=Path, default=Path("gpu_ddp_baseline.py"))
    arguments.add_argument("--samples", type=int, default=4096, help="of an equal run")
    arguments.add_argument("--kills", type=int, default=1)
    given = arguments.parse_args()
    if "one" in given.what:
        one()
    if "same" in given.what:
        same(given.ranks)
    for _ in range(given.kills if "kill" in given.what else 0):
        kill(given.ranks)
    if "stop" in given.what:
        stop(given.ranks)
    if "gpt" in given.what:
        gpt(given.ranks, given.ddp.resolve(), given.samples)


if __name__ == "__main__":
    main()
