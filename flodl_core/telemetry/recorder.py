"""The recorder: keeps what a run published, so that it can be shown again.

    records/root.jsonl             the run, its events and its windows
    records/root/red.jsonl         a host
    records/root/red/rank3.jsonl   a rank

A file holds a whole piece every 120 lines and changes in between. Documents are kept once
a second, and at once when something is told. Windows follow each other faster than that
in Sync: they get a share of the disk, and those beyond it are left out.

What it is: bounded queues of what was published, and the cutting of it into lines.
What it is not: a writer; the journal bounds and writes, in the same worker thread.
Who drives it: the launcher hands over from its event loop, which costs nothing, and calls
`write` from a worker thread about once a second and at the end.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, TypeVar

from flodl_core.ids import RankPhase
from flodl_core.telemetry.journal import Journal
from flodl_core.telemetry.merge_patch import Tree, difference
from flodl_core.telemetry.recorded_form import (
    ROOT,
    SPLICED,
    DocumentParts,
    NodeNames,
    cut,
    tidied,
)
from flodl_core.telemetry.records import EventRecord, WindowRecord
from flodl_core.telemetry.state import StateDocument
from flodl_core.units import Seconds

KEY_EVERY: Final = 120
"""Lines of a file from one whole piece to the next."""
RECORD_EVERY_S: Final[Seconds] = 1.0
WINDOW_BYTES_A_SECOND: Final = 1_024

DOCUMENT: Final = "document"
"""A line of the run's own piece: there is one for every document that is kept."""
PIECE: Final = "piece"
"""A line of a host's or a rank's piece, where it changed."""
WINDOW: Final = "window"
EVENT: Final = "event"

_WAITING_DOCUMENTS: Final = 16
_WAITING_ROWS: Final = 2_048
_FATES: Final = frozenset({RankPhase.LOST, RankPhase.DONE})

ThingT = TypeVar("ThingT")


@dataclass(slots=True)
class _Node:
    """What the file of one piece says so far."""

    tree: Tree = field(default_factory=dict)
    number: int = 0
    """The document of its last line; 0 before the first."""
    lines: int = 0
    """Since and with the last whole piece."""


class RunRecorder:
    """Turns what is published into records.

    Args:
        journal: of the run; nobody else writes into its tree.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._documents: deque[StateDocument] = deque(maxlen=_WAITING_DOCUMENTS)
        self._windows: deque[WindowRecord] = deque(maxlen=_WAITING_ROWS)
        self._events: deque[EventRecord] = deque(maxlen=_WAITING_ROWS)
        self._names = NodeNames()
        self._nodes: dict[str, _Node] = {}
        self._number = 0
        self._lost_before = 0
        self._parts: DocumentParts | None = None
        self._told: object = None
        self._recorded_at_s: Seconds = -RECORD_EVERY_S
        self._held: StateDocument | None = None
        self._held_window: WindowRecord | None = None
        self._window_due_s: Seconds = 0.0

    def take_document(self, document: StateDocument) -> None:
        """Queue a document; never slow. If too many wait, the oldest is let go."""
        self._documents.append(document)

    def take_window(self, window: WindowRecord) -> None:
        """Queue a window; never slow. If too many wait, the oldest is let go."""
        self._windows.append(window)

    def take_event(self, event: EventRecord) -> None:
        """Queue an event; never slow. If too many wait, the oldest is let go."""
        self._events.append(event)

    def write(self) -> None:
        """Record what waits and write it; may block on a slow disk. One thread at a time."""
        self._record_waiting()
        self._journal.flush()

    def close(self) -> None:
        """Record what is left, the newest document and window included, and close the files.

        What is taken after that is recorded by the next `close`.
        """
        self._record_waiting()
        if self._held is not None:
            self._keep_document(self._held)
        if self._held_window is not None:
            self._keep_window(self._held_window)
        self._journal.close()

    def _record_waiting(self) -> None:
        for event in _drained(self._events):
            row = {"kind": EVENT, "t": event.uptime_s, "row": tidied(event)}
            self._journal.append(ROOT, {"ts": event.at, **row})
        for window in _drained(self._windows):
            self._held_window = window
            if window.uptime_s >= self._window_due_s:
                self._keep_window(window)
        for document in _drained(self._documents):
            self._record_document(document)

    def _keep_window(self, window: WindowRecord) -> None:
        self._held_window = None
        row = tidied(window)
        self._window_due_s = window.uptime_s + len(str(row)) / WINDOW_BYTES_A_SECOND
        self._journal.append(
            ROOT, {"ts": window.at, "kind": WINDOW, "t": window.uptime_s, "row": row}
        )

    def _record_document(self, document: StateDocument) -> None:
        told = _told(document)
        is_due = document.run.uptime_s - self._recorded_at_s >= RECORD_EVERY_S
        self._held = document
        if is_due or told != self._told:
            self._told = told
            self._keep_document(document)

    def _keep_document(self, document: StateDocument) -> None:
        self._held = None
        self._recorded_at_s = document.run.uptime_s
        parts = cut(document, self._names)
        if self._journal.lost > self._lost_before:
            self._lost_before = self._journal.lost
            self._nodes = {}
        elif parts == self._parts:
            return
        self._parts = parts
        self._number += 1
        for path, piece in parts.nodes.items():
            self._keep_piece(path, piece)
        self._keep_run(parts.root, document.run.uptime_s)

    def _keep_piece(self, path: str, piece: Tree) -> None:
        node = self._nodes.setdefault(path, _Node())
        if node.number and node.tree == piece:
            return
        before, change = self._advance(node, piece, is_run=False)
        self._journal.append(path, {"kind": PIECE, "n": self._number, "p": before, **change})

    def _keep_run(self, piece: Tree, uptime_s: Seconds) -> None:
        node = self._nodes.setdefault(ROOT, _Node())
        before, change = self._advance(node, piece, is_run=True)
        self._journal.append(
            ROOT,
            {"kind": DOCUMENT, "n": self._number, "p": before, "t": round(uptime_s, 3), **change},
        )

    def _advance(self, node: _Node, piece: Tree, *, is_run: bool) -> tuple[int, Tree]:
        """Bring what is known of a file up to date; return its last document and the change."""
        before, is_key = node.number, node.number == 0 or node.lines >= KEY_EVERY
        change: Tree = (
            {"key": piece}
            if is_key
            else {"set": difference(node.tree, piece, SPLICED if is_run else ())}
        )
        node.tree, node.number = piece, self._number
        node.lines = 1 if is_key else node.lines + 1
        return before, change


def _drained(things: deque[ThingT]) -> Iterator[ThingT]:
    while True:
        try:
            yield things.popleft()
        except IndexError:
            return


def _told(document: StateDocument) -> object:
    """Return what of a document is news: it is kept at once."""
    return (
        document.phase,
        document.end,
        document.start_armed,
        document.refusals,
        document.members,
        document.expected_hosts,
        len(document.epochs),
        document.epochs[-1:],
        document.alerts,
        document.checkpoint,
        document.elche.phase if document.elche else None,
        [rank.rank for rank in document.ranks if rank.state in _FATES],
    )
