"""The journal: records of a run for machines to read, one bounded file a node.

    records/root.jsonl   records/root/red.jsonl   records/root/red/rank3.jsonl

Each line is an object with v, ts, path and whatever the record says. A node
holds at most 32 MiB; the oldest half is dropped (it lies in `<file>.old` before).

What it is: a bounded queue in front of bounded files.
What it is not: the log, which is for people.
Who drives it: the launcher appends from its event loop, which costs no write;
`flush` writes, in a worker thread about once a second and at the end. A slow or
full disk loses records, counts them, and does nothing else.
"""

import json
import math
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from flodl_core.telemetry.line_file import DEFAULT_LIMIT_BYTES, LineFile
from flodl_core.telemetry.run_directory import safe_name

JOURNAL_VERSION: Final = 1
MAX_QUEUED: Final = 10_000
MAX_NODES: Final = 4_096
MAX_OPEN: Final = 32
"""Files that stay open between two flushes; the run's descriptors belong to its links."""
MAX_RECORD_CHARS: Final = 1_048_576


class Journal:
    """Queues records and writes them into the tree.

    Attributes:
        lost: records that were dropped because the queue or the tree was full, or
            a write failed.
    """

    def __init__(
        self,
        root: Path,
        *,
        utc_iso: Callable[[], str],
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        self.lost = 0
        self._root = root
        self._utc_iso = utc_iso
        self._limit_bytes = limit_bytes
        self._queue: deque[tuple[str, str]] = deque()
        self._files: dict[Path, LineFile] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    def append(self, path: str, record: Mapping[str, object]) -> None:
        """Queue a record of a node; the oldest queued one is dropped when the queue is full.

        Args:
            path: root, root/<host>, or root/<host>/rank<N>.
            record: JSON values; others are written as their text, and numbers that
                are not finite as null. A `ts` of its own takes the place of the clock's.
        """
        row = {"v": JOURNAL_VERSION, "ts": self._utc_iso(), "path": path, **record}
        line = json.dumps(_finite(row), separators=(",", ":"), default=str)
        with self._lock:
            if len(self._queue) >= MAX_QUEUED:
                self._queue.popleft()
                self.lost += 1
            self._queue.append((path, line))

    def flush(self) -> None:
        """Write what is queued; may block on a slow disk, so call it from a worker thread."""
        with self._writing:
            with self._lock:
                taken = list(self._queue)
                self._queue.clear()
            by_file: dict[Path, list[str]] = {}
            for path, line in taken:  # two paths may be of one file
                by_file.setdefault(node_file(self._root, path), []).append(line)
            for place, lines in by_file.items():
                file = self._file(place)
                if file is None or not file.append_all(lines):
                    self.lost += len(lines)
                if file is not None and len(self._files) > MAX_OPEN:
                    file.release()

    def close(self) -> None:
        """Write what is queued and close every file."""
        self.flush()
        with self._writing:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def _file(self, path: Path) -> LineFile | None:
        file = self._files.get(path)
        if file is None:
            if len(self._files) >= MAX_NODES:
                return None
            file = LineFile(path, limit_bytes=self._limit_bytes, line_chars=MAX_RECORD_CHARS)
            self._files[path] = file
        return file


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


def node_file(root: Path, path: str) -> Path:
    """Return the file of a node; no path can leave `root`."""
    *folders, leaf = [safe_name(part) for part in path.split("/") if part] or ["root"]
    return root.joinpath(*folders, f"{leaf}.jsonl")


def read_journal(root: Path) -> Iterator[dict[str, object]]:
    """Yield every record of a finished run's tree, each node's in order.

    A line that is no record (the last one of a killed run) is left out.
    """
    files = {path for path in root.rglob("*.jsonl") if path.is_file()}
    files |= {path.with_name(path.name.removesuffix(".old")) for path in root.rglob("*.jsonl.old")}
    for path in sorted(files):
        for part in (path.with_name(path.name + ".old"), path):
            if part.is_file():
                yield from _read_lines(part)


def _read_lines(path: Path) -> Iterator[dict[str, object]]:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict):
                yield row
