"""One save at a time: ask a rank for what only it has, then write the bundle.

What it is: whether a save is due, which is under way, and the local (integer and
bool) buffers that were last known. While an answer is awaited no cycle is triggered,
so the root still holds the version that was asked for.
What it is not: the writer, and not the root's pin of the committed values.
Who drives it: `coordinator.averaging` at a finish, `inbox`, `ending`, `dead_ranks`.

    REST ──ask──▶ ASKING ──CheckpointResult──▶ WRITING ──SaveFinished──▶ REST
      └──────────────── write (with what is known) ─────┘
"""

from dataclasses import dataclass
from enum import StrEnum

from flodl_core.coordinator.ceiling import Ceiling
from flodl_core.ids import Rank, SaveReason
from flodl_core.messages.timing import TensorBlob
from flodl_core.units import Seconds


class SavePurpose(StrEnum):
    """What the answer of the rank is for."""

    PRIME = "prime"
    """Only to know local buffers at all; nothing is written."""
    PERIODIC = "periodic"
    FINAL = "final"
    """The last one; the run ends after it."""


class SavePhase(StrEnum):
    """How far the save is."""

    REST = "rest"
    ASKING = "asking"
    WRITING = "writing"


@dataclass(frozen=True, slots=True)
class Save:
    """The save under way.

    Attributes:
        target: the rank that is asked; None while writing.
    """

    version: int
    purpose: SavePurpose
    reason: SaveReason
    since: Seconds
    target: Rank | None = None


class SaveDesk:
    """The saves of one run.

    Args:
        every_s: between periodic saves; None makes none.
        ceiling_s: how long an answer or a write may take.
    """

    def __init__(self, *, every_s: Seconds | None, ceiling_s: Seconds) -> None:
        self._every_s = every_s
        self._ceiling_s = ceiling_s
        self._clock_from: Seconds | None = None
        self._demanded = ""
        self.current: Save | None = None
        self.local_buffers: dict[str, TensorBlob] = {}
        self.saved_version: int | None = None
        self.last_error: str | None = None

    @property
    def phase(self) -> SavePhase:
        """How far the save is."""
        if self.current is None:
            return SavePhase.REST
        return SavePhase.WRITING if self.current.target is None else SavePhase.ASKING

    @property
    def writes_last(self) -> bool:
        """Whether the bundle that ends the run is being written."""
        save = self.current
        return save is not None and save.target is None and save.purpose is SavePurpose.FINAL

    @property
    def ceiling(self) -> Ceiling | None:
        """The wait for the answer or the write; None at rest."""
        return Ceiling(self.current.since, self._ceiling_s) if self.current else None

    def start_clock(self, now: Seconds) -> None:
        """Training begins: the first periodic save is due one interval from now."""
        self._clock_from = now

    def demand(self, who: str) -> None:
        """An operator wants a save at the next commit."""
        self._demanded = who

    @property
    def demanded(self) -> str:
        """Who wants a save soon; empty if nobody does."""
        return self._demanded

    def is_due(self, now: Seconds) -> bool:
        """Whether a commit at `now` shall be saved; never while a save is under way."""
        if self.current is not None:
            return False
        if self._demanded:
            return True
        if self._every_s is None or self._clock_from is None:
            return False
        return now - self._clock_from >= self._every_s

    def ask(self, save: Save) -> None:
        """A rank is asked."""
        self.current = save

    def write(self, version: int, purpose: SavePurpose, reason: SaveReason, now: Seconds) -> None:
        """The bundle of `version` is being written."""
        self.current = Save(version=version, purpose=purpose, reason=reason, since=now)
        if purpose is SavePurpose.PERIODIC:
            self._demanded = ""
            self._clock_from = now

    def rest(self) -> None:
        """The save under way is over or given up; one that was due is due again."""
        self.current = None

    def hold_reason(self, committed_version: int) -> str:
        """Why no cycle may be triggered; empty if a save does not stand in the way.

        One cycle may be committed while the values before it are written, not two:
        the root would have to overwrite what it is writing.
        """
        save = self.current
        if save is None:
            return ""
        if save.target is not None:
            return f"rank {save.target} has not answered the checkpoint of version {save.version}"
        if committed_version > save.version:
            return f"version {save.version} is still being written"
        return ""
