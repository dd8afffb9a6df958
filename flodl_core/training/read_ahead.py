"""Reading ahead in the rank's own process: a thread that reads while the training thread waits.

It takes the generators' turn for it, and only then runs code of the job, so what a
sample or a step draws is the same as without it. What it has read is kept by place
and is a copy to be taken or left: nothing counts as drawn before the pacer says so.
If reading on a thread fails, the training thread reads that batch itself, and the
thread reads no more.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from flodl_core.planes.nccl.device_thread import enter_device
from flodl_core.training.batches import Batch, pin_batch
from flodl_core.training.event_log import EventLog
from flodl_core.training.generator_turns import GeneratorTurns
from flodl_core.training.load import describe_error
from flodl_core.training.samples import BatchPlace, BegunBatch, PassOrder, SampleReader
from flodl_core.units import Seconds

DEPTH = 2
"""Batches that are ready beside the one in the step."""

JOIN_S: Seconds = 5.0
"""Longest wait for the thread at the end; a sample that takes longer is abandoned."""


class ReadAhead(Protocol):
    """Gives batches by their place, and is told which ones come next."""

    @property
    def depth(self) -> int:
        """How many batches ahead it wants to know."""

    def take(self, place: BatchPlace, ahead: Sequence[BatchPlace]) -> Batch:
        """Return a batch, waiting for it; those `ahead` are the next, and none other."""

    def expect(self, ahead: Sequence[BatchPlace]) -> None:
        """Say which batches come next; what was read of any other is forgotten."""

    def catch_up(self, timeout_s: Seconds) -> bool:
        """Wait a while for what is ahead, with this thread's leave to read it.

        Returns:
            Whether there is nothing more to wait for.
        """

    def close(self) -> None:
        """End everything that reads."""


@dataclass(slots=True, eq=False)
class _Begun:
    """A batch that is being read. Whoever has the generators may read on."""

    place: BatchPlace
    batch: BegunBatch
    is_joined: bool = False

    @classmethod
    def of(cls, place: BatchPlace) -> "_Begun":
        """Begin a batch whose ids are not known yet."""
        return cls(place, BegunBatch(place.pass_index, ()))


class OwnReader:
    """Reads for a rank in the rank's own process.

    Args:
        reader: of the data.
        order: of the run's passes.
        turns: whose turn it is to use the generators.
        device: where batches go; for CUDA they are put into pinned memory.
        log: takes why reading ahead ended, if it did.
    """

    depth = DEPTH

    def __init__(
        self,
        reader: SampleReader,
        order: PassOrder,
        *,
        turns: GeneratorTurns,
        device: torch.device,
        log: EventLog,
    ) -> None:
        self._reader = reader
        self._order = order
        self._turns = turns
        self._device = device
        self._log = log
        self._changed = threading.Condition()
        self._wanted: tuple[BatchPlace, ...] = ()
        self._ready: dict[BatchPlace, Batch] = {}
        self._in_hand: _Begun | None = None
        self._is_over = False
        self._thread = threading.Thread(target=self._run, name="read ahead", daemon=True)
        self._thread.start()

    # -- the training thread ---------------------------------------------------------

    def take(self, place: BatchPlace, ahead: Sequence[BatchPlace]) -> Batch:
        """Return a batch: the one read ahead, or read to its end now.

        Raises:
            Exception: whatever reading raises.
        """
        with self._changed:
            self._want((place, *ahead))
            begun: _Begun | None = None
            in_hand = self._in_hand
            if in_hand is not None and in_hand.place == place:
                if in_hand.is_joined:
                    self._changed.wait_for(lambda: self._in_hand is not in_hand)
                else:
                    begun, self._in_hand = in_hand, None
            self._wanted = tuple(ahead)
            if place in self._ready:
                return self._ready.pop(place)
        batch = self._known(begun or _Begun.of(place))
        with self._reader.turn():
            self._reader.read_on(batch)
            return self._reader.join(batch)

    def expect(self, ahead: Sequence[BatchPlace]) -> None:
        """Say which batches come next."""
        with self._changed:
            self._want(tuple(ahead))

    def catch_up(self, timeout_s: Seconds) -> bool:
        """Lend the generators until the batches ahead are read, for a while."""
        with self._turns.lent(), self._changed:
            return self._changed.wait_for(self._is_caught_up, timeout=timeout_s)

    def close(self) -> None:
        """End the thread, after the sample that it reads."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
        self._turns.close()
        self._thread.join(JOIN_S)

    def _want(self, places: tuple[BatchPlace, ...]) -> None:
        self._wanted = places
        if places:
            self._ready = {place: kept for place, kept in self._ready.items() if place in places}
        self._changed.notify_all()

    # -- the thread ------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._read_all()
        finally:  # nobody waits for a thread that has ended
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _read_all(self) -> None:
        enter_device(self._device)
        while (begun := self._next()) is not None:
            batch: Batch | None = None
            try:
                batch = self._read(begun)
            except BaseException as error:
                self._is_over = True
                self._log.warning(
                    "reading_ahead_ended", error=describe_error(error), place=str(begun.place)
                )
            with self._changed:
                if self._in_hand is begun:
                    self._in_hand = None
                if batch is not None and begun.place in self._wanted:
                    self._ready[begun.place] = batch
                self._changed.notify_all()

    def _next(self) -> _Begun | None:
        """Wait for a batch to read; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or self._first_unread() is not None)
            place = None if self._is_over else self._first_unread()
            self._in_hand = _Begun.of(place) if place is not None else None
            return self._in_hand

    def _first_unread(self) -> BatchPlace | None:
        return next((place for place in self._wanted if place not in self._ready), None)

    def _read(self, begun: _Begun) -> Batch | None:
        """Read a batch in as many turns as it takes; None if nobody wants it any more."""
        self._known(begun)
        while begun.place in self._wanted and self._turns.borrow():
            try:
                if self._in_hand is not begun:
                    return None
                with self._reader.turn():
                    batch = self._read_on(begun)
            finally:
                self._turns.give_back()
            if begun.is_joined:
                return pin_batch(batch) if self._device.type == "cuda" else batch
        return None

    def _read_on(self, begun: _Begun) -> Batch | None:
        """Read until the generators are recalled, and make the batch if its samples are there."""
        self._reader.read_on(begun.batch, is_recalled=lambda: self._turns.is_recalled)
        if begun.batch.lacks_samples:
            return None
        batch = self._reader.join(begun.batch)
        with self._changed:
            begun.is_joined = True
            self._changed.notify_all()
        return batch

    def _is_caught_up(self) -> bool:
        return self._is_over or all(map(self._is_read, self._wanted))

    def _is_read(self, place: BatchPlace) -> bool:
        in_hand = self._in_hand
        is_joined = in_hand is not None and in_hand.place == place and in_hand.is_joined
        return is_joined or place in self._ready

    def _known(self, begun: _Begun) -> BegunBatch:
        """Return the batch with its ids, which may take a while where a pass is new."""
        begun.batch.ids = begun.batch.ids or self._order.ids(begun.place)
        return begun.batch
