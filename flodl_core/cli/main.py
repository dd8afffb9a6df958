"""The entry point of `flodl`: one line of words in, one exit code out.

What it is: the first lines that run, so light that an interrupt finds them in
charge and nobody sees a traceback.
What it is not: the commands and their errors; those are `app`'s.
Who drives it: the console script `flodl`, `python -m flodl_core.cli.main`, tests.
"""

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: the words after the program's name; the process's own if None.
    """
    try:
        from flodl_core.cli.app import run_command

        return run_command(argv)
    except KeyboardInterrupt:
        if sys.stderr is not None:
            print("interrupted; nothing was started", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
