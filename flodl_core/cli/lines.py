"""Standard output and standard error that may go away at any moment.

What it is: a writer of lines that falls silent when its reader has left, a
terminal has hung up or a disk is full; and the care for missing descriptors.
What it is not: a format.
Who drives it: every command that prints; `main` at the very end.
"""

import errno
import io
import os
import sys
from typing import Final, TextIO

_READER_LEFT: Final = frozenset({errno.EPIPE, errno.EIO, errno.EBADF})
"""Nobody reads any more: nothing that anybody must be told."""


def write_line(text: str) -> None:
    """Write one line to standard output at once; nothing if nobody reads it any more."""
    _write(sys.stdout, text)


def write_error_line(text: str) -> None:
    """Write one line to standard error at once; nothing if nobody reads it any more."""
    _write(sys.stderr, text)


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
        except (OSError, ValueError):
            _silence(stream)


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:
        return
    try:
        stream.write(text + "\n")
        stream.flush()
    except ValueError:
        return
    except OSError as error:
        _silence(stream)
        if error.errno not in _READER_LEFT and stream is not sys.stderr:
            write_error_line(f"warning: standard output is lost ({error.strerror})")


def _silence(stream: TextIO) -> None:
    """Send the rest of a stream to /dev/null."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):
        return
