"""A road to the controller through a machine that reaches it: the system's ssh, forwarding.

    agent ─▶ 127.0.0.1:free port ─▶ ssh ─▶ gateway ─▶ controller
What it is: one ssh with one forwarded port, up before anybody dials, ended with the agent
however that ends.
What it is not: the way of a launcher to its workers (`flodl_core.placement.roads`).
Who drives it: `Agent`, where `flodl join --ssh` was given.
"""

import os
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from flodl_core.errors import TransientJoinError
from flodl_core.net.addresses import join_host_port
from flodl_core.net.children import await_killed, own_environment, python_command, spawn
from flodl_core.placement.line_pipe import LineReader
from flodl_core.units import Seconds

UP_S: Seconds = 20.0
"""From the start of ssh to its word that the port is forwarded."""
UP_WORD = b"flodl-tunnel-is-up"
_TAIL_BYTES = 2000


@asynccontextmanager
async def open_tunnel(
    destination: str, controller: tuple[str, int], *, up_s: Seconds = UP_S
) -> AsyncIterator[tuple[str, int]]:
    """Forward a port of this machine to the controller; yields the address to dial.

    Args:
        destination: what ssh is told.
        controller: host and port as the machine there reaches them.
        up_s: ceiling until the tunnel is up.

    Raises:
        TransientJoinError: ssh did not get there; its own last line is told.
    """
    port = _free_port()
    read_end, write_end = os.pipe()
    reader = LineReader(read_end)
    with tempfile.TemporaryFile() as complaints:
        try:
            ssh = spawn(
                python_command("flodl_core.net.tied", *_words(destination, controller, port)),
                env=own_environment(),
                stdout=write_end,
                stderr=complaints,
            )
        finally:
            os.close(write_end)
        try:
            if not await _is_up(reader, up_s):
                ssh.kill_group()
                await await_killed(ssh.wait)
                complaints.seek(0)
                raise _not_up(destination, complaints.read(), up_s)
            yield "127.0.0.1", port
        finally:
            ssh.kill_group()
            await await_killed(ssh.wait)
            reader.close()


def explain_through(destination: str, controller: str) -> TransientJoinError:
    """Return what it means that nobody answers at the near end of a tunnel."""
    return TransientJoinError(
        f"{controller} does not answer through ssh {destination}",
        fix="check that the launcher is on, and that the machine there reaches that address",
    )


def _words(destination: str, controller: tuple[str, int], port: int) -> list[str]:
    """Return the words of ssh; its local command says that the port is forwarded."""
    words = ["ssh", "-N", "-T", "-a", "-x", "-S", "none"]
    for option in (
        "BatchMode=yes",
        "ConnectTimeout=10",
        "ServerAliveInterval=5",
        "ServerAliveCountMax=3",
        "ExitOnForwardFailure=yes",
        "PermitLocalCommand=yes",
        f"LocalCommand=echo {UP_WORD.decode()}",
    ):
        words += ["-o", option]
    return [*words, "-L", f"127.0.0.1:{port}:{join_host_port(*controller)}", destination]


async def _is_up(reader: LineReader, up_s: Seconds) -> bool:
    try:
        with anyio.fail_after(up_s):
            while await reader.next_line() != UP_WORD:
                pass
    except (TimeoutError, anyio.EndOfStream, ValueError):
        return False
    return True


def _not_up(destination: str, said: bytes, up_s: Seconds) -> TransientJoinError:
    lines = [line.strip() for line in said[-_TAIL_BYTES:].decode(errors="replace").splitlines()]
    last = next((line for line in reversed(lines) if line), f"no word within {up_s:g} s")
    return TransientJoinError(
        f"no tunnel through ssh {destination}: {last}",
        fix=f"make `ssh -o BatchMode=yes {destination} true` work first",
    )


def _free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])
