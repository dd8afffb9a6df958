"""Runs another program that dies with whoever started it: `python -m flodl_core.net.tied ssh …`.

What it is: a tie to the parent that outlives the change of program, for programs that know
nothing of it. Linux; elsewhere the program is run untied.
What it is not: needed for our own processes, which tie themselves (`parent_tie`).
Who drives it: `roles.tunnel`.
"""

import os
import sys

from flodl_core.net.children import own_environment
from flodl_core.net.parent_tie import PARENT_PID_VARIABLE, die_with_parent


def main() -> None:
    """Tie this process to its parent, then become the program in the words."""
    die_with_parent()
    if str(os.getppid()) != own_environment().get(PARENT_PID_VARIABLE):
        return
    words = sys.argv[1:]
    try:
        os.execvp(words[0], words)  # noqa: S606 - our own list of words, no shell
    except OSError as error:
        sys.stderr.write(f"error: {words[0]} cannot be started ({error.strerror})\n")
        sys.exit(127)


if __name__ == "__main__":
    main()
