"""The environment as a command's settings see it.

What it is: the process's own variables without those by which a parent process
of flodl tells its children who it is; they are no settings.
What it is not: a reader of settings; `config.load` is.
Who drives it: every command that loads settings, and `join` where it is a child.
"""

import os
import stat
from typing import Final

from flodl_core.net.children import own_environment
from flodl_core.net.parent_tie import (
    LIVENESS_FD_VARIABLE,
    PARENT_PID_VARIABLE,
    tie_from_environment,
)

_OF_CHILDREN: Final = (PARENT_PID_VARIABLE, LIVENESS_FD_VARIABLE)


def command_environment() -> dict[str, str]:
    """Return the variables that may hold settings."""
    return {name: value for name, value in own_environment().items() if name not in _OF_CHILDREN}


def tie_if_child() -> None:
    """End with the parent, where a process of flodl started this very one.

    A command that a job starts has inherited the variables but not the pipe.
    """
    environ = own_environment()
    if _is_pipe(environ.get(LIVENESS_FD_VARIABLE, "")):
        tie_from_environment(environ)


def _is_pipe(descriptor: str) -> bool:
    try:
        return descriptor.isdecimal() and stat.S_ISFIFO(os.fstat(int(descriptor)).st_mode)
    except OSError:
        return False
