"""Whole runs on real GPUs: the same result on either plane, DDP's rates beside ours, a death.

    python tests/bench/gpu/runs_gpu.py --ranks 2 --what one same gpt kill stop

Runs are `flodl headless` with its own processes; rates are taken from the run's records,
the first quarter of the windows left out, so that neither start nor forming counts. One
JSON object a line.
"""

import argparse
import json
import os
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from flodl_core.net import clock

HERE = Path(__file__).resolve().parent
FLODL = [sys.executable, "-m", "flodl_core.cli.main", "headless"]
LONG_S = 120.0
BATCH = 8
STOPPED = 4


def tell(what: str, said: object) -> None:
    """Print one line."""
    print(json.dumps({"what": what, "said": said}), flush=True)


class Run:
    """One run in a directory of its own."""

    def __init__(self, *words: str, **extra: str) -> None:
        self.place = Path(tempfile.mkdtemp(prefix="flodl-gpu-"))
        self.process = subprocess.Popen(
            [*FLODL, "--port", "0", *words, "--json"],
            cwd=self.place,
            env={**os.environ, **extra},
            stdout=(self.place / "out.jsonl").open("wb"),
            stderr=(self.place / "err.txt").open("wb"),
        )

    @property
    def directory(self) -> Path:
        """The run's own directory."""
        return next((self.place / "runs").iterdir())

    def finish(self) -> int:
        """Wait for the end; return the exit code."""
        try:
            return self.process.wait(LONG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return -1

    def story(self) -> str:
        """The end of what it said."""
        said = (self.place / "err.txt").read_text()[-1500:]
        return said + (self.place / "out.jsonl").read_text()[-1500:]

    def cycle(self) -> int:
        """The newest cycle that it told of; 0 before the first."""
        rows = self.windows() if (self.place / "runs").exists() else []
        return rows[-1]["cycle"] if rows else 0

    def go_on(self, cycles: int) -> int:
        """Wait until it has averaged so many times more; return its newest cycle."""
        seen, began = self.cycle(), clock.now()
        while self.cycle() < seen + cycles and self.process.poll() is None:
            if clock.now() > began + LONG_S / 2:
                break
            select.select([], [], [], 0.05)
        return self.cycle()

    def mode(self) -> str:
        """The mode that it trained in."""
        rows = [json.loads(line) for line in (self.place / "out.jsonl").read_text().splitlines()]
        modes = [row["state"]["run"]["mode"] for row in rows if row.get("event") == "state"]
        return modes[-1] if modes else ""

    def said(self) -> list[str]:
        """Its alerts and its end, in its own words."""
        lines = (self.place / "out.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines if line.startswith("{")]
        return [
            row["text"] for row in rows if row.get("event") in ("alert", "saved", "nccl_session")
        ]

    def windows(self) -> list[dict[str, Any]]:
        """The records of its windows."""
        rows = []
        for path in sorted(self.directory.rglob("*.jsonl")):
            for line in path.read_text().splitlines():
                row = json.loads(line)
                if row.get("kind") == "window" and "samples_done" in row.get("row", {}):
                    rows.append(row["row"])
        return rows

    def rate(self) -> float | None:
        """Samples a second, from a quarter of its windows on to the last one."""
        rows = self.windows()
        if len(rows) < 4:
            return None
        first, last = rows[len(rows) // 4], rows[-1]
        return (last["samples_done"] - first["samples_done"]) / (
            last["uptime_s"] - first["uptime_s"]
        )

    def values(self) -> dict[str, torch.Tensor]:
        """The tensors of its bundle."""
        return load_file(next((self.directory / "checkpoints").glob("*.safetensors")))


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


class Crowd:
    """A run of `digits` on NCCL; ranks that outnumber the GPUs share one, each as a host."""

    def __init__(self, ranks: int, *words: str) -> None:
        self.agents: list[subprocess.Popen[bytes]] = []
        common = ("--mode", "nccl_cadence", "--epochs", "100000", *words)
        if ranks <= torch.cuda.device_count():
            self.run = Run("digits", "--ranks", str(ranks), *common)
            return
        where = ("--devices", "cuda:0", "--nccl-interface", "lo")
        port, job = free_port(), f"{HERE / 'crowd_job.py'}:job"
        alone = ("--ranks", "1", "--target-ranks", str(ranks), "--port", str(port))
        self.run = Run(job, *alone, *where, *common)
        wait_for(port)
        for number in range(1, ranks):
            place = self.run.place / f"host{number}"
            place.mkdir()
            mine = ("--host", place.name, "--job", job)
            agent = subprocess.Popen(
                [*FLODL[:-1], "join", f"127.0.0.1:{port}", *mine, *where],
                cwd=place,
                stdout=(place / "out.txt").open("wb"),
                stderr=subprocess.STDOUT,
            )
            self.agents.append(agent)

    def finish(self) -> int:
        """Wait for every end; return the launcher's exit code."""
        code = self.run.finish()
        for agent in self.agents:
            try:
                agent.wait(20)
            except subprocess.TimeoutExpired:
                agent.kill()
        return code

    def story(self, code: int) -> list[str]:
        """What it said; all of the end if that is not as it should be."""
        if code == STOPPED:
            return self.run.said()
        places = self.run.place.glob("host*/out.txt")
        return [self.run.story(), *(place.read_text()[-500:] for place in places)]


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def wait_for(port: int) -> None:
    """Wait until somebody listens there."""
    began = clock.now()
    while clock.now() < began + LONG_S / 2:
        with socket.socket() as sock:
            if sock.connect_ex(("127.0.0.1", port)) == 0:
                return
        select.select([], [], [], 0.2)


def kill(ranks: int) -> None:
    """Kill ranks one by one until one is left."""
    crowd = Crowd(ranks)
    run = crowd.run
    deaths: list[dict[str, Any]] = []
    for rank in reversed(range(1, ranks)):
        run.go_on(5)
        began = clock.now()
        for pid in _pids_of(f"rank{rank}"):
            os.kill(pid, signal.SIGKILL)
        deaths.append({"left": rank})
        if rank > 1:
            deaths[-1] |= {"next_cycle": run.go_on(1), "s": clock.now() - began}
    code = crowd.finish()
    said = {"code": code, "last_death_to_end_s": clock.now() - began, "deaths": deaths}
    tell("kill", {**said, "story": crowd.story(code), "left": left_on_gpus()})


def stop(ranks: int) -> None:
    """Stop a rank; the others go on without it. Wake it: it is told, and exits."""
    crowd = Crowd(ranks, "--heartbeat-timeout-s", "5")
    run = crowd.run
    run.go_on(5)
    began = clock.now()
    pids = _pids_of(f"rank{ranks - 1}")
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


def left_on_gpus() -> list[str]:
    """What still uses a GPU, as the driver says."""
    words = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=20).stdout.split("\n")
    except OSError:
        return ["no nvidia-smi"]


def _pids_of(name: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"flodl_core.roles.rank" in words and name.encode() in words:
            found.append(int(path.parent.name))
    return found


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
