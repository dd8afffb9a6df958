"""One save at a time: ask the ranks for what only they have, then write the bundle.

What it is: whether a save is due, which is under way, and the local (integer and
bool) buffers that were last known. Every alive rank is asked: each writes its file,
one also tells its local buffers. While an answer is awaited no cycle is triggered, so
the root still holds the version that was asked for. A save that is given up while ranks
still write keeps what they owe, so that a second question for its version does not take
their answers to the first.
What it is not: the writer, and not the root's pin of the committed values.
Who drives it: `coordinator.save_steps`, `ending`, `advance`.

    REST ──ask──▶ ASKING ──the last CheckpointResult──▶ WRITING ──SaveFinished──▶ REST
      │ ◀──give_up──┘                                      ▲
      └───────────────── write (with what is known) ───────┘
"""

from dataclasses import dataclass, field
from enum import StrEnum

from flodl_core.coordinator.ceiling import Ceiling
from flodl_core.ids import Cycle, Rank, SaveReason
from flodl_core.messages.job import RankFileRef
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


@dataclass(slots=True)
class Save:
    """The save under way.

    Attributes:
        target: the rank whose local buffers are taken; None while writing.
        owed: answers that are awaited, by rank; none while writing.
        files: what each rank has written.
    """

    version: int
    purpose: SavePurpose
    reason: SaveReason
    since: Seconds
    target: Rank | None = None
    owed: dict[Rank, int] = field(default_factory=dict)
    files: dict[Rank, RankFileRef] = field(default_factory=dict)
    publish: Cycle | None = None
    """On NCCL: the root's cycle in which the target brings the consensus to the launcher."""

    def settle(self, rank: Rank) -> None:
        """One answer of that rank has come."""
        self.owed[rank] -= 1
        if not self.owed[rank]:
            del self.owed[rank]


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
        self._is_epoch_due = False
        self._saved_at: Seconds | None = None
        self.current: Save | None = None
        self.left_open: Save | None = None
        """The newest one that was given up; answers to it may still come."""
        self.local_buffers: dict[str, TensorBlob] = {}
        self.saved_version: int | None = None
        self.good_files: dict[Rank, RankFileRef] = {}
        """Those that the newest complete bundle names, by rank."""
        self.last_error: str | None = None
        self.owes_prime = False
        """Whether who was to tell its buffers at the start was lost before it did."""

    @property
    def phase(self) -> SavePhase:
        """How far the save is."""
        if self.current is None:
            return SavePhase.REST
        return SavePhase.ASKING if self.current.owed else SavePhase.WRITING

    @property
    def writes_last(self) -> bool:
        """Whether the bundle that ends the run is being written."""
        save = self.current
        return save is not None and not save.owed and save.purpose is SavePurpose.FINAL

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
        if self._demanded or self._is_epoch_due:
            return True
        if self._every_s is None or self._clock_from is None:
            return False
        return now - self._clock_from >= self._every_s

    def owe_epoch(self) -> None:
        """As many epochs have passed as shall lie between two saves."""
        self._is_epoch_due = True

    def ask(self, save: Save) -> None:
        """The ranks are asked."""
        self.current, self.left_open = save, None

    def write(
        self,
        version: int,
        purpose: SavePurpose,
        reason: SaveReason,
        *,
        files: dict[Rank, RankFileRef],
        now: Seconds,
    ) -> None:
        """The bundle of `version` is being written, which names these files of ranks."""
        self.current = Save(version=version, purpose=purpose, reason=reason, since=now, files=files)
        if purpose is SavePurpose.PERIODIC:
            self._demanded = ""
            self._is_epoch_due = False
            self._clock_from = now

    def keep_good(self, save: Save, now: Seconds) -> None:
        """The bundle of a save is complete on disk."""
        self.saved_version, self._saved_at = save.version, now
        self.good_files = save.files

    def is_kept(self, version: int) -> bool:
        """Whether a bundle of that version is complete on disk, written by this run."""
        return self._saved_at is not None and self.saved_version == version

    def last_good(self, now: Seconds) -> str:
        """In words: which complete bundle is the newest, and how old it is."""
        if self._saved_at is None or self.saved_version is None:
            return "this run has no good one yet"
        age_s = max(0.0, now - self._saved_at)
        return f"the last good one is version {self.saved_version}, {age_s:.0f} s old"

    def rest(self) -> None:
        """The save under way is over; one that was due is due again."""
        self.current = None

    def give_up(self) -> None:
        """Nothing is written of the save under way; one that was due is due again."""
        self.left_open, self.current = self.current, None

    def hold_reason(self, committed_version: int) -> str:
        """Why no cycle may be triggered; empty if a save does not stand in the way.

        One cycle may be committed while the values before it are written, not two:
        the root would have to overwrite what it is writing.
        """
        save = self.current
        if save is None:
            return ""
        if save.owed:
            ranks = ", ".join(map(str, sorted(save.owed)))
            who = f"rank {ranks} has" if len(save.owed) == 1 else f"ranks {ranks} have"
            return f"{who} not answered the checkpoint of version {save.version}"
        if committed_version > save.version:
            return f"version {save.version} is still being written"
        return ""
