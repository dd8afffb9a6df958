"""Whose turn it is to draw: torch's CPU generator, numpy's and Python's are one a process.

A sample is read under seeds of its own, set in them, and so is a step's
own chance; two threads that draw at one time would make neither repeat. They belong
to the training thread, which lends them only where no code of the job runs on it:
while it waits for a message, for a round, for a device or for the batch itself. It takes
them back when it needs them and no earlier, so that a sample which is never read stops
that rank's next batch, or what it says of the one that a GPU was waited for, and no
average that it is in. Not a lock of any data: what a reader does in its turn is its own
business.

    training thread     turns.lend(); wait, answer, adopt …; turns.take_back(); train
    reader              if turns.borrow(): read one sample …; turns.give_back()
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum

from flodl_core.units import Seconds


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

    def lend(self) -> None:
        """Lend the generators until `take_back`; lending what is lent changes nothing."""
        with self._changed:
            if self._holder is _Holder.TRAINING:
                self._holder = _Holder.NOBODY
                self._changed.notify_all()

    def take_back(self, timeout_s: Seconds | None = None) -> bool:
        """Have the generators again; waits for the sample being read, if any.

        Args:
            timeout_s: longest wait; None waits for as long as it takes.

        Returns:
            Whether the training thread has them.
        """
        if self._holder is _Holder.TRAINING:  # no other thread changes that
            return True
        with self._changed:
            self._is_recalled = True
            is_free = self._changed.wait_for(
                lambda: self._holder is not _Holder.READER, timeout=timeout_s
            )
            self._is_recalled = False
            if is_free:
                self._holder = _Holder.TRAINING
            return is_free

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Lend the generators for a block."""
        self.lend()
        try:
            yield
        finally:
            self.take_back()

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
