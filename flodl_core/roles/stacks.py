"""What faulthandler printed of a stuck rank, in one line: where its own code is.

A rank has many threads, and most of them wait. What counts is the training thread, which
is the main one and printed last, and any other that is inside the job's code.
"""

import re
from dataclasses import dataclass
from pathlib import PurePath
from typing import Final

_HEAD: Final = re.compile(r"^(?:Current thread|Thread) ")
_FRAME: Final = re.compile(r'^\s+File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<name>.*)$')
_SHOWN_FRAMES: Final = 4
_NOT_THE_JOBS: Final = re.compile(r"flodl_core/|/lib/python\d|/site-packages/|<frozen |^<")


@dataclass(frozen=True, slots=True)
class _Frame:
    words: str
    is_jobs: bool


def summarize_stack(text: str) -> str:
    """Return the innermost frames of the training thread, and of others in the job's code.

    Args:
        text: of all threads, as faulthandler prints it, possibly cut.

    Returns:
        Such as `read (data.py:12) ← __getitem__ (data.py:9)`; empty if there is no frame in it.
    """
    threads: list[list[_Frame]] = []
    for line in text.splitlines():
        if _HEAD.match(line):
            threads.append([])
        frame = _FRAME.match(line)
        if frame is not None and threads:
            place = f"{PurePath(frame['file']).name}:{frame['line']}"
            is_jobs = _NOT_THE_JOBS.search(frame["file"]) is None
            threads[-1].append(_Frame(f"{frame['name']} ({place})", is_jobs))
    if not threads:
        return ""
    beside = [frames for frames in threads[:-1] if any(frame.is_jobs for frame in frames)]
    told = [_told(frames) for frames in (threads[-1], *beside) if frames]
    return "; beside it ".join(told)


def _told(frames: list[_Frame]) -> str:
    """Return the innermost frame and those of the job's code; the innermost ones if it has none."""
    jobs = [frame for frame in frames[1:] if frame.is_jobs]
    shown = [frames[0], *jobs] if jobs or frames[0].is_jobs else frames
    return " ← ".join(frame.words for frame in shown[:_SHOWN_FRAMES])
