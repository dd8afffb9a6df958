"""One host's session: the command that leads to it, and the dialog over its pipes.

    start ─▶ report ─▶ join ─▶ ended
What it is: a child process with its standard input and output; closing the input ends the
far end, however this process ends.
What it is not: a decision; `placed_hosts` has several sessions, `preflight` judges reports.
Who drives it: `placed_hosts`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import anyio

from flodl_core.net.children import Child, ExitStatus, spawn
from flodl_core.placement.dialog import (
    REPORT_MARK,
    HostReport,
    JoinOrder,
    PlaceOrder,
    line_of,
    read_line,
)
from flodl_core.placement.line_pipe import LineReader, LineWriter
from flodl_core.placement.roads import Approach
from flodl_core.units import Seconds

_TAIL_BYTES = 4096


class HostSession:
    """One way to a host, from its start to its end. Main thread only.

    Args:
        approach: the command.
        env: of the command.
        output: file that its standard error goes to, appended.

    Raises:
        OSError: the command is not there.
    """

    def __init__(self, approach: Approach, *, env: Mapping[str, str], output: Path) -> None:
        self.approach = approach
        self._output = output
        their_input, our_output = os.pipe()
        our_input, their_output = os.pipe()
        self._writer = LineWriter(our_output)
        self._reader = LineReader(our_input)
        try:
            with output.open("ab") as stderr:
                self._started_at = stderr.tell()
                self._child: Child = spawn(
                    approach.command, env=env, stdin=their_input, stdout=their_output, stderr=stderr
                )
        except BaseException:
            self._writer.close()
            self._reader.close()
            raise
        finally:
            os.close(their_input)
            os.close(their_output)

    async def ask(self, order: PlaceOrder) -> HostReport | None:
        """Have the host look at itself; None if the way ended before the report.

        A login may have printed before it, also without ending its line.

        Raises:
            ValueError: what came as a report is none.
        """
        try:
            await self._writer.write(line_of(order))
            while True:
                line = await self._reader.next_line()
                _, mark, rest = line.partition(REPORT_MARK)
                if mark:
                    return read_line(mark + rest, HostReport)
        except (anyio.EndOfStream, anyio.BrokenResourceError):
            await self._child.wait()
            return None

    async def join(self, order: JoinOrder) -> None:
        """Have the host join; a session that has ended takes it silently.

        Its end is, or will be, what `wait` returns.
        """
        try:
            await self._writer.write(line_of(order))
        except anyio.BrokenResourceError:
            return

    async def wait(self) -> ExitStatus:
        """Wait for the end of the session, and let go of what it printed."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._drain)
            status = await self._child.wait()
            tasks.cancel_scope.cancel()
        return status

    async def wait_ended(self) -> None:
        """Wait for the end of the command, whoever else does."""
        await self._child.wait()

    async def finish(self, grace_s: Seconds) -> None:
        """End the session: by the end of its input, by signals after `grace_s`."""
        self._writer.close()
        with anyio.move_on_after(grace_s):
            await self._child.wait()
        if self._child.status is None:
            await self._child.terminate_group(1.0)
        self._reader.close()

    def kill(self) -> None:
        """End the command at once; the far end sees the end of its input."""
        self._writer.close()
        self._child.kill_group()

    @property
    def status(self) -> ExitStatus | None:
        """How the command ended; None while it runs."""
        return self._child.status

    def last_words(self) -> str:
        """Return the error that the session printed, else its last line; empty if nothing."""
        try:
            with self._output.open("rb") as said:
                size = said.seek(0, os.SEEK_END)
                said.seek(max(self._started_at, size - _TAIL_BYTES))
                text = said.read().decode(errors="replace")
        except OSError:
            return ""
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()]
        return (errors or lines or [""])[-1]

    async def _drain(self) -> None:
        """Read on, so that nobody blocks on a full pipe."""
        while True:
            try:
                await self._reader.next_line()
            except (anyio.EndOfStream, ValueError):
                return
