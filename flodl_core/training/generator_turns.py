"""Whose turn it is to draw: torch's CPU generator, numpy's and Python's are one a process.

A sample is read under seeds of its own, set in them, and so is a step's
own chance; two threads that draw at one time would make neither repeat. They belong
to the training thread, which lends them only where no code of the job runs on it:
while it waits for a message, for a round, for a device or for the batch itself. Not
a lock of any data: what a reader does in its turn is its own business.

    training thread     with turns.lent(): wait …
    reader              if turns.borrow(): read one sample …; turns.give_back()
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum


class _Holder(Enum):
    TRAINING = "training"
    NOBODY = "nobody"
    READER = "reader"


class GeneratorTurns:
    """The generators of one process, held by the training thread from the start."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._holder = _Holder.TRAINING
        self._is_recalled = False
        self._is_over = False

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the generators for a block; its end waits for the sample being read, if any."""
        with self._changed:
            self._holder = _Holder.NOBODY
            self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._is_recalled = True
                self._changed.wait_for(lambda: self._holder is not _Holder.READER)
                self._is_recalled = False
                self._holder = _Holder.TRAINING

    def borrow(self) -> bool:
        """Wait for the turn of a reader; False once there will be none any more."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_over or (self._holder is _Holder.NOBODY and not self._is_recalled)
            )
            if self._is_over:
                return False
            self._holder = _Holder.READER
            return True

    def give_back(self) -> None:
        """End the turn of the reader that has it."""
        with self._changed:
            self._holder = _Holder.NOBODY
            self._changed.notify_all()

    @property
    def is_recalled(self) -> bool:
        """Whether the training thread waits for its generators; read without a lock."""
        return self._is_recalled

    def close(self) -> None:
        """End the waiting of every reader."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
