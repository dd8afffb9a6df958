"""What a rank says of each batch: its times into the ring, its loss and scalars into sums.

It keeps which batch begins a window, because that one is reported at once and its rate is
measured from there on, and since when the next batch could have begun: a wait for work is
no part of what a batch costs. The training thread drives it.
"""

import math

import torch

from flodl_core.dispatch.actions import TrainBatch
from flodl_core.net import clock
from flodl_core.training.callbacks import STEP_FIX, number_of
from flodl_core.training.channel import RankChannel
from flodl_core.training.loader import SampleLoader
from flodl_core.training.share_totals import ShareTotals
from flodl_core.training.step_context import StepContext
from flodl_core.units import Seconds


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

    def begin_window(self) -> None:
        """A snapshot was taken: the next batch is the first since."""
        self._begins_window = True

    def wait(self) -> None:
        """The rank has no work: the time until it has some belongs to no batch."""
        self._waited = True

    def add(
        self,
        action: TrainBatch,
        loss: float | None,
        *,
        began: Seconds,
        have_data: Seconds,
        context: StepContext,
    ) -> None:
        """Note a batch that is done.

        Args:
            action: which one.
            loss: finite, or None.
            began: when the rank asked for its samples.
            have_data: when it had them.
            context: holds the scalars that the step gave.
        """
        now = clock.now()
        before = began if self._waited else self._last_at
        since = (now - before) * 1e3 if before is not None else 0.0
        self._last_at, self._waited = now, False
        row = (
            (now - have_data) * 1e3,
            (have_data - began) * 1e3,
            since,
            self._channel.step_count + 1,
            action.size,
            loss,
        )
        self._channel.report_batch(row)
        self._totals.add_batch(action.epoch, now, row)
        if scalars := context.take_scalars():
            self._totals.add_scalars(action.epoch, scalars)
        if self._begins_window:
            self._begins_window = False
            self._channel.flush()


def loss_value(loss: object, loader: SampleLoader) -> float | None:
    """Return the loss as a number; None where it is not finite, which no sum may hold.

    Args:
        loss: what the job's step returned.
        loader: reads on while a device is waited for.

    Raises:
        JobError: it is no number.
    """
    if isinstance(loss, torch.Tensor) and not loss.is_cpu:
        with loader.lent():
            value = number_of("step", loss, fix=STEP_FIX)
    else:
        value = number_of("step", loss, fix=STEP_FIX)
    return value if math.isfinite(value) else None
