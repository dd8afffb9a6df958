"""The placed process: what a road ends in on another host. Looks, reports, then joins.

    PlaceOrder ─▶ look ─▶ HostReport ─▶ JoinOrder ─▶ `flodl join` as a child ─▶ its exit code
Started by ssh, srun or a bridge of Ray with a pipe for standard input. The end of that pipe
is the end of the road. If the launcher can still be reached, whoever lent this host wants
it back, and everything here is ended. If not, the launcher is gone: the agent, which sees
that itself, is given a moment to let a rank leave what it has. It holds no torch.
"""

import argparse
import hashlib
import os
import signal
import sys
from pathlib import Path

import anyio
import anyio.abc

from flodl_core import __version__
from flodl_core.errors import FlodlError
from flodl_core.ids import ExitCode
from flodl_core.net import clock
from flodl_core.net.addresses import parse_host_port
from flodl_core.net.children import Child, job_environment, python_command, spawn
from flodl_core.net.tcp import open_tcp
from flodl_core.placement.dialog import HostReport, JoinOrder, PlaceOrder, line_of, read_line
from flodl_core.placement.greeter import REACH_S, hear_word
from flodl_core.placement.line_pipe import LineReader
from flodl_core.probe.facts import TorchFacts
from flodl_core.probe.machine import read_machine
from flodl_core.roles.probing import ask_torch
from flodl_core.units import Seconds

FIRST_ORDER_S: Seconds = 60.0
"""From the start to the launcher's first word."""
LEAVE_S: Seconds = 75.0
"""From the end of the launcher to the end of everything here: a rank may still write what it
has, which the agent itself gives a minute."""


def main() -> int:
    """Run the process; return its exit code."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--host", required=True, help="label of this host, for who reads ps")
    arguments.parse_args()
    return anyio.run(_run, backend="asyncio")


async def _run() -> int:
    reader = LineReader(os.dup(sys.stdin.fileno()))
    try:
        with anyio.fail_after(FIRST_ORDER_S):
            order = read_line(await reader.next_line(), PlaceOrder)
        env = _environment(order)
        report = await _look(order, env)
        # A login may have left its last line open.
        sys.stdout.buffer.write(b"\n" + line_of(report))
        sys.stdout.buffer.flush()
        joining = read_line(await reader.next_line(), JoinOrder)
    except (anyio.EndOfStream, TimeoutError):
        return ExitCode.JOIN_RUN_LOST
    except (ValueError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return ExitCode.FAILED
    return await _join(order, joining, env, reader)


def _environment(order: PlaceOrder) -> dict[str, str]:
    """Return the environment of the host's processes, in the directory that was ordered.

    Raises:
        OSError: there is no such directory.
    """
    if order.directory is not None:
        os.chdir(Path(order.directory).expanduser())
    data = Path(order.data).expanduser() if order.data is not None else None
    return {**job_environment(data), **order.env}


async def _look(order: PlaceOrder, env: dict[str, str]) -> HostReport:
    """Return what this host finds out about itself."""
    complaints = []
    reached = await _reach(order)
    if reached:
        complaints.append(reached)
    torch: TorchFacts | None = None
    try:
        torch = await ask_torch(env, timeout_s=order.timeout_s)
    except FlodlError as error:
        complaints.append(f"torch: {error.happened}")
    machine = read_machine(Path(), flodl=__version__)
    devices = torch.devices if torch is not None else ()
    complaints += [f"{one.device}: {one.error}" for one in devices if one.error is not None]
    if not _has_data(order.data):
        complaints.append(f"its data directory {order.data} is not there")
    return HostReport(
        host=order.host,
        machine=machine.machine,
        flodl=machine.flodl,
        python=machine.python,
        torch=torch.torch if torch is not None else None,
        devices=tuple(one.device for one in devices),
        gpus=tuple(one.title for one in devices if one.memory_bytes is not None),
        driver=machine.driver,
        memory_free_bytes=machine.memory_free_bytes,
        disk_free_bytes=machine.disk_free_bytes,
        job_sha256=_digest(order.job_file),
        utc_s=clock.utc_s(),
        complaints=tuple(complaints),
    )


async def _reach(order: PlaceOrder) -> str:
    """Return why the launcher cannot be reached from here, one clause; empty if it can."""
    try:
        said = await hear_word(*parse_host_port(order.controller))
    except FlodlError as error:
        return f"it cannot reach the launcher: {error.happened}"
    if said != order.word:
        return f"what it reaches at {order.controller} is another program, not the launcher"
    return ""


def _has_data(data: str | None) -> bool:
    return data is None or Path(data).expanduser().is_dir()


def _digest(job_file: str | None) -> str | None:
    if job_file is None:
        return None
    try:
        return hashlib.sha256(Path(job_file).expanduser().read_bytes()).hexdigest()
    except OSError:
        return None


async def _join(
    order: PlaceOrder, joining: JoinOrder, env: dict[str, str], reader: LineReader
) -> int:
    """Run the agent until it ends, or until the launcher has been gone for long enough."""
    agent = spawn(
        python_command("flodl_core.cli.main", "join", order.controller, *joining.words),
        env={**env, "FLODL_TOKEN": joining.token},
        stdout=sys.stderr.fileno(),
    )
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_end_with_road, reader, agent, order.controller)
            tasks.start_soon(_end_on_signal, agent)
            status = await agent.wait()
            tasks.cancel_scope.cancel()
    finally:
        agent.kill_group()
    return status.code if status.code >= 0 else ExitCode.FAILED


async def _end_with_road(reader: LineReader, agent: Child, controller: str) -> None:
    """End the agent after the road has ended: at once where only the road did."""
    try:
        while True:
            await reader.next_line()
    except (anyio.EndOfStream, ValueError):
        pass
    if not await _is_launcher_there(controller):
        await anyio.sleep(LEAVE_S)
    await agent.terminate_group()


async def _is_launcher_there(controller: str) -> bool:
    try:
        stream = await open_tcp(*parse_host_port(controller), connect_s=REACH_S)
    except FlodlError:
        return False
    stream.close()
    return True


async def _end_on_signal(agent: Child) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for _ in signals:
            await agent.terminate_group()


if __name__ == "__main__":
    sys.exit(main())
