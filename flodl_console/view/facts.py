"""Facts of a status document that more than one panel needs.

What it is: small pure selectors: who is alive, what a rank is called, what a state means.
What it is not: a panel.
Who drives it: the panels.
"""

from dataclasses import dataclass
from typing import Final

from flodl_console.view.model import ConsoleView
from flodl_console.view.records import LinkState
from flodl_console.view.texts import says
from flodl_console.view.tones import Glyph, Tone
from flodl_core.ids import ClusterPhase, ExitCode, RankPhase
from flodl_core.telemetry.state import RankState, StateDocument

MAX_HOST_CELLS: Final = 24

GONE: Final = frozenset({RankPhase.LOST, RankPhase.DONE, RankPhase.STOPPED})
"""States of ranks that take no part any more."""

_STARTING: Final = frozenset({RankPhase.SPAWNING, RankPhase.JOINING})

OPEN_PHASES: Final = (ClusterPhase.WAITING, ClusterPhase.STAGING)
"""Phases in which hosts may join."""

PHASE_LOOKS: Final = {
    ClusterPhase.WAITING: (Glyph.WAITING, Tone.INFO),
    ClusterPhase.STAGING: (Glyph.PAUSED, Tone.ACCENT),
    ClusterPhase.FORMING: (Glyph.STARTING, Tone.INFO),
    ClusterPhase.TRAINING: (Glyph.RUNNING, Tone.OK),
    ClusterPhase.DONE: (Glyph.OK, Tone.OK),
    ClusterPhase.FAILED: (Glyph.BAD, Tone.BAD),
}

_EARLY_ENDS: Final = {
    ExitCode.STOPPED_SAVED: "stopped",
    ExitCode.INTERRUPTED_SAVED: "interrupted",
}
"""Ends that the run calls done although samples are left."""

STATE_LOOKS: Final = {
    RankPhase.SPAWNING: (Glyph.STARTING, Tone.INFO, "its process is starting"),
    RankPhase.JOINING: (Glyph.STARTING, Tone.INFO, "it is joining the world"),
    RankPhase.WAITING: (Glyph.WAITING, Tone.DIM, "it waits for the training to begin"),
    RankPhase.TRAINING: (Glyph.RUNNING, Tone.OK, "it does batches"),
    RankPhase.DATA: (Glyph.RUNNING, Tone.OK, "it waits for its samples"),
    RankPhase.HELD: (Glyph.WAITING, Tone.INFO, "its window is done, it waits for the others"),
    RankPhase.SNAPSHOT: (Glyph.REDUCING, Tone.INFO, "it is asked for its parameters"),
    RankPhase.REDUCING: (Glyph.REDUCING, Tone.INFO, "its parameters are being averaged"),
    RankPhase.ADOPTING: (Glyph.REDUCING, Tone.INFO, "it takes over the average"),
    RankPhase.CALLBACK: (Glyph.WRITING, Tone.INFO, "it evaluates the model"),
    RankPhase.SAVING: (Glyph.WRITING, Tone.INFO, "it writes a checkpoint"),
    RankPhase.BUSY: (Glyph.BUSY, Tone.WARN, "it burns CPU and does not answer"),
    RankPhase.STOPPED: (Glyph.STOPPED, Tone.WARN, "its process is stopped"),
    RankPhase.LOST: (Glyph.BAD, Tone.BAD, "it is lost, its samples go to the others"),
    RankPhase.DONE: (Glyph.OK, Tone.DIM, "its part is over"),
}


@dataclass(frozen=True, slots=True)
class PhaseLook:
    """How the run's phase is shown."""

    glyph: Glyph
    tone: Tone
    word: str
    """At most 12 cells."""


def phase_look(view: ConsoleView, document: StateDocument) -> PhaseLook:
    """Return the phase as it is to be read: a run that died is gone, one cut short not done."""
    if is_gone(view):
        return PhaseLook(Glyph.BAD, Tone.BAD, "gone")
    early = None if document.end is None else _EARLY_ENDS.get(document.end.exit_code)
    if early is not None and document.phase is ClusterPhase.DONE:
        return PhaseLook(Glyph.STOPPED, Tone.INFO, early)
    return PhaseLook(*PHASE_LOOKS[document.phase], document.phase.value)


def is_gone(view: ConsoleView) -> bool:
    """Whether the road to the run has ended although the run told of no end: it was killed."""
    return view.link is LinkState.ENDED and view.document is not None and not is_over(view.document)


def alive_ranks(document: StateDocument) -> tuple[RankState, ...]:
    """Return the ranks that take part."""
    return tuple(rank for rank in document.ranks if rank.state not in GONE)


def lost_ranks(document: StateDocument) -> tuple[RankState, ...]:
    """Return the ranks that died."""
    return tuple(rank for rank in document.ranks if rank.state is RankPhase.LOST)


def starting_ranks(document: StateDocument) -> tuple[RankState, ...]:
    """Return the ranks that have not met the others yet."""
    return tuple(rank for rank in document.ranks if rank.state in _STARTING)


def unacknowledged(document: StateDocument) -> tuple[RankState, ...]:
    """Return the ranks that a pending average waits for; none where it waits for all alike."""
    if document.reduce is None or document.reduce.state != "pending":
        return ()
    alive = alive_ranks(document)
    for waited in (
        (RankPhase.TRAINING, RankPhase.SNAPSHOT, RankPhase.BUSY),
        (RankPhase.REDUCING, RankPhase.ADOPTING),
    ):
        late = tuple(rank for rank in alive if rank.state in waited)
        if late:
            return () if len(late) == len(alive) else late
    return ()


def is_over(document: StateDocument) -> bool:
    """Whether the run has ended."""
    return document.end is not None or document.phase in (ClusterPhase.DONE, ClusterPhase.FAILED)


def host_names(document: StateDocument) -> tuple[str, ...]:
    """Return the hosts of ranks, or of members before there are ranks, each once, in order."""
    names = [rank.host for rank in document.ranks] or [one.host for one in document.members]
    return tuple(dict.fromkeys(names))


def place_of(rank: int | None, host: str | None) -> str:
    """Return `rank 2 on blue`, `rank 2`, `host blue` or `the run`; at most 40 cells."""
    where = says(host, MAX_HOST_CELLS) if host else ""
    if rank is None:
        return f"host {where}" if where else "the run"
    return f"rank {rank} on {where}" if where else f"rank {rank}"


def share_reached(document: StateDocument) -> float | None:
    """Return the reached part of the ideal throughput; None where one is not known."""
    training = document.training
    if training is None or training.throughput is None or not training.ideal_throughput:
        return None
    return training.throughput / training.ideal_throughput
