"""One file of the record tree, read without loading it.

A file and the older half beside it are one stream of lines. A line begins with a head
that a pattern finds without parsing the line; whole pieces stand every few lines, so any
document is at most that many lines away from one.

What it is: positions in the stream, and a cursor that rebuilds the piece of a document.
What it is not: a document; `replay` joins pieces.
Who drives it: `telemetry.replay`, from one thread at a time.

A line that was cut off, or that another program wrote, is left out. A piece whose line
before is missing is unknown until its next whole one.
"""

import json
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flodl_core.telemetry.merge_patch import Tree, patched
from flodl_core.units import KIB

_HEAD: Final = re.compile(
    rb'\{"v":\d+,"ts":"[^"]*","path":"[^"]*","kind":"(document|piece|window|event)"'
    rb'(?:,"n":(\d+),"p":(\d+))?(?:,"t":(-?[\d.eE+-]+))?,"(key|set|row)":'
)
_BLOCK_BYTES: Final = 32 * KIB
_ROW_BYTES: Final = 2 * KIB
_FAR: Final = 240
"""Documents ahead that are sought instead of read through."""


@dataclass(frozen=True, slots=True)
class Head:
    """What a line is, as far as its beginning tells."""

    offset: int
    """In the stream."""
    kind: str
    number: int
    """The document; 0 for a window or an event."""
    before: int
    """The document of the line before in this file; 0 for the first."""
    at_s: float
    """The run's age; 0 where the line does not say."""
    is_whole: bool


@dataclass(frozen=True, slots=True)
class _Part:
    """One of the two files."""

    path: Path
    start: int
    """In the stream."""
    size: int

    @property
    def end(self) -> int:
        return self.start + self.size


class LineStream:
    """The older and the newer half of one file as one stream of bytes, as long as it is now.

    No file stays open between two reads: a run may have thousands of nodes.

    Args:
        path: the newer half; the older one lies beside it with `.old`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._parts: list[_Part] = []
        for half in (path.with_name(path.name + ".old"), path):
            size = half.stat().st_size if half.is_file() else 0
            if size:
                self._parts.append(_Part(half, self.size, size))
                self.size += size

    def lines(self, offset: int = 0) -> Iterator[tuple[int, bytes]]:
        """Yield whole lines with their positions, from the one that begins at `offset` on."""
        for part in self._parts:
            at = max(offset, part.start)
            rest = b""
            while at + len(rest) < part.end:
                block = self._read(part, at + len(rest))
                if not block:
                    break
                *whole, rest = (rest + block).split(b"\n")
                for line in whole:
                    yield at, line
                    at += len(line) + 1

    def line_at(self, offset: int) -> bytes:
        """Return the whole line that begins at a position; empty if there is none."""
        for part in self._parts:
            line, at = b"", offset
            while part.start <= at < part.end:
                block = self._read(part, at, _ROW_BYTES)
                head, end, _ = block.partition(b"\n")
                line, at = line + head, at + len(block)
                if end:
                    return line
                if not block:
                    break
        return b""

    def line_after(self, offset: int) -> int:
        """Return where the first line begins at or after a position; the size if none does."""
        for part in self._parts:
            if offset <= part.start:
                return part.start
            at = offset - 1
            while at < part.end:
                block = self._read(part, at)
                found = block.find(b"\n")
                if found >= 0:
                    return at + found + 1
                if not block:
                    break
                at += len(block)
        return self.size

    @staticmethod
    def _read(part: _Part, at: int, limit: int = _BLOCK_BYTES) -> bytes:
        try:
            with part.path.open("rb") as file:
                file.seek(at - part.start)
                return file.read(min(limit, part.end - at))
        except OSError:
            return b""


def read_head(offset: int, line: bytes) -> Head | None:
    """Return what a line is; None if it is no record of a run."""
    match = _HEAD.match(line)
    if match is None:
        return None
    kind, number, before, at, body = match.groups()
    try:
        return Head(
            offset=offset,
            kind=kind.decode(),
            number=int(number or 0),
            before=int(before or 0),
            at_s=float(at or 0.0),
            is_whole=body == b"key",
        )
    except ValueError:
        return None


def read_body(line: bytes, key: str) -> Tree:
    """Return one object of a line.

    Raises:
        ValueError: the line holds no such object.
    """
    body = json.loads(line)
    value = body.get(key) if isinstance(body, Mapping) else None
    if not isinstance(value, dict):
        raise ValueError(f"a record without its {key}")
    return value


@dataclass(slots=True)
class RowIndex:
    """When the rows of one sort were made, and one number each: sixteen bytes a row."""

    at_s: "array[float]" = field(default_factory=lambda: array("d"))
    keys: "array[int]" = field(default_factory=lambda: array("q"))
    """Where the row begins in its stream, or the number of the document."""

    def add(self, at_s: float, key: int) -> None:
        """Enter a row; the run's age never goes back."""
        self.at_s.append(max(at_s, self.at_s[-1]) if self.at_s else at_s)
        self.keys.append(key)


