"""Standard output and standard error that may go away at any moment.

What it is: a writer of lines that falls silent when its reader has left, a
terminal has hung up or a disk is full, and remembers the last; and the care for
missing descriptors.
What it is not: a format.
Who drives it: every command that prints; `main` at the very end.
"""

import codecs
import errno
import io
import json
import os
import sys
from typing import Final, TextIO

from flodl_core.telemetry.line_file import show_untrusted

_READER_LEFT: Final = frozenset({errno.EPIPE, errno.EIO, errno.EBADF})
"""Nobody reads any more: nothing that anybody must be told."""

_losses: list[str] = []
"""Why standard output could not be written; one entry at most, because it is silent then."""


def write_line(text: str) -> None:
    """Write one line to standard output at once; nothing if nobody reads it any more.

    Nothing in it can steer a terminal, whoever wrote it.
    """
    _write(sys.stdout, _harmless(text))


def write_json(text: str) -> None:
    """Write JSON to standard output at once; what steers a terminal is escaped as JSON does.

    So is what a stream that is not UTF-8 could not take, or would make other bytes of.
    """
    if _is_odd(text):
        text = "".join(map(_json_char, text))
    if not (text.isascii() or _is_utf8(sys.stdout)):
        text = "".join(char if char.isascii() else json.dumps(char)[1:-1] for char in text)
    _write(sys.stdout, text)


def write_error_line(text: str) -> None:
    """Write one line to standard error at once; as `write_line` does."""
    _write(sys.stderr, _harmless(text))


def fill_standard_streams() -> None:
    """Put /dev/null where a standard descriptor is closed, and let no character fail.

    A socket that took the number of a closed standard output would get what a
    library prints.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def flush_standard_streams() -> None:
    """Write what is buffered, so that the interpreter's own end finds nothing left to fail."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except ValueError:
            continue
        except OSError as error:
            lose_stream(stream, error)


def take_loss() -> str | None:
    """Return why standard output was lost since this was asked last; None if it was not.

    A reader that has left is no loss.
    """
    lost = "; ".join(_losses) or None
    _losses.clear()
    return lost


def _harmless(text: str) -> str:
    return "\n".join(show_untrusted(line, limit_chars=len(line)) for line in text.split("\n"))


def _is_utf8(stream: TextIO | None) -> bool:
    encoding = getattr(stream, "encoding", None)
    return encoding is None or codecs.lookup(encoding).name == "utf-8"


def _is_odd(text: str) -> bool:
    return show_untrusted(text, limit_chars=len(text)) != text


def _json_char(char: str) -> str:
    """Escape one character of JSON text; outside of strings only line ends could be meant."""
    if char == "\n" or not _is_odd(char):
        return char
    return json.dumps(char)[1:-1] if ord(char) > 0x7F else f"\\u{ord(char):04x}"


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        return
    try:
        stream.write(text + "\n")
        stream.flush()
    except ValueError:
        return
    except OSError as error:
        lose_stream(stream, error)


def lose_stream(stream: TextIO, error: OSError) -> None:
    """Fall silent, and remember what is worth telling."""
    is_output = stream is sys.stdout
    silence_stream(stream)
    if is_output and error.errno not in _READER_LEFT:
        _losses.append(error.strerror or str(error))
        write_error_line(f"warning: standard output is lost ({_losses[-1]})")


def silence_stream(stream: TextIO) -> None:
    """Send the rest of a stream to /dev/null."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):
        return
