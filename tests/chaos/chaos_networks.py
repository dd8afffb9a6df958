"""Two network namespaces with a wire between them that can be cut, slowed and healed.

Needs root and TUN devices. What a run that was killed left is taken away at the start.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from chaos_world import Roads

NAMES = Path("/etc/netns")
"""What `ip netns exec` lays over /etc, a directory a namespace."""
PREFIX = "flodlchaos"
NEAR, FAR = "10.77.0.1", "10.77.0.2"
WIRE = str(Path(__file__).with_name("chaos_wire.py"))


def why_not() -> str:
    """Return why no namespace can be made here; empty if one can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need the command ip"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "the wire between two namespaces needs /dev/net/tun"
    tried = subprocess.run(["ip", "netns", "add", name_of("try")], capture_output=True, text=True)
    if tried.returncode:
        return f"no network namespace can be made: {tried.stderr.strip()}"
    remove(name_of("try"))
    return ""


class Networks:
    """The two namespaces and the wire, until `close`."""

    def __init__(self) -> None:
        remove_leftovers()
        self._names = (name_of("near"), name_of("far"))
        for name in self._names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        self._wire = subprocess.Popen(
            [sys.executable, WIRE, *self._names, NEAR, FAR, f"fc{os.getpid()}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._hear("up")

    @property
    def roads(self) -> Roads:
        """How launcher and guest are started in them."""
        near, far = (("ip", "netns", "exec", name) for name in self._names)
        return Roads(near=near, far=far, address=NEAR)

    def order(self, words: str) -> None:
        """Tell the wire something, and wait until it is so."""
        assert self._wire.stdin is not None
        self._wire.stdin.write(words + "\n")
        self._wire.stdin.flush()
        self._hear("done")

    def close(self) -> None:
        """End the wire and take the namespaces away."""
        assert self._wire.stdin is not None
        assert self._wire.stdout is not None
        self._wire.stdin.close()
        self._wire.wait(10)
        self._wire.stdout.close()
        for name in self._names:
            remove(name)

    def _hear(self, word: str) -> None:
        assert self._wire.stdout is not None
        assert self._wire.stdout.readline().strip() == word


def name_of(end: str) -> str:
    """Return the name of a namespace of this process."""
    return f"{PREFIX}-{os.getpid()}-{end}"


def remove(name: str) -> None:
    """Take a namespace away, with the names that were known in it."""
    shutil.rmtree(NAMES / name, ignore_errors=True)
    subprocess.run(["ip", "netns", "del", name], check=True)


def remove_leftovers() -> None:
    """Take away the namespaces of runs that were killed."""
    listed = subprocess.run(["ip", "netns", "list"], check=True, capture_output=True, text=True)
    for line in listed.stdout.splitlines():
        name = line.split()[0] if line.split() else ""
        if name.startswith(PREFIX) and not Path(f"/proc/{name.split('-')[1]}").exists():
            remove(name)
