"""Answers the one question of a parent process: one line on standard output, then the end.

What it is: the child's side of `asking`.
What it is not: the answer; a job may print what it likes meanwhile, to standard error.
Who drives it: `inspector` and `prober`.
"""

import os
import sys
from collections.abc import Callable

from flodl_core.errors import FlodlError, JobError


def answer_in_one_line(make: Callable[[], bytes]) -> int:
    """Print the answer as the last line of standard output; return the exit code.

    Args:
        make: returns the answer, without a line's end. What it raises becomes one line
            `error: …` on standard error, with the fix behind it where it is our own error.
    """
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        line = make()
    except FlodlError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except BaseException as error:
        text = " ".join(str(error).split())
        sys.stderr.write(f"error: {type(error).__name__}: {text}\n")
        return JobError.exit_code
    with os.fdopen(answer, "wb") as out:
        out.write(line + b"\n")
    return 0
