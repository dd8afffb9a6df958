"""What a rank says of each batch: its times into the ring, its loss and scalars into sums.

It keeps which batch begins a window, because that one is reported at once and its rate is
measured from there on, and since when the next batch could have begun: a wait for work is
no part of what a batch costs. The batch whose loss is still on a GPU is kept until the next
one has been given to it; `settle` waits for it. The training thread drives it.
"""

from collections.abc import Mapping
from typing import TypeAlias

from flodl_core.dispatch.actions import TrainBatch
from flodl_core.training.channel import RankChannel
from flodl_core.training.losses import LateLoss, ReadLoss
from flodl_core.training.scalar_sum import ScalarSum
from flodl_core.training.share_totals import ShareTotals
from flodl_core.units import Seconds

_Late: TypeAlias = tuple[LateLoss, TrainBatch, Seconds, Seconds]


class BatchNotes:
    """The notes of one rank.

    Args:
        channel: towards the bridge.
        totals: of the rank's share of each epoch.
    """

    def __init__(self, channel: RankChannel, totals: ShareTotals) -> None:
        self._channel = channel
        self._totals = totals
        self._last_at: Seconds | None = None
        self._waited = False
        self._begins_window = True
        self._late: _Late | None = None

    @property
    def has_late(self) -> bool:
        """Whether the device was given a batch of which nothing is said yet."""
        return self._late is not None

    def settle_what_is_done(self) -> None:
        """Note the batch that is kept if the device is done with it; waits for nothing."""
        if self._late is not None and self._late[0].is_there:
            self.settle()

    def begin_window(self) -> None:
        """A snapshot was taken: the next batch is the first since."""
        self._begins_window = True

    def wait(self) -> None:
        """The rank has no work: the time until it has some belongs to no batch."""
        self._waited = True

    def add(
        self,
        action: TrainBatch,
        loss: ReadLoss | LateLoss,
        *,
        began: Seconds,
        have_data: Seconds,
        scalars: Mapping[str, ScalarSum],
    ) -> None:
        """Note a batch; if its loss is still to come, note the one before it and keep this.

        Args:
            action: which one.
            loss: what it comes to.
            began: when the rank asked for its samples.
            have_data: when it had them.
            scalars: what the step noted, by name.
        """
        self.settle()
        if scalars:
            self._totals.add_scalars(action.epoch, scalars)
        if isinstance(loss, LateLoss):
            self._late = (loss, action, began, have_data)
        else:
            self._note(loss, action, began, have_data)

    def settle(self) -> None:
        """Note the batch that is kept, if there is one; waits until it is done."""
        if self._late is not None:
            loss, action, began, have_data = self._late
            self._late = None
            self._note(loss.read(), action, began, have_data)

    def _note(
        self,
        loss: ReadLoss,
        action: TrainBatch,
        began: Seconds,
        have_data: Seconds,
    ) -> None:
        """Report a batch; while the device was busy with the one before, it waited for nothing."""
        at, last = loss.at, self._last_at
        if last is None:
            last, since = began, 0.0
        else:
            since = at - (began if self._waited else last)
        free_at = began if began > last else last
        fed_at = have_data if have_data > free_at else free_at
        self._last_at, self._waited = at, False
        row = (
            max(0.0, at - fed_at) * 1e3,
            (fed_at - free_at) * 1e3,
            max(0.0, since) * 1e3,
            self._channel.step_count + 1,
            action.size,
            loss.value,
            at,
        )
        self._channel.report_batch(row)
        self._totals.add_batch(action.epoch, row)
        if self._begins_window:
            self._begins_window = False
            self._channel.flush()
