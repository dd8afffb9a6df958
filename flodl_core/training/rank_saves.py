"""A rank's part in saves and in a resume: its file, its answer, and what it goes on from.

It decides which file of a resumed bundle is this rank's, reads it before the rank says
that it is here, and puts it back once the consensus of the bundle is adopted. A file
that cannot be used is named; the rank then begins with a fresh optimizer. The training
thread drives it.
"""

from typing import Final

from flodl_core.dispatch.actions import WriteCheckpoint
from flodl_core.errors import CheckpointError, FlodlError
from flodl_core.messages.control import Checkpoint
from flodl_core.messages.job import RankFileRef, ResumeSpec
from flodl_core.messages.timing import CheckpointResult
from flodl_core.net import clock
from flodl_core.training.build import Trainee
from flodl_core.training.event_log import EventLog
from flodl_core.training.load import describe_error
from flodl_core.training.local_buffers import pack_local_buffers
from flodl_core.training.plain_state import Plain
from flodl_core.training.rank_files import RankFiles, read_rank_file_untrusted
from flodl_core.training.rank_state import RankProgress, check_state, put_back_state, take_state
from flodl_core.training.seat import Seat
from flodl_core.units import Seconds

SAMPLE_WAIT_S: Final[Seconds] = 10.0
"""Longest wait of a save for the sample that is being read."""


class RankSaves:
    """Saves and the resume of one rank.

    Args:
        seat: which rank of which world.
        log: takes what is wrong with a file.
    """

    def __init__(self, seat: Seat, log: EventLog) -> None:
        self._seat = seat
        self._log = log
        self._files = RankFiles(seat)
        self._has_place = bool(seat.envelope.spec.save_path)
        self._saved_version: int | None = None
        self._read: dict[str, Plain] | None = None
        self.resume_note: str | None = None
        """Why this rank of a resumed run begins with a fresh optimizer."""

    def read(self, trainee: Trainee) -> None:
        """Read the file that this rank goes on from, if the run goes on from a bundle.

        Args:
            trainee: as built; it is not changed yet.
        """
        resume = self._seat.envelope.spec.resume
        if resume is None:
            return
        try:
            self._read = self._read_for(trainee, resume)
        except CheckpointError as error:
            self.resume_note = error.happened
            self._log.warning("fresh_optimizer", reason=error.happened)

    def put_back(self, trainee: Trainee) -> int | None:
        """Go on from what was read; the consensus of the bundle has been adopted.

        Returns:
            The pass for which the rank's compute is seeded; None where it is to be seeded.
        """
        saved, self._read = self._read, None
        if saved is None:
            return None
        put_back_state(saved, trainee)
        self._log.info("resumed", version=saved["version"], batches=saved["batches"])
        seeded: int | None = saved["pass_index"]
        return seeded

    def note_asked(self, message: Checkpoint) -> None:
        """Learn from a request which save was complete last."""
        self._saved_version = message.saved_version

    def answer(
        self,
        trainee: Trainee,
        action: WriteCheckpoint,
        progress: RankProgress,
        *,
        is_at_rest: bool = True,
        fault: str | None = None,
    ) -> CheckpointResult:
        """Write what only this rank has; an error becomes part of the answer.

        Args:
            trainee: at the commit that is saved.
            action: says what of it is wanted.
            progress: where the rank stands.
            is_at_rest: whether nobody draws from the generators now.
            fault: what went wrong before; it becomes part of the answer.
        """
        began = clock.now()
        packed, error = {}, fault
        file, file_error = None, None
        if action.tells_locals:
            try:
                packed = pack_local_buffers(trainee.layout)
            except FlodlError as failure:
                error = error or describe_error(failure)
        if action.writes_file and self._has_place:
            try:
                if not is_at_rest:
                    raise CheckpointError(
                        f"one sample has been read for {SAMPLE_WAIT_S:g} s, and may draw numbers"
                    )
                file = self._files.write(
                    take_state(trainee, progress),
                    action.version,
                    saved_version=self._saved_version,
                )
            except Exception as failure:
                file_error = describe_error(failure)
                self._log.warning("rank_file_failed", version=action.version, error=file_error)
        return CheckpointResult(
            rank=self._seat.rank,
            version=action.version,
            elapsed_ms=(clock.now() - began) * 1e3,
            error=error,
            local_buffers=packed,
            rank_file=file,
            rank_file_error=file_error,
        )

    def _read_for(self, trainee: Trainee, resume: ResumeSpec) -> dict[str, Plain]:
        path = self._files.find(own_file(self._seat, resume))
        saved = read_rank_file_untrusted(path)
        try:
            check_state(saved, trainee, version=resume.sync_round)
        except (CheckpointError, KeyError, TypeError, AttributeError, ValueError) as error:
            why = error.happened if isinstance(error, CheckpointError) else describe_error(error)
            raise CheckpointError(f"{path}: {why}") from error
        return saved


def own_file(seat: Seat, resume: ResumeSpec) -> RankFileRef:
    """Return the file of a bundle that is this rank's: that of its host and device.

    Ranks that share a device take its files in their order; numbers count for nothing else,
    since hosts may join in another order.

    Raises:
        CheckpointError: the bundle has none such.
    """
    host, device = seat.host, seat.device_name
    files = sorted(
        (ref for ref in resume.rank_files if (ref.host, ref.device) == (host.host, device)),
        key=lambda ref: ref.rank,
    )
    sharing = [rank for rank, its in zip(host.ranks, host.devices, strict=True) if its == device]
    place = sharing.index(seat.rank)
    if place >= len(files):
        raise CheckpointError(f"the bundle has no file of {device} on {host.host}")
    return files[place]
