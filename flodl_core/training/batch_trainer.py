"""One batch after the other: its samples, the job's step, and what is said of it.

Which batch is next is the pacer's choice. The training thread drives it.
"""

from collections.abc import Sequence
from typing import Final

from flodl_core.dispatch.actions import TrainBatch
from flodl_core.ids import RankPhase
from flodl_core.net import clock
from flodl_core.training.batch_mover import BatchMover
from flodl_core.training.batch_notes import BatchNotes
from flodl_core.training.build import Trainee, seed_compute
from flodl_core.training.channel import RankChannel
from flodl_core.training.job import TrainJob
from flodl_core.training.loader import SampleLoader
from flodl_core.training.losses import LossReader
from flodl_core.training.lr_news import LrNews
from flodl_core.training.samples import BatchPlace
from flodl_core.training.seat import Seat
from flodl_core.training.share_totals import ShareTotals
from flodl_core.units import Seconds

LOOK_S: Final[Seconds] = 0.002
"""While samples are read beside a GPU, it is looked at this often."""


class BatchTrainer:
    """Trains the batches of one rank.

    Args:
        seat: which rank of which world.
        job: loaded.
        trainee: the model with all that belongs to it.
        loader: reads the rank's samples.
        losses: reads what steps come to.
        channel: towards the bridge.

    Attributes:
        pass_index: of the newest batch; None before the first.
        totals: of the rank's share of each epoch.
        notes: of its batches.
        lr: the learning rate's factor by step.
    """

    def __init__(
        self,
        seat: Seat,
        job: TrainJob,
        *,
        trainee: Trainee,
        loader: SampleLoader,
        losses: LossReader,
        channel: RankChannel,
    ) -> None:
        self._seat = seat
        self._job = job
        self._trainee = trainee
        self._loader = loader
        self._channel = channel
        self._losses = losses
        self._asked_at: Seconds | None = None
        self._mover = BatchMover(seat.device)
        self.lr = LrNews(channel, job)
        self.totals = ShareTotals()
        self.notes = BatchNotes(channel, self.totals)
        self.pass_index: int | None = None

    def train(self, action: TrainBatch, ahead: Sequence[TrainBatch], *, global_step: int) -> bool:
        """Train a batch; what it came to may be noted only after the next, or at `tell`.

        Args:
            action: which one.
            ahead: the batches after it, as many as the loader wants to know.
            global_step: batches that the cohort has done.

        Returns:
            Whether an optimizer step was applied.

        Raises:
            JobError: the step returned no number.
        """
        self._channel.phase = RankPhase.DATA
        context = self._trainee.context
        place = self._place(action)
        began = self._asked_at or clock.now()
        self._asked_at = None
        self._loader.take_back()
        if place.pass_index != self.pass_index:
            self.pass_index = place.pass_index
            seed_compute(self._seat, place.pass_index)
        fetched = self._loader.fetch(place, self.places(ahead))
        batch = self._mover.move(fetched)
        have_data = clock.now()
        self.notes.settle_what_is_done()  # a step may take its time before it comes to that
        self._channel.phase = RankPhase.TRAINING
        context.begin_batch(
            epoch=action.epoch, global_step=global_step, lr_factor=self.lr.factor(global_step)
        )
        loss = self._losses.begin(self._job.step(context, batch))
        self.notes.add(
            action, loss, began=began, have_data=have_data, scalars=context.take_scalars()
        )
        return context.finish_batch()

    def read_ahead(self) -> None:
        """Read on while a GPU has a batch, until that is done or a message comes.

        For a rank that has another batch to train and nothing else to do before. If the GPU
        is done sooner it waits for samples from then on, and the batch is told of.
        """
        if not self.notes.has_late:
            return
        self._channel.phase = RankPhase.DATA
        self._asked_at = clock.now()
        while self.notes.has_late and not self._channel.has_mail:
            if self._loader.catch_up(LOOK_S):
                break
            self.notes.settle_what_is_done()
        self._channel.phase = RankPhase.TRAINING

    def settle(self) -> None:
        """Note every batch that was begun, which waits until the device is done with it."""
        self.notes.settle()
        self._asked_at = None

    def tell(self) -> None:
        """Report every batch that was begun, at once."""
        self.settle()
        self._channel.flush()

    def places(self, batches: Sequence[TrainBatch]) -> tuple[BatchPlace, ...]:
        """Return which samples batches take."""
        return tuple(map(self._place, batches))

    def _place(self, batch: TrainBatch) -> BatchPlace:
        return BatchPlace(self._seat.pass_of(batch.epoch), batch.offset, batch.size)
