"""The process of a user's own guard: it answers what the launcher asks, and ends with it.

What it is: the far end of `asked_guard`. The guard may raise, loop for ever, hold the
interpreter's lock, load what it likes or crash: it does so here. What it prints goes to
standard error.
What it is not: patient or impatient; how long an answer may take is the launcher's to say.
Started by `asked_guard.start_guard` in the launcher.
"""

import argparse
import os
import socket
import sys

from flodl_core.elche.guards import Stable
from flodl_core.elche.judge import Judge
from flodl_core.elche.record import ElchePhase
from flodl_core.errors import ConfigError
from flodl_core.net.children import own_environment
from flodl_core.net.parent_tie import tie_from_environment
from flodl_core.roles.guard_loading import load_guard
from flodl_core.roles.guard_words import (
    PIECE_BYTES,
    GuardReady,
    GuardRefused,
    Lines,
    Opinion,
    Restore,
    Review,
    line_of,
)


def main() -> int:
    """Run the process; return its exit code."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--asked-fd", type=int, required=True)
    arguments.add_argument("--guard", required=True)
    given = arguments.parse_args()
    tie_from_environment(own_environment())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    with socket.socket(fileno=given.asked_fd) as asked:
        try:
            guard = load_guard(given.guard, source="")
        except ConfigError as error:
            asked.sendall(line_of(GuardRefused(reason=error.reason, fix=error.fix)))
            return error.exit_code
        assert guard is not None, "one of ours needs no process"
        judge = Judge(guard, has_meta=False)
        asked.sendall(line_of(GuardReady(name=judge.name, history=judge.history)))
        return _answer(asked, judge)


def _answer(asked: socket.socket, judge: Judge) -> int:
    lines = Lines()
    while piece := asked.recv(PIECE_BYTES):
        lines.add(piece)
        while (word := lines.next()) is not None:
            match word:
                case Restore(history=history):
                    judge.restore(history)
                case Review(report=report):
                    said = judge.review(report, anchor=1, phase=ElchePhase.PROBE)
                    verdict = Stable() if said.trouble else said.verdict
                    told = Opinion(verdict=verdict, trouble=said.trouble, history=judge.history)
                    asked.sendall(line_of(told))
                case _:
                    return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
