"""A bounded file of lines, and the text that may stand on one line.

What it is: an append-only file that never grows past its limit (the older half
is dropped by renaming), and the escaping that keeps a peer's text on its line.
What it is not: a format. Logs, journal and sample log choose what a line says.
Who drives it: those three. A write that fails is counted and remembered, and
never raised: records must not be able to fail training.
"""

import os
import threading
from pathlib import Path
from typing import Final, TextIO

from flodl_core.units import MIB

DEFAULT_LIMIT_BYTES: Final = 32 * MIB
MAX_LINE_CHARS: Final = 64 * 1024

_BIDI_CONTROLS: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e") | frozenset(
    "\u2066\u2067\u2068\u2069\u2028\u2029\ufeff"
)


def escape_untrusted(text: str, *, limit_chars: int = 4096, keep_backslash: bool = False) -> str:
    r"""Return text that stays on one line and cannot steer a terminal.

    Control characters, line separators, direction marks and lone surrogates
    become `\xNN` or `\uNNNN`; a longer text ends in "…".

    Args:
        text: whatever a peer or a job said.
        limit_chars: longest result before escaping.
        keep_backslash: leave backslashes alone, where nobody reads the text back.
    """
    cut = text if len(text) <= limit_chars else text[: limit_chars - 1] + "…"
    if cut.isprintable() and "\\" not in cut and not _BIDI_CONTROLS.intersection(cut):
        return cut
    return "".join(char if keep_backslash and char == "\\" else _escape_char(char) for char in cut)


def show_untrusted(text: str, *, limit_chars: int = 4096) -> str:
    """Return text for people, on one line and harmless to a terminal; backslashes stay."""
    return escape_untrusted(text, limit_chars=limit_chars, keep_backslash=True)


def _escape_char(char: str) -> str:
    if char == "\\":
        return "\\\\"
    code = ord(char)
    if char.isprintable() and char not in _BIDI_CONTROLS:
        return char
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


class LineFile:
    """Lines appended to `path`, with at most one older file `<path>.old` beside it.

    Safe to use from several threads. The file is opened at the first line.

    Args:
        path: the file that is to be written.
        limit_bytes: of this file and the older one together.
        line_chars: the longest line; a longer one is cut and ends in "…".

    Attributes:
        path: the file that is being written.
        lines_lost: lines that could not be written.
        last_error: why the last of those was lost.
    """

    def __init__(
        self,
        path: Path,
        *,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
        line_chars: int = MAX_LINE_CHARS,
    ) -> None:
        self.path = path
        self.lines_lost = 0
        self.last_error: str | None = None
        self._half_bytes = max(limit_bytes // 2, 1)
        self._line_chars = line_chars
        self._lock = threading.Lock()
        self._file: TextIO | None = None
        self._bytes = 0
        self._closed = False

    @property
    def old_path(self) -> Path:
        """Where the older half lies, once there is one."""
        return self.path.with_name(self.path.name + ".old")

    def append(self, line: str) -> bool:
        """Write one line and hand it to the system; returns whether it was written.

        Args:
            line: without a line end; one that holds one is written escaped.
        """
        return self.append_all((line,))

    def append_all(self, lines: tuple[str, ...] | list[str]) -> bool:
        """Write several lines with one flush; returns whether all were written."""
        if not lines:
            return True
        whole = [self._on_one_line(line) for line in lines]
        with self._lock:
            if self._closed:
                self.lines_lost += len(whole)
                self.last_error = "the file is closed"
                return False
            try:
                for line in whole:
                    self._write(line)
                if self._file is not None:
                    self._file.flush()
            except OSError as error:
                self.lines_lost += len(whole)
                self.last_error = str(error)
                self._drop_file()
                return False
        return True

    def close(self) -> None:
        """Close the file; later lines are counted as lost. Closing twice is harmless."""
        with self._lock:
            self._closed = True
            self._drop_file()

    def release(self) -> None:
        """Give the descriptor back until the next line."""
        with self._lock:
            self._drop_file()

    def _on_one_line(self, line: str) -> str:
        if "\n" in line or "\r" in line:
            line = line.replace("\r", "\\r").replace("\n", "\\n")
        if len(line) > self._line_chars:
            line = line[: self._line_chars - 1] + "…"
        return line + "\n"

    def _write(self, line: str) -> None:
        nbytes = len(line.encode("utf-8", "backslashreplace"))
        if self._file is not None and self._bytes and self._bytes + nbytes > self._half_bytes:
            self._drop_file()
            self.path.replace(self.old_path)
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a", encoding="utf-8", errors="backslashreplace")
            self._bytes = self._file.tell()
            if self._bytes and not _ends_whole(self.path):
                self._file.write("\n")
                self._bytes += 1
            if self._bytes and self._bytes + nbytes > self._half_bytes:
                self._drop_file()
                self.path.replace(self.old_path)
                self._file = self.path.open("a", encoding="utf-8", errors="backslashreplace")
                self._bytes = 0
        self._file.write(line)
        self._bytes += nbytes

    def _drop_file(self) -> None:
        if self._file is None:
            return
        try:
            self._file.close()
        except OSError as error:
            self.last_error = str(error)
        self._file = None
        self._bytes = 0


def _ends_whole(path: Path) -> bool:
    """Return whether the last line has its end: what a full disk cut off has none."""
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
