"""Three hosts with addresses of their own: a launcher, one behind NAT, one behind a port forward.

Each is a network namespace with its own table of names: in none does the launcher's machine
name lead to the launcher, and no server of names answers. Needs root and TUN devices.
"""

import os
import platform
import subprocess
import sys
from pathlib import Path

from chaos_networks import NAMES, name_of, remove, remove_leftovers

ROUTER = str(Path(__file__).with_name("chaos_router.py"))
NOWHERE, NO_SERVER = "10.255.255.1", "10.255.255.2"
LAUNCHER_NAME = "launcher.lab"
"""Known on the host behind NAT only."""


class Hosts:
    """The three namespaces and the router between them, until `close`."""

    def __init__(self) -> None:
        remove_leftovers()
        self._names = {part: name_of(part) for part in ("launcher", "lan", "far")}
        for part, name in self._names.items():
            subprocess.run(["ip", "netns", "add", name], check=True)
            self._write_names(part, name)
        self._router = subprocess.Popen(
            [sys.executable, ROUTER, *self._names.values(), f"fr{os.getpid()}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._router.stdout is not None
        assert self._router.stdout.readline().strip() == "up"

    def through(self, part: str) -> tuple[str, ...]:
        """The command through which a host's commands are started."""
        return ("ip", "netns", "exec", self._names[part])

    def close(self) -> int:
        """End the router and take everything away.

        Returns:
            In how many packets the router could read the name of a host.
        """
        assert self._router.stdin is not None
        assert self._router.stdout is not None
        self._router.stdin.close()
        readable = int(self._router.stdout.readline())
        self._router.wait(10)
        self._router.stdout.close()
        for name in self._names.values():
            remove(name)
        return readable

    def _write_names(self, part: str, name: str) -> None:
        """Give a host a table of names that is wrong where it is not empty."""
        folder = NAMES / name
        folder.mkdir(parents=True, exist_ok=True)
        own = platform.node()
        known = [f"127.0.0.1 localhost\n{NOWHERE} guest-lan guest-far"]
        if part != "launcher":
            known.append(f"{NOWHERE} {own}")
        if part == "lan":
            known.append(f"10.78.0.1 {LAUNCHER_NAME}")
        (folder / "hosts").write_text("\n".join(known) + "\n")
        (folder / "resolv.conf").write_text(f"nameserver {NO_SERVER}\noptions timeout:60\n")
