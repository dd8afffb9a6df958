"""Runs another program that dies with whoever started it: `python -m flodl_core.net.tied ssh …`.

What it is: a tie to the parent for programs that know nothing of it. Alone, this process
becomes the program and keeps the kernel's tie (Linux; elsewhere it is then untied). With
`--group` first it stays beside the program, and ends it with everything that it started and
that stayed in its group, such as the commands of a shell.
What it is not: needed for our own processes, which tie themselves (`parent_tie`).
Who drives it: `roles.tunnel`; `roles.alerting` with the group.
"""

import os
import signal
import subprocess
import sys
from typing import Final

from flodl_core.net.children import own_environment
from flodl_core.net.parent_tie import (
    LIVENESS_FD_VARIABLE,
    PARENT_PID_VARIABLE,
    die_with_parent,
    watch_parent,
)

GROUP: Final = "--group"
"""First word, where the program's whole group is to die."""
_SIGNALLED: Final = 128
"""What a shell adds to the number of the signal that ended a program."""


def main() -> int:
    """Tie the program in the words to this process's parent; return its exit code."""
    words = sys.argv[1:]
    if words[0] == GROUP:
        return _run_group(words[1:])
    die_with_parent()
    if str(os.getppid()) != own_environment().get(PARENT_PID_VARIABLE):
        return 0
    try:
        os.execvp(words[0], words)  # noqa: S606 - our own list of words, no shell
    except OSError as error:
        return _cannot_start(words[0], error)


def _run_group(words: list[str]) -> int:
    """Run the program beside a watch of the parent; as a shell does, a signal becomes a code."""
    liveness_fd = own_environment().get(LIVENESS_FD_VARIABLE)
    if liveness_fd is None or os.getpgrp() != os.getpid():
        return 0
    watch_parent(int(liveness_fd), _kill_group)
    try:
        code = subprocess.call(words)
    except OSError as error:
        return _cannot_start(words[0], error)
    return code if code >= 0 else _SIGNALLED - code


def _kill_group() -> None:
    """End this process with its group: the kernel's tie would end this process alone, and first."""
    os.killpg(0, signal.SIGKILL)


def _cannot_start(program: str, error: OSError) -> int:
    sys.stderr.write(f"error: {program} cannot be started ({error.strerror})\n")
    return 127


if __name__ == "__main__":
    sys.exit(main())
