"""Whole runs on GPUs, with their own processes: one host's, or a crowd that shares a GPU."""

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from flodl_core.net import clock

HERE = Path(__file__).resolve().parent
FLODL = [sys.executable, "-m", "flodl_core.cli.main", "headless"]
LONG_S = 120.0
STOPPED = 4
MARK = "GPU_RUN"
"""Variable that all processes of one run have alike."""
DEVICE = "cuda:0"
"""Of ranks that share one."""


def tell(what: str, said: object) -> None:
    """Print one line."""
    print(json.dumps({"what": what, "said": said}), flush=True)


class Run:
    """One run in a directory of its own."""

    def __init__(self, *words: str, place: Path | None = None, **extra: str) -> None:
        self.place = place or Path(tempfile.mkdtemp(prefix="flodl-gpu-"))
        self.env = {**os.environ, MARK: self.place.name, **extra}
        self.process = subprocess.Popen(
            [*FLODL, "--port", "0", *words, "--json"],
            cwd=self.place,
            env=self.env,
            stdout=(self.place / "out.jsonl").open("wb"),
            stderr=(self.place / "err.txt").open("wb"),
        )

    @property
    def directory(self) -> Path:
        """The run's own directory; the newest, if another went on from it."""
        return max((self.place / "runs").iterdir(), key=lambda path: path.stat().st_ctime_ns)

    def pids(self, role: str = "", name: str = "") -> list[int]:
        """Its processes; see `pids_of`."""
        return pids_of(self.place.name, role, name)

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
        modes = [row["state"]["run"]["mode"] for row in self.rows() if row.get("event") == "state"]
        return modes[-1] if modes else ""

    def rows(self) -> list[dict[str, Any]]:
        """What it printed, of whole lines."""
        lines = (self.place / "out.jsonl").read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line[-1] == "\n"]

    def said(self) -> list[str]:
        """Its alerts and its end, in its own words."""
        told = ("alert", "saved", "nccl_session")
        return [row["text"] for row in self.rows() if row.get("event") in told]

    def states(self) -> list[str]:
        """What each rank is doing now; nothing if the launcher does not answer."""
        try:
            port = int((self.directory / "port").read_text())
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/state.json", timeout=5) as answer:
                document = json.load(answer)
        except (OSError, ValueError):
            return []
        return [rank["state"] for rank in document["ranks"]]

    def summary(self) -> dict[str, Any]:
        """What it says at its end; nothing if it did not."""
        found = [row["summary"] for row in self.rows() if "summary" in row]
        return found[-1] if found else {}

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


class Crowd:
    """A run of `crowd_job`; ranks that outnumber the GPUs share one, each as a host."""

    def __init__(self, ranks: int, *words: str, place: Path | None = None) -> None:
        self.agents: list[subprocess.Popen[bytes]] = []
        job = f"{HERE / 'crowd_job.py'}:job"
        common = ("--mode", "nccl_cadence", *words)
        if ranks <= torch.cuda.device_count():
            self.run = Run(job, "--ranks", str(ranks), *common, place=place)
            return
        where = ("--devices", DEVICE, *(("--nccl-interface", "lo") if DEVICE != "cpu" else ()))
        port = free_port()
        alone = ("--ranks", "1", "--target-ranks", str(ranks), "--port", str(port))
        self.run = Run(job, *alone, *where, *common, place=place)
        wait_for(port)
        for number in range(1, ranks):
            host = self.run.place / f"host{number}"
            host.mkdir(exist_ok=True)
            mine = ("--host", host.name, "--job", job)
            agent = subprocess.Popen(
                [*FLODL[:-1], "join", f"127.0.0.1:{port}", *mine, *where],
                cwd=host,
                env=self.run.env,
                stdout=(host / "out.txt").open("wb"),
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

    def story(self, code: int, right: int = STOPPED) -> list[str]:
        """What it said; all of the end if that is not as it should be."""
        if code == right:
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


def left_on_gpus() -> list[str]:
    """What still uses a GPU, as the driver says."""
    words = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
    try:
        return subprocess.run(words, capture_output=True, text=True, timeout=20).stdout.split("\n")
    except OSError:
        return ["no nvidia-smi"]


def pids_of(mark: str, role: str, name: str = "") -> list[int]:
    """Return the processes of a run.

    Args:
        mark: the run's.
        role: launcher, agent, relay or rank; any if empty.
        name: a word of the command line, such as rank3; any if empty.
    """
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().split(b"\0")
            around = (place / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        is_role = not role or f"flodl_core.roles.{role}".encode() in words
        if f"{MARK}={mark}".encode() in around and is_role and (not name or name.encode() in words):
            found.append(int(place.name))
    return found
