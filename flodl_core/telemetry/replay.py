"""A recorded run, read again: its documents, windows and events at any moment.

What it is: positions of lines, kept small, and the documents that are rebuilt from them
on demand; a run of a whole day with many ranks needs a few megabytes.
What it is not: a clock, or what plays; it answers for a moment of the run's age.
Who drives it: the console's replay, one caller at a time. A call blocks for some
milliseconds: it reads files.

A run that was killed ends with what was written; of a run whose oldest lines were dropped
the first whole piece is the beginning. What a document says of hosts and ranks whose
records are gone is left out, and `missing` names it.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from flodl_core.errors import FlodlError
from flodl_core.ids import ExitCode
from flodl_core.telemetry.journal import node_file
from flodl_core.telemetry.merge_patch import Tree
from flodl_core.telemetry.record_rings import MAX_EVENTS, MAX_WINDOWS
from flodl_core.telemetry.record_tree import (
    LineStream,
    PieceCursor,
    RowIndex,
    read_body,
    read_head,
)
from flodl_core.telemetry.recorded_form import ROOT, SPLICED, joined
from flodl_core.telemetry.recorder import DOCUMENT, EVENT, WINDOW
from flodl_core.telemetry.records import EventPage, EventRecord, WindowPage, WindowRecord
from flodl_core.telemetry.state import StateDocument
from flodl_core.units import Seconds

RECORDS: Final = "records"

RecordT = TypeVar("RecordT", WindowRecord, EventRecord)


class NoRecordError(FlodlError):
    """Nothing that can be shown again lies there."""

    exit_code = ExitCode.USAGE


class RecordedRun:
    """One run's record.

    Args:
        tree: the directory `records` of the run.

    Raises:
        NoRecordError: it holds no document.

    Attributes:
        missing: sentences, one for each part of the record that is not there.
    """

    def __init__(self, tree: Path) -> None:
        self.missing: tuple[str, ...] = ()
        self._tree = tree
        self._stream = LineStream(node_file(tree, ROOT))
        self._root = PieceCursor(self._stream, spliced=SPLICED)
        self._nodes: dict[str, PieceCursor] = {}
        self._documents = RowIndex()
        self._windows = RowIndex()
        self._events = RowIndex()
        self._scan()
        if not self._documents.at_s:
            raise NoRecordError(
                f"{tree} holds no record of a run",
                fix="give the directory of a run, such as runs/night-0123456789abcdef",
            )

    @classmethod
    def open(cls, run_dir: Path) -> "RecordedRun":
        """Open the record of a run.

        Args:
            run_dir: the run's directory, or its `records`.

        Raises:
            NoRecordError: it holds no document.
        """
        return cls(run_dir / RECORDS if (run_dir / RECORDS).is_dir() else run_dir)

    @property
    def start_s(self) -> Seconds:
        """The run's age at the first document that is kept."""
        return self._documents.at_s[0]

    @property
    def length_s(self) -> Seconds:
        """The run's age at the last one."""
        return self._documents.at_s[-1]

    def times(self) -> Sequence[float]:
        """Return the run's age at each document, never decreasing."""
        return self._documents.at_s

    def document_at(self, position_s: Seconds) -> StateDocument | None:
        """Return the last document up to a moment; None before the first."""
        index = bisect_right(self._documents.at_s, position_s) - 1
        return self._document(index) if index >= 0 else None

    def documents_between(self, a_s: Seconds, b_s: Seconds) -> Iterator[StateDocument]:
        """Yield the documents after `a_s` and up to `b_s`, oldest first."""
        first = bisect_right(self._documents.at_s, a_s)
        for index in range(first, bisect_right(self._documents.at_s, b_s)):
            document = self._document(index)
            if document is not None:
                yield document

    def windows_until(self, position_s: Seconds, *, since: int = 0) -> WindowPage:
        """Return the last windows up to a moment that come after number `since`."""
        rows = self._rows(self._windows, WindowRecord, position_s, since, MAX_WINDOWS)
        return WindowPage(
            oldest_seq=rows[0].seq if rows else 0,
            newest_seq=rows[-1].seq if rows else since,
            records=tuple(rows),
        )

    def events_until(self, position_s: Seconds, *, since: int = 0) -> EventPage:
        """Return the last events up to a moment that come after number `since`."""
        rows = self._rows(self._events, EventRecord, position_s, since, MAX_EVENTS)
        return EventPage(
            oldest_seq=rows[0].seq if rows else 0,
            newest_seq=rows[-1].seq if rows else since,
            records=tuple(rows),
        )

    def _scan(self) -> None:
        """Find every line of the run's own file; a document needs a whole piece before it."""
        dropped = 0
        expected: int | None = None
        for offset, line in self._stream.lines():
            head = read_head(offset, line)
            if head is None:
                continue
            if head.kind == WINDOW:
                self._windows.add(head.at_s, offset)
            elif head.kind == EVENT:
                self._events.add(head.at_s, offset)
            elif head.kind == DOCUMENT and (head.is_whole or head.before == expected):
                expected = head.number
                self._documents.add(head.at_s, head.number)
            elif head.kind == DOCUMENT:
                dropped += 1
        if self._documents.at_s and dropped:
            self._note(f"{dropped} documents cannot be rebuilt: lines before them are gone")

    def _document(self, index: int) -> StateDocument | None:
        number = self._documents.keys[index]
        root = self._root.piece_at(number)
        if root is None:
            return None
        try:
            return joined(root, lambda path: self._piece(path, number))
        except (ValueError, TypeError, KeyError):
            self._note(f"document {number} is not readable")
            return None

    def _piece(self, path: str, number: int) -> Tree | None:
        cursor = self._nodes.get(path)
        if cursor is None:
            cursor = self._nodes[path] = PieceCursor(LineStream(node_file(self._tree, path)))
            if cursor.is_empty:
                self._note(f"there is no record of {path.removeprefix(ROOT + '/')}")
        return cursor.piece_at(number)

    def _rows(
        self, index: RowIndex, kind: type[RecordT], position_s: Seconds, since: int, limit: int
    ) -> list[RecordT]:
        end = bisect_right(index.at_s, position_s)
        rows: list[RecordT] = []
        for at in range(end - 1, max(end - limit, 0) - 1, -1):
            row = self._row(kind, index.keys[at])
            if row is None:
                continue
            if row.seq <= since:
                break
            rows.append(row)
        rows.reverse()
        return rows

    def _row(self, kind: type[RecordT], offset: int) -> RecordT | None:
        try:
            return kind.model_validate(read_body(self._stream.line_at(offset), "row"))
        except ValueError:
            return None

    def _note(self, sentence: str) -> None:
        if sentence not in self.missing:
            self.missing = (*self.missing, sentence)
