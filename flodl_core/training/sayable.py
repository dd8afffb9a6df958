"""Texts of a job's errors, made fit to be told: any text can be encoded then, and is bounded.

A name of a file may hold bytes that are no UTF-8, and an error may quote a whole document;
neither may keep the cause of a failure from whoever looks for it.
"""

from typing import Final

MAX_TOLD_BYTES: Final = 16 * 1024
"""Of a line that is told; a control message holds several."""

_TAIL_BYTES: Final = 2 * 1024


def text_of(error: BaseException) -> str:
    """Return an error's own text, also where it fails to give one."""
    try:
        return str(error)
    except Exception as failure:
        return f"its text failed with {type(failure).__name__}"


def sayable(text: str, *, most_bytes: int = MAX_TOLD_BYTES) -> str:
    """Return the text as UTF-8 can hold it, with the middle left out where it is too long."""
    raw = text.encode(errors="backslashreplace")
    if len(raw) <= most_bytes:
        return raw.decode()
    head, tail = raw[: most_bytes - _TAIL_BYTES], raw[-_TAIL_BYTES:]
    left_out = len(raw) - len(head) - len(tail)
    return f"{head.decode(errors='ignore')} … {left_out} bytes … {tail.decode(errors='ignore')}"
