"""Parts of a host for tests: facts of its own, ranks that only wait, and what no signal ends."""

import os
import sys
import threading
from pathlib import Path

import anyio

from flodl_core.ids import HostName
from flodl_core.messages.job import JobRef
from flodl_core.net.children import Child, own_environment, spawn
from flodl_core.roles.host_children import HostFacts

WAITS = "import signal; signal.pause()"


def facts_of(place: Path, **given) -> HostFacts:
    usual = {
        "save_path": str(place / "model"),
        "log_path": lambda name: place / f"{name}.jsonl",
        "output_path": lambda name: place / f"{name}.out",
        "env": dict(os.environ),
    }
    return HostFacts(
        host=HostName("red"),
        job=JobRef(kind="module", name="test:job", args={}),
        job_path=None,
        micro_batch=None,
        loader_workers=None,
        **{**usual, **given},
    )


class Stuck:
    """A child that is stuck in the kernel: no signal ends it."""

    pid = 0
    status = None

    async def wait(self):
        await anyio.sleep_forever()

    def kill_group(self):
        """The signal waits for a process that does not come back."""

    async def terminate_group(self, grace_s=0.0):
        await self.wait()


def starts(code: str = WAITS, *, stuck: tuple[str, ...] = ()):
    """What starts ranks: processes that run `code`, but for those that are stuck."""

    def start(role, order, *, facts, process, pass_fds, threads=None) -> Child | Stuck:
        if process in stuck:
            return Stuck()
        return spawn([sys.executable, "-c", code], env=own_environment())

    return start


class Disk:
    """A disk that answers until it is told to hang; whoever asks then waits for its answer."""

    def __init__(self):
        self.answers, self.asked = threading.Event(), threading.Event()
        self.answers.set()

    def path(self, path: Path) -> Path:
        disk = self

        class OnDisk(type(path)):
            def stat(self, **options):
                disk.asked.set()
                disk.answers.wait(30)
                return super().stat(**options)

        return OnDisk(path)
