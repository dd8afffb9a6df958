"""Taking up where a save ended: steps, books, cadence, and what ranks are given.

What it is: what a resumed run knows before its first event, and the buffers that ranks
get before the initial broadcast, which brings the saved consensus to everybody.
What it is not: reading a bundle, and not the choice whether its world is this one.
Who drives it: `coordinator.machine` at its making, `advance` when all ranks are there.
"""

from collections import deque

from flodl_core.coordinator.cohort import RankRecord
from flodl_core.coordinator.effects import Severity
from flodl_core.coordinator.facts import ResumePoint
from flodl_core.coordinator.state import SchedulerState
from flodl_core.messages.control import RestoreLocals


def take_up(state: SchedulerState, point: ResumePoint) -> None:
    """Set a run that has not begun to where a save ended.

    Raises:
        LocalProtocolError: what the save covers does not fit the run.
    """
    state.resume = point
    state.global_step, state.syncs = point.global_step, point.syncs
    state.epochs = deque(point.finished, maxlen=state.epochs.maxlen)
    state.saves.local_buffers = dict(point.local_buffers)
    state.saves.saved_version = point.sync_round
    if state.spec.resume is not None:
        files = state.spec.resume.rank_files
        world = state.envelope.world_size
        state.saves.good_files = {ref.rank: ref for ref in files if ref.rank < world}
    state.book.restore(point)
    if state.cadence is not None and point.elche is not None:
        state.cadence.restore(point.elche)


def give_locals(state: SchedulerState) -> None:
    """Send every rank the integer and bool buffers that belong to the saved consensus."""
    if state.resume is not None and state.resume.local_buffers:
        state.send_alive(RestoreLocals(local_buffers=dict(state.resume.local_buffers)))


def hear_note(state: SchedulerState, record: RankRecord, note: str) -> None:
    """A rank could not take up its own part of the save."""
    state.alert(
        Severity.WARN,
        "resume_incomplete",
        f"{record.where} begins with a fresh optimizer: {note}",
        rank=record.rank,
    )
