"""A rank whose controller vanished: whether it leaves its own parameters, and with which words.

The relay of a worker host outlives the launcher for a moment and asks one of its ranks,
the lowest that runs, by ShutdownWithSave of the reason controller_lost. A rank that is
not asked, such as any of the launcher's own host, leaves nothing: there the newest
bundle is what remains. The training thread drives it.
"""

from contextlib import suppress
from typing import Final

from torch import nn

from flodl_core.dispatch.pacer import RankPacer
from flodl_core.errors import CheckpointError, RunLostError
from flodl_core.ids import Cycle, SaveReason, SyncOutcome
from flodl_core.messages.control import ShutdownWithSave
from flodl_core.net import clock
from flodl_core.training.channel import RankChannel
from flodl_core.training.emergency import LastWords, write_emergency
from flodl_core.training.event_log import EventLog
from flodl_core.training.seat import Seat
from flodl_core.units import Seconds

LAST_WORD_S: Final[Seconds] = 3.0
"""Longest wait for the relay's last word once the data plane has ended."""


class ControllerLoss:
    """Keeps what the last words need.

    Args:
        seat: which rank of which world.
        channel: towards the bridge.
        pacer: of the rank; it is only read.
        log: of this process.
    """

    def __init__(self, seat: Seat, channel: RankChannel, pacer: RankPacer, log: EventLog) -> None:
        self._seat = seat
        self._channel = channel
        self._pacer = pacer
        self._log = log
        self._is_asked = False
        resume = seat.envelope.spec.resume
        self._begun_at = resume.sync_round if resume is not None else 0
        self._version: int | None = None
        self._offered_samples = 0

    def note_offered(self, samples: int) -> None:
        """A snapshot with so many samples was taken; its cycle is not over."""
        self._offered_samples = samples

    def note_ended(self, cycle: Cycle, outcome: SyncOutcome) -> None:
        """A cycle is over for this rank."""
        self._offered_samples = 0
        if outcome is not SyncOutcome.UNREALIZED:
            self._version = cycle or self._begun_at

    def heed(self, message: object) -> None:
        """Take the relay's word that the controller is gone and this rank is asked.

        Raises:
            RunLostError: it is that word.
        """
        if isinstance(message, ShutdownWithSave) and message.reason is SaveReason.CONTROLLER_LOST:
            self._is_asked = True
            raise RunLostError("the controller is gone")

    def leave_words(self, model: nn.Module, error: RunLostError) -> None:
        """Write the emergency file if this rank was asked and has something to tell.

        Args:
            model: as it is now.
            error: why the rank takes the run for lost.
        """
        self._read_the_rest()
        if not self._is_asked or self._version is None or not self._seat.envelope.spec.save_path:
            return
        words = LastWords(
            error=error.happened,
            version=self._version,
            global_step=self._pacer.global_step,
            epoch=self._pacer.epoch,
            samples_since_commit=self._offered_samples + self._pacer.uncommitted_samples,
            batches=self._channel.step_count,
        )
        try:
            path = write_emergency(self._seat, model, words)
        except CheckpointError as failure:
            self._log.exception("emergency_failed", failure)
            return
        self._log.warning("emergency_written", path=str(path), version=words.version)

    def _read_the_rest(self) -> None:
        """Look through what came last: the data plane may have ended before it was read."""
        until = clock.now() + LAST_WORD_S
        with suppress(RunLostError):
            while (left_s := until - clock.now()) > 0:
                message = self._channel.receive(left_s)
                if message is not None:
                    self.heed(message)
