"""Standard output and standard error that nobody need be reading.

What it is: a thread that writes in the place of the one that prints, because a terminal that
was stopped (Ctrl-S, a sleeping ssh client) or a pager that pauses takes no bytes, and a run
whose event loop waited for it would be taken for dead by its ranks.
What it is not: a format, or what becomes of an error; `lines` has that.
Who drives it: `headless` and `join`, which outlive their readers.
"""

import contextlib
import io
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TextIO

from flodl_core.cli.lines import lose_stream, silence_stream
from flodl_core.units import KIB, MIB, Seconds

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

BEHIND_BYTES: Final = 64 * KIB
"""Beyond what the kernel keeps: a reader who left that much untaken gets no further pictures."""
MOST_BYTES: Final = MIB
"""What is printed while that much waits is left out."""
IDLE_S: Seconds = 30.0
"""At the end: how long the reader may take nothing before the rest is given up."""
_CHUNK_BYTES: Final = 64 * KIB


class PatientStreams:
    """What waits to be written, for one thing that is read: a terminal, a pipe, a file.

    Args:
        most_bytes: what may wait; more is left out.
    """

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
        self._errors: dict[int, OSError] = {}
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="output", daemon=True)
        self._thread.start()

    def is_behind(self) -> bool:
        """Return whether the reader has stopped taking what was written."""
        return self._waiting_bytes > BEHIND_BYTES

    def put(self, descriptor: int, data: bytes) -> None:
        """Have bytes written; returns at once.

        Raises:
            OSError: what an earlier write of this descriptor failed with; told once.
        """
        with self._changed:
            if (error := self.take_error(descriptor)) is not None:
                raise error
            if self._waiting_bytes + len(data) <= self._most_bytes:
                self._waiting.append((descriptor, data))
                self._waiting_bytes += len(data)
                self._changed.notify_all()

    def take_error(self, descriptor: int) -> OSError | None:
        """Return what writing of a descriptor failed with, if nobody was told."""
        with self._changed:
            return self._errors.pop(descriptor, None)

    def finish(self, idle_s: Seconds = IDLE_S) -> bool:
        """Wait until all is written; return False where the reader takes nothing for `idle_s`."""
        with self._changed:
            while self._waiting_bytes:
                before = self._waiting_bytes
                if not self._changed.wait_for(lambda: self._waiting_bytes != before, idle_s):  # noqa: B023 - called before the loop goes on
                    return False
            self._is_over = True
            self._changed.notify_all()
        return True

    def _run(self) -> None:
        while (taken := self._next()) is not None:
            descriptor, data = taken
            try:
                for at in range(0, len(data), _CHUNK_BYTES):
                    self._write(descriptor, memoryview(data)[at : at + _CHUNK_BYTES])
            except OSError as error:
                with self._changed:
                    self._errors[descriptor] = error
                    kept = [one for one in self._waiting if one[0] != descriptor]
                    self._waiting = deque(kept)
                    self._waiting_bytes = sum(len(one) for _, one in kept)
                    self._changed.notify_all()

    def _next(self) -> tuple[int, bytes] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_over)
            return self._waiting.popleft() if self._waiting else None

    def _write(self, descriptor: int, data: memoryview) -> None:
        while data:
            written = os.write(descriptor, data)
            data = data[written:]
            with self._changed:
                self._waiting_bytes -= written
                self._changed.notify_all()


class _Raw(io.RawIOBase):
    """One descriptor's bytes, put where they wait."""

    def __init__(self, streams: PatientStreams, descriptor: int) -> None:
        self._streams, self._descriptor = streams, descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    def write(self, data: "ReadableBuffer", /) -> int:
        given = bytes(data)
        self._streams.put(self._descriptor, given)
        return len(given)


@contextlib.contextmanager
def patient_streams(*, idle_s: Seconds = IDLE_S) -> Iterator[Callable[[], bool]]:
    """Let printing wait for nobody, inside the block; yields whether a reader is behind.

    At the end what waits is written, as long as the reader takes any of it within `idle_s`.
    """
    before = sys.stdout, sys.stderr
    used = [stream for stream in before if _has_descriptor(stream)]
    made: dict[int, PatientStreams] = {}
    for stream in used:
        descriptor = stream.fileno()
        same = [one for one in made if os.path.sameopenfile(one, descriptor)]
        made[descriptor] = made[same[0]] if same else PatientStreams()
        stream.flush()
    sys.stdout, sys.stderr = (
        _patient(stream, made[stream.fileno()]) if stream in used else stream for stream in before
    )
    try:
        yield lambda: any(streams.is_behind() for streams in made.values())
    finally:
        sys.stdout, sys.stderr = before
        for streams in dict.fromkeys(made.values()):
            _end(streams, [one for one in used if made[one.fileno()] is streams], idle_s)


def _end(streams: PatientStreams, ending: list[TextIO], idle_s: Seconds) -> None:
    """Write what waits, or give it up, also where Ctrl-C ends the waiting."""
    is_written = False
    try:
        is_written = streams.finish(idle_s)
    finally:
        for stream in ending:
            if not is_written:
                silence_stream(stream)
            elif (error := streams.take_error(stream.fileno())) is not None:
                lose_stream(stream, error)


def _patient(stream: TextIO, streams: PatientStreams) -> TextIO:
    return io.TextIOWrapper(
        _Raw(streams, stream.fileno()),  # type: ignore[type-var]
        encoding=stream.encoding,
        errors="backslashreplace",
        write_through=True,
    )


def _has_descriptor(stream: TextIO | None) -> bool:
    if stream is None:
        return False
    try:
        os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return True
