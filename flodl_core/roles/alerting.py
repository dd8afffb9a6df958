"""Where alerts go: log, journal, status document, events, and the user's own command.

`--on-event CMD` gets one alert as JSON on standard input and its class in
`FLODL_CHILD_EVENT`; it is bounded in time and number, ends with all it started, at the
latest with this process, and can neither stall nor fail the run: one that fails is an
alert, which no command is told. The end of the run is always told, and what still waits
then is not.
"""

import contextlib
import json
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import anyio

from flodl_core.ids import HostName, Rank
from flodl_core.net import clock
from flodl_core.net.children import UNKILLABLE_S, await_killed, python_command, spawn
from flodl_core.net.tied import GROUP
from flodl_core.roles.run_story import RunStory
from flodl_core.telemetry.alerts import AlertBook, AlertRecord, path_of
from flodl_core.telemetry.journal import Journal
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.telemetry.state import AlertState, WaitState
from flodl_core.units import Seconds

COMMAND_TIMEOUT_S: Seconds = 30.0
MAX_WAITING_COMMANDS = 64
RUN_ENDED = "run_ended"
COMMAND_FAILED = "on_event_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventCommand:
    """The user's command and what it is run for."""

    command: str
    classes: tuple[str, ...]
    """All if empty; the end of the run always."""
    env: Mapping[str, str]
    timeout_s: Seconds = COMMAND_TIMEOUT_S


class AlertDesk:
    """Takes alerts and passes on what the collapsing book emits."""

    def __init__(
        self,
        log: ProcessLog,
        journal: Journal,
        story: RunStory,
        *,
        command: EventCommand | None,
    ) -> None:
        self._log = log
        self._journal = journal
        self._story = story
        self._rank_at: dict[str, Rank] = {}
        self._command = command
        self._book = AlertBook()
        self._rows: list[AlertState] = []
        self.counts: Counter[str] = Counter()
        """How many of each class, of the whole run."""
        send, self._waiting = anyio.create_memory_object_stream[AlertRecord](MAX_WAITING_COMMANDS)
        self._to_command = send
        self._commands_over = anyio.Event()
        self._place: Callable[[Rank | None], tuple[HostName | None, int, int]] = _nowhere

    def set_world(self, place: Callable[[Rank | None], tuple[HostName | None, int, int]]) -> None:
        """Learn how to find a rank's host, the number of hosts and of ranks."""
        self._place = place

    def raise_alert(
        self,
        alert_class: str,
        detail: str,
        *,
        severity: str | None = None,
        rank: Rank | None = None,
    ) -> None:
        """Take an alert about a rank, or about the run."""
        host, hosts, ranks = self._place(rank)
        path = path_of(rank, host, hosts=hosts, ranks=ranks)
        if rank is not None:
            self._rank_at[path] = rank
        for record in self._book.raise_alert(
            alert_class, path, detail=detail, now=clock.now(), severity=severity
        ):
            self._emit(record)

    def flush_due(self) -> None:
        """Emit counts whose ten seconds are over; called about each second."""
        for record in self._book.flush_due(clock.now()):
            self._emit(record)

    def log_wait(self, wait: WaitState) -> None:
        """Write a wait that is worth a line into the launcher's log; it is no alert."""
        self._log.warning(
            "wait",
            rank=wait.rank,
            of_host=wait.host,
            phase=wait.phase,
            age_s=round(wait.age_s, 1),
            ceiling_s=wait.ceiling_s,
            then=wait.outcome,
        )

    def rows(self) -> tuple[AlertState, ...]:
        """Return the last alerts for the status document, oldest first."""
        return tuple(self._rows)

    async def finish(self, exit_code: int, reason: str) -> None:
        """Emit what is owed, tell the command that the run ended, and let it finish.

        One that runs is waited for until its own limit. The end is told next, with a limit of
        its own; alerts that still wait are told to no command.
        """
        self._announce_end(exit_code, reason)
        if self._command is not None:
            with anyio.move_on_after(2 * (self._command.timeout_s + UNKILLABLE_S)):
                await self._commands_over.wait()

    def _announce_end(self, exit_code: int, reason: str) -> None:
        for record in self._book.flush(clock.now()):
            self._emit(record)
        self._discard_waiting()
        if self._command is not None:
            end = AlertRecord(
                severity="info",
                alert_class=RUN_ENDED,
                path="root",
                detail=f"exit code {exit_code}: {reason}",
                count=1,
                raised_at_s=clock.now(),
            )
            self._hand_over(end)
        self._to_command.close()

    def _discard_waiting(self) -> None:
        discarded = []
        with contextlib.suppress(anyio.WouldBlock, anyio.EndOfStream, anyio.ClosedResourceError):
            while True:
                discarded.append(self._waiting.receive_nowait().alert_class)
        if discarded:
            classes = tuple(sorted(set(discarded)))
            self._log.warning("on_event_discarded", count=len(discarded), alert_classes=classes)

    async def run_commands(self) -> None:
        """Run the user's command for each alert that it asked for, until `finish`."""
        async with self._waiting:
            async for record in self._waiting:
                await self._run_command(record)
        self._commands_over.set()

    def _emit(self, record: AlertRecord) -> None:
        self._log.warning(
            "alert",
            alert_class=record.alert_class,
            severity=record.severity,
            path=record.path,
            detail=record.detail,
            count=record.count,
        )
        self.counts[record.alert_class] += record.count
        self._journal.append(record.path, record.as_record())
        self._story.alert(record, rank=self._rank_at.get(record.path))
        self._rows = [
            *self._rows[-49:],
            AlertState(
                severity=record.severity,
                alert_class=record.alert_class,
                path=record.path,
                detail=record.detail,
                count=record.count,
                at=clock.utc_iso(),
                uptime_s=self._story.history.uptime_s(),
            ),
        ]
        command = self._command
        if command is None or record.alert_class == COMMAND_FAILED:
            return
        if not command.classes or record.alert_class in command.classes:
            self._hand_over(record)

    def _hand_over(self, record: AlertRecord) -> None:
        try:
            self._to_command.send_nowait(record)
        except (anyio.WouldBlock, anyio.ClosedResourceError, anyio.BrokenResourceError):
            self._log.warning("on_event_skipped", alert_class=record.alert_class)

    async def _run_command(self, record: AlertRecord) -> None:
        assert self._command is not None
        body = json.dumps({"path": record.path, **record.as_record()})
        env = {**self._command.env, "FLODL_CHILD_EVENT": record.alert_class}
        try:
            with tempfile.TemporaryFile() as told:
                told.write(body.encode())
                told.seek(0)
                child = spawn(
                    python_command(
                        "flodl_core.net.tied", GROUP, "/bin/sh", "-c", self._command.command
                    ),
                    env=env,
                    stdin=told.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
        except OSError as error:
            self._command_failed(record, f"cannot be started: {error}")
            return
        try:
            with anyio.move_on_after(self._command.timeout_s):
                await child.wait()
        finally:
            status = child.status
            child.kill_group()
            is_dead = await await_killed(child.wait)
        if status is None:
            limit, then = f"{self._command.timeout_s:g} s", "was" if is_dead else "cannot be"
            self._command_failed(record, f"did not end in {limit} and {then} killed")
        elif status.code != 0:
            self._command_failed(record, f"ended with {status.signal or status.code}")

    def _command_failed(self, told: AlertRecord, why: str) -> None:
        self.raise_alert(
            COMMAND_FAILED, f"the command of --on-event {why}; it was told of {told.alert_class}"
        )


def _nowhere(_: Rank | None) -> tuple[HostName | None, int, int]:
    return None, 1, 1
