"""Holds the interpreter lock for a while, as a long call in C would."""

import sys
import time

_NEVER_S = 1e6


def hold_interpreter(seconds: float) -> None:
    """Burn CPU for so long, and never let another thread of the interpreter run meanwhile.

    A thread that asks for the interpreter lock waits one switch interval before it takes it.
    """
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_NEVER_S)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass
    sys.setswitchinterval(usual)
