"""The log of one process: one line is one record.

What it is: `time LEVEL host/process event key=value …`, in a bounded file of
its own in the run directory, with a handler that brings Python's own logging
and tracebacks into the same lines.
What it is not: the journal, which holds records for machines to read.
Who drives it: roles, with an event name in the past tense or a noun and fields;
never with sentences built from values.
"""

import json
import logging
import re
import traceback
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Final

from flodl_core.telemetry.line_file import LineFile, escape_untrusted
from flodl_core.units import MIB

LOG_LIMIT_BYTES: Final = 16 * MIB

Value = bool | int | float | str | None | tuple[int, ...] | tuple[str, ...]

_BARE: Final = re.compile(r"[A-Za-z0-9_./:@%+,\-\[\]]+")


class Level(IntEnum):
    """How much a record matters."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class ProcessLog:
    """Writes the records of one process.

    Attributes:
        file: the bounded file under it, with its count of lost lines.
    """

    def __init__(
        self,
        path: Path,
        *,
        host: str,
        process: str,
        utc_iso: Callable[[], str],
        level: Level = Level.INFO,
        on_record: Callable[[Level, str], None] | None = None,
    ) -> None:
        """Make a log.

        Args:
            path: the file, such as `RunDirectory.log_path("rank3")`.
            host: this host's label.
            process: launcher, agent, relay or rankN.
            utc_iso: returns the time as ISO 8601.
            level: records below it are not written.
            on_record: also called with each record at or above WARNING.
        """
        self.file = LineFile(path, limit_bytes=LOG_LIMIT_BYTES)
        self._where = f"{format_value(host)}/{format_value(process)}"
        self._utc_iso = utc_iso
        self._level = level
        self._on_record = on_record

    def debug(self, event: str, /, **fields: Value) -> None:
        """Record what only somebody who hunts a fault wants to see."""
        self.record(Level.DEBUG, event, fields)

    def info(self, event: str, /, **fields: Value) -> None:
        """Record what happened."""
        self.record(Level.INFO, event, fields)

    def warning(self, event: str, /, **fields: Value) -> None:
        """Record what somebody should look at."""
        self.record(Level.WARNING, event, fields)

    def error(self, event: str, /, **fields: Value) -> None:
        """Record what failed."""
        self.record(Level.ERROR, event, fields)

    def exception(self, event: str, error: BaseException, /, **fields: Value) -> None:
        """Record what failed, with the traceback as one escaped field a frame line."""
        self.record(Level.ERROR, event, {**fields, "error": one_line(error)})
        for line in "".join(traceback.format_exception(error)).rstrip().splitlines():
            self.record(Level.ERROR, "traceback", {"line": line})

    def record(self, level: Level, event: str, fields: dict[str, Value]) -> None:
        """Write one record, if its level is written at all."""
        if level < self._level:
            return
        line = format_record(
            time=self._utc_iso(), level=level, where=self._where, event=event, fields=fields
        )
        self.file.append(line)
        if self._on_record is not None and level >= Level.WARNING and event != "traceback":
            self._on_record(level, line)

    def close(self) -> None:
        """Close the file."""
        self.file.close()


class StandardHandler(logging.Handler):
    """Brings records of Python's logging into a ProcessLog, with the logger as a field."""

    def __init__(self, log: ProcessLog) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; one that cannot be formatted is written as its template."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = str(record.msg)
        level = Level(max(10, min(40, record.levelno // 10 * 10)))
        self._log.record(level, "logged", {"logger": record.name, "message": message})
        if record.exc_info is not None and record.exc_info[1] is not None:
            self._log.exception("logged", record.exc_info[1], logger=record.name)


def format_record(
    *, time: str, level: Level, where: str, event: str, fields: dict[str, Value]
) -> str:
    """Return the line of one record; nothing in it can end the line."""
    head = f"{time} {level.name:<7} {where} {format_value(event)}"
    tail = " ".join(f"{format_value(key)}={format_value(value)}" for key, value in fields.items())
    return f"{head} {tail}" if tail else head


def format_value(value: Value) -> str:
    """Return a value as it stands in a record: bare where that is unambiguous, else quoted."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    text = ",".join(map(str, value)) if isinstance(value, tuple) else value
    if _BARE.fullmatch(text) and len(text) <= 4096:
        return text
    return json.dumps(escape_untrusted(text), ensure_ascii=False)


def one_line(error: BaseException) -> str:
    """Return `Class: text` of an error, on one line."""
    text = " ".join(str(error).split())
    return escape_untrusted(f"{type(error).__name__}: {text}" if text else type(error).__name__)
