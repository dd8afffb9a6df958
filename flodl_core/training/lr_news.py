"""The learning rate of a rank: what its job's scheduler asks for, and what is told of it.

The training thread asks once a batch and once an average; nothing is sent where nothing
changed.
"""

from typing import Final

from flodl_core.messages.timing import LrUpdate
from flodl_core.training.callbacks import SCHEDULER_FIX, number_of
from flodl_core.training.channel import RankChannel
from flodl_core.training.job import TrainJob
from flodl_core.training.step_context import StepContext

_CHANGE: Final = 0.01
"""Relative change of the learning rate that is worth a message."""


class LrNews:
    """Tells the coordinator of one rank's learning rate when it has changed.

    Args:
        channel: takes the messages.
        job: has the scheduler, if there is one.
    """

    def __init__(self, channel: RankChannel, job: TrainJob) -> None:
        self._channel, self._job = channel, job
        self._told: float | None = None

    def factor(self, step: int) -> float | None:
        """Return what the job's scheduler says for a global step; None without a scheduler.

        Raises:
            JobError: it says no number.
        """
        scheduler = self._job.scheduler
        if scheduler is None:
            return None
        return number_of("scheduler", scheduler(step), fix=SCHEDULER_FIX)

    def tell(self, context: StepContext) -> None:
        """Say what the learning rate is, if it changed enough."""
        lr, told = context.learning_rate(), self._told
        if told is None or abs(lr - told) > _CHANGE * abs(told):
            self._told = lr
            self._channel.post(LrUpdate(rank=self._channel.rank, lr=lr))
