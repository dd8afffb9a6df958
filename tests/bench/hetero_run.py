"""A real run of the product with unequal ranks, started for a measurement and ended after it.

What it is: `flodl headless` as a child with the job of `hetero_job`, its status document,
and the waits until it has averaged so and so often.
What it is not: a measurement.
Who drives it: `hetero_adapter` and `cadence_run`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hetero_tally import Tally, rest

JOB = Path(__file__).with_name("hetero_job.py")
LOOK_S = 0.25
END_S = 30.0


class HeteroRun:
    """One run; a context manager that ends it and removes its files.

    Args:
        sleeps_ms: what each rank's step waits, one a rank.
        job: a job of the product that notes nothing; the one of the bench if None.
        job_args: further arguments of the job.
        options: of `flodl headless`, beside those that every measurement has.

    Attributes:
        tally: what the ranks note.
    """

    def __init__(
        self,
        sleeps_ms: Sequence[float],
        *,
        job: str | None = None,
        job_args: dict[str, object] | None = None,
        options: Sequence[str] = (),
    ) -> None:
        memory = Path("/dev/shm")
        self._home = Path(tempfile.mkdtemp(prefix="flodl-bench-"))
        self._tally_path = (memory if memory.is_dir() else self._home) / f"{self._home.name}.tally"
        self.tally = Tally.create(self._tally_path, len(sleeps_ms))
        self._stem = self._home / "end" / "weights"
        args = dict(job_args or {})
        if job is None:
            args["tally"] = self._tally_path
            args["sleeps_ms"] = ",".join(f"{sleep:g}" for sleep in sleeps_ms)
        command = [
            *(sys.executable, "-m", "flodl_core.cli.main", "headless", job or f"{JOB}:job"),
            *("--ranks", str(len(sleeps_ms)), "--devices", "cpu", "--port", "0", "--json"),
            *("--checkpoint-every-s", "0", "--save-path", str(self._stem)),
            *("--run-dir", str(self._home / "runs"), *options),
        ]
        for name, value in args.items():
            command += ["--job-arg", f"{name}={value}"]
        environment = {key: value for key, value in os.environ.items() if key[:6] != "FLODL_"}
        self._out = (self._home / "out").open("wb")
        self._child = subprocess.Popen(
            command,
            stdout=self._out,
            stderr=subprocess.STDOUT,
            env={**environment, "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()
        self._out.close()
        shutil.rmtree(self._home, ignore_errors=True)
        self._tally_path.unlink(missing_ok=True)

    @property
    def weights(self) -> Path:
        """The file with the consensus; there after `end`."""
        return self._stem.with_suffix(".safetensors")

    def state(self) -> dict[str, Any]:
        """Return the status document; empty before the run answers."""
        port = next(iter(self._home.glob("runs/*/port")), None)
        if port is None:
            return {}
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port.read_text().strip()}/state.json", timeout=5
            ) as answer:
                found: dict[str, Any] = json.load(answer)
                return found
        except (OSError, ValueError):
            return {}

    def log_lines(self, word: str) -> list[str]:
        """Return the launcher's lines so far that hold a word."""
        found = []
        for log in self._home.glob("runs/*/logs/launcher.log"):
            found += [line for line in log.read_text().splitlines() if word in line]
        return found

    def wait_for_averages(self, count: int, limit_s: float = 80.0) -> dict[str, Any]:
        """Wait until the launcher has committed so many averages; return the document then.

        Raises:
            RuntimeError: the run ended, or did not come that far in time.
        """
        return self._wait(
            lambda state: ((state.get("reduce") or {}).get("version") or 0) >= count,
            f"{count} averages",
            limit_s,
        )

    def wait_for_windows(self, count: int, limit_s: float = 80.0) -> dict[str, Any]:
        """Wait until every rank trains on after so many averages; return the document then.

        Raises:
            RuntimeError: as for `wait_for_averages`.
        """
        return self._wait(lambda _: self.tally.windows_done() >= count, f"{count} windows", limit_s)

    def end(self) -> None:
        """Have the run stop and save, and wait for its end; later calls do nothing."""
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            if self._child.poll() is not None:
                return
            self._child.send_signal(number)
            try:
                self._child.wait(END_S)
            except subprocess.TimeoutExpired:
                continue

    def _wait(
        self, is_there: Callable[[dict[str, Any]], bool], what: str, limit_s: float
    ) -> dict[str, Any]:
        until = time.monotonic() + limit_s
        while self._child.poll() is None and time.monotonic() < until:
            if (state := self.state()) and is_there(state):
                return state
            rest(LOOK_S)
        tail = (self._home / "out").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"the run did not come to {what} in {limit_s:g} s:\n{tail}")