class PieceCursor:
    """The piece of one node as of one document after the other; going back seeks.

    Args:
        stream: of the node's file.
        path: of the node in the tree; lines of another one are left out.
        spliced: keys whose lists are described by splices.
    """

    def __init__(self, stream: LineStream, *, spliced: frozenset[str] = frozenset()) -> None:
        self._stream = stream
        self._spliced = spliced
        self._piece: Tree | None = None
        self._number = 0
        """The document of the last line that was taken in."""
        self._lines: Iterator[tuple[int, bytes]] = iter(())
        self._next: tuple[Head, bytes] | None = None
        self._reached = 0

    @property
    def is_empty(self) -> bool:
        """Whether the file holds nothing at all."""
        return self._stream.size == 0

    def piece_at(self, number: int) -> Tree | None:
        """Return the piece as of a document; None if the record does not hold it."""
        if number < self._reached or number > self._reached + _FAR or not self._reached:
            self._seek(number)
        while self._next is not None and self._next[0].number <= number:
            head, line = self._next
            self._take(head, line)
            self._next = self._read_next()
        self._reached = number
        return self._piece

    def _seek(self, number: int) -> None:
        """Take in the last whole piece up to a document, and what follows it up to there."""
        self._piece, self._number = None, 0
        self._lines = self._stream.lines(self._find_whole(number))
        following: list[tuple[Head, bytes]] = []
        self._next = self._read_next()
        while self._next is not None and self._next[0].number <= number:
            if self._next[0].is_whole:
                following.clear()
            following.append(self._next)
            self._next = self._read_next()
        for head, line in following:
            self._take(head, line)

    def _find_whole(self, number: int) -> int:
        """Return where a whole piece up to a document begins, close to the last one.

        The stream is halved until what is left is one block to read.
        """
        low, high, found = 0, self._stream.size, 0
        while high - low > _BLOCK_BYTES:
            middle = (low + high) // 2
            head = self._whole_from(self._stream.line_after(middle), high)
            if head is None or head.number > number:
                high = middle
            else:
                found, low = head.offset, max(head.offset + 1, middle + 1)
        return found

    def _whole_from(self, offset: int, end: int) -> Head | None:
        for at, line in self._stream.lines(offset):
            if at >= end:
                return None
            head = read_head(at, line)
            if head is not None and head.is_whole:
                return head
        return None

    def _read_next(self) -> tuple[Head, bytes] | None:
        for offset, line in self._lines:
            head = read_head(offset, line)
            if head is not None and head.number:
                return head, line
        return None

    def _take(self, head: Head, line: bytes) -> None:
        follows = self._piece is not None and head.before == self._number
        self._number = head.number
        try:
            if head.is_whole:
                self._piece = read_body(line, "key")
            elif follows and self._piece is not None:
                self._piece = patched(self._piece, read_body(line, "set"), self._spliced)
            else:
                self._piece = None
        except ValueError:
            self._piece = None
