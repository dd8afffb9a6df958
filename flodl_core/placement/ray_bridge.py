"""A bridge from standard input and output to an actor of a running Ray, one a host.

    launcher ── pipe ── bridge ── Ray ── actor ── pipe ── placed process (`roles.placed`)
What it is: a driver of Ray that owns one actor; the actor starts the placed process beside
it and passes lines both ways. Ray ends the actor with the bridge, and the end of the
actor's pipe ends the placed process, so that nothing outlives the launcher.
What it is not: torch, a decision, or a part of training: data travel over flodl's own port.
Who drives it: `session` starts it as a child, by the words of `roads.RayRoad`.
"""

import argparse
import os
import subprocess
import sys
import threading
from typing import Any

from flodl_core.net.children import own_environment, python_command
from flodl_core.net.parent_tie import tie_from_environment
from flodl_core.placement.roads import PLACED_MODULE

JOIN_LOST = 7
START_S = 600.0
"""How long Ray may look for room; the launcher's own ceiling is usually shorter."""


class PlacedActor:
    """What Ray places: a placed process, and the two ends of its pipes.

    Args:
        words: that start the process.
    """

    def __init__(self, words: list[str]) -> None:
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def write(self, line: bytes) -> None:
        """Pass a line on."""
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def read(self) -> bytes:
        """Return the next line of the process; empty at its end."""
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def close(self) -> None:
        """End the input of the process: the launcher is gone."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def wait(self) -> int:
        """Return the exit code of the process, once it has ended."""
        return self._process.wait()


def main() -> int:
    """Run the bridge; return the placed process's exit code."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--host", required=True)
    arguments.add_argument("--gpus", type=int, default=0)
    given = arguments.parse_args()
    tie_from_environment(own_environment())
    try:
        import ray
    except ImportError:
        sys.stderr.write("error: Ray is not installed here\n  Fix: pip install 'flodl[ray]'\n")
        return 1
    answer = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        ray.init(address="auto", log_to_driver=False, configure_logging=False)
        placed: Any = ray.remote(PlacedActor).options(
            num_cpus=0 if given.gpus else 1, num_gpus=given.gpus, max_concurrency=4
        )
        words = python_command(PLACED_MODULE, "--host", given.host)
        actor = placed.remote(words)
        ray.get(actor.__ray_ready__.remote(), timeout=START_S)
        threading.Thread(target=_pass_input, args=(ray, actor), daemon=True).start()
        while line := ray.get(actor.read.remote()):
            answer.write(line)
        return int(ray.get(actor.wait.remote()))
    except Exception as error:  # Ray has errors of many kinds, and all of them end the host
        text = " ".join(str(error).split())[:400]
        sys.stderr.write(f"error: Ray: {type(error).__name__}: {text}\n")
        return JOIN_LOST


def _pass_input(ray: Any, actor: Any) -> None:  # noqa: ANN401 - Ray is optional and untyped here
    """Pass lines of standard input on; its end is the launcher's."""
    for line in sys.stdin.buffer:
        ray.get(actor.write.remote(line))
    ray.get(actor.close.remote())


if __name__ == "__main__":
    sys.exit(main())
