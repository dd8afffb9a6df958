"""What must be true of every run, looked at after every event.

What it is: independent books. They know from the ranks themselves which samples each
snapshot held and from the root which buckets were formed of whom; the coordinator's
words are compared with both. A broken rule raises `SimulationFailure` at once.
What it is not: part of a machine; it changes nothing.
Who drives it: `simulation.world` reports everything here.

    samples      each position trained or dropped at most once, exactly once in a run that is done
    one set      a bucket's sum, divisor and ranks agree, within the bound of the algebra
    same bits    after a commit everybody who adopted holds the root's very values
    saves        a bundle holds the version it says, untouched while it is written
    innocence    no rank is taken out that no fault has struck
    ceilings     no wait is older than its ceiling, and every run ends
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from flodl_core.coordinator.effects import (
    DeclareRankDead,
    EvictRank,
    RecordSamples,
    RunFinished,
    SampleEntry,
    SampleStatus,
    SaveBundle,
)
from flodl_core.coordinator.events import RoundEnded
from flodl_core.dispatch.epoch_plan import span_event
from flodl_core.ids import Cycle, ExitCode, Rank, Round, RoundOutcome, SaveReason, SyncOutcome
from flodl_core.messages.data import BucketFrame
from flodl_core.simulation.scenario import Action, Scenario
from flodl_core.simulation.sim_rank import Drawn
from flodl_core.simulation.sim_root import Committed
from flodl_core.simulation.tiny_model import (
    BUFFERS_A_BUCKET,
    COUNTER,
    F32,
    PARAMS_A_BUCKET,
    Slot,
)
from flodl_core.units import Seconds


class SimulationFailure(AssertionError):
    """A rule does not hold; the text says which, and where in the run."""


@dataclass(slots=True)
class _Snapshot:
    """What a rank put into its slot, and of which batches it was made."""

    slot: Slot
    drawn: list[Drawn]


@dataclass(slots=True)
class Oracles:
    """The independent books of one run."""

    scenario: Scenario
    now: Callable[[], Seconds]
    struck: set[Rank] = field(default_factory=set)
    """Ranks that a fault has touched."""
    applied: set[Action] = field(default_factory=set)
    """What has struck so far."""
    finished: RunFinished | None = None
    finished_at: Seconds = 0.0
    commits: dict[int, Committed] = field(default_factory=dict)
    saves: int = 0
    trained: int = 0
    dropped: int = 0
    _snapshots: dict[tuple[int, Rank], _Snapshot] = field(default_factory=dict)
    _fate: dict[int, bytearray] = field(default_factory=dict)
    _recorded: dict[tuple[int, Rank], SampleStatus] = field(default_factory=dict)
    _last_save: int | None = None
    """The version of the save that ends the run."""
    _pinned: tuple[Committed, bytes] | None = None
    _checkpoint_counters: dict[int, set[int]] = field(default_factory=dict)

    def require(self, holds: bool, rule: str, detail: str) -> None:  # noqa: FBT001
        """Fail the run if a rule does not hold."""
        if not holds:
            raise SimulationFailure(f"{rule} at {self.now():.3f} s: {detail}")

    # what ranks and root tell

    def snapshot_taken(self, cycle: Cycle, slot: Slot, drawn: list[Drawn]) -> None:
        """A rank wrote its slot."""
        total = sum(size for _, _, size in drawn)
        self.require(total == slot.samples, "samples", f"{slot} was made of {total} samples")
        self._snapshots[cycle, slot.rank] = _Snapshot(slot, drawn)

    def bucket_formed(self, frame: BucketFrame, values: F32) -> None:
        """The root formed a bucket of a values round."""
        buffers = frame.round is Round.BUFFERS
        width = BUFFERS_A_BUCKET if buffers else PARAMS_A_BUCKET
        part = slice(frame.index * width, (frame.index + 1) * width)
        slots = [self._slot(frame.cycle, rank) for rank in frame.ranks]
        masses = [slot.mass(buffers=buffers) for slot in slots]
        self.require(
            abs(sum(masses) - frame.mass) <= 1e-9 * max(1.0, frame.mass),
            "one set",
            f"{frame} is divided by {frame.mass}; its ranks have {masses}",
        )
        if not slots:
            return
        stacked = np.stack([slot.values(buffers=buffers)[part] for slot in slots]).astype(float)
        weights = np.array(masses)[:, None]
        exact = (stacked * weights).sum(axis=0) / weights.sum()
        scale = (np.abs(stacked) * weights).sum(axis=0) / weights.sum()
        bound = (len(slots) + 4) * 2.0**-24 * scale + 2.0**-149 * (1 + len(slots) / weights.sum())
        self.require(
            bool((np.abs(values - exact) <= bound).all()),
            "one set",
            f"{frame}: {values} instead of {exact}",
        )

    def _slot(self, cycle: int, rank: Rank) -> Slot:
        known = self._snapshots.get((cycle, rank))
        if known is None:
            raise SimulationFailure(f"one set: rank {rank} took no snapshot in cycle {cycle}")
        return known.slot

    def cycle_committed(self, committed: Committed) -> None:
        """The root committed a cycle as a whole."""
        finite = np.isfinite(committed.params).all() and np.isfinite(committed.buffers).all()
        self.require(bool(finite), "one set", f"version {committed.version} is not finite")
        self.commits[committed.version] = committed
        pinned = self._pinned
        ahead = pinned is None or committed.version <= pinned[0].version
        overtaken = sum(version > pinned[0].version for version in self.commits) if pinned else 0
        self.require(
            ahead or overtaken <= 1,
            "saves",
            f"version {committed.version} would overwrite what is being written",
        )

    def acknowledged(self, rank: Rank, cycle: Cycle, outcome: SyncOutcome, *, values: F32) -> None:
        """A rank adopted, or kept its own."""
        if outcome is SyncOutcome.UNREALIZED:
            self.require(cycle not in self.commits, "same bits", f"rank {rank} missed {cycle}")
            return
        committed = self.commits.get(cycle)
        self.require(committed is not None, "same bits", f"rank {rank} adopted cycle {cycle} early")
        assert committed is not None
        expected = np.concatenate((committed.params, committed.buffers))
        if not committed.buffers_realized:
            expected, values = committed.params, values[: committed.params.size]
        self.require(
            values.tobytes() == expected.tobytes(),
            "same bits",
            f"rank {rank} holds {values} after cycle {cycle}, the root {expected}",
        )

    def checkpoint_read(self, version: int, drawn: int, counter: int) -> None:
        """A rank read what only it has, with this many batches drawn after its last snapshot."""
        self._checkpoint_counters.setdefault(version, set()).add(counter)
        self.require(
            drawn == 0 or version == 0,
            "saves",
            f"version {version} was read {drawn} batches too late",
        )

    # what the coordinator says

    def effects(self, event: object, effects: Sequence[object]) -> None:
        """The coordinator answered an event."""
        for effect in effects:
            match effect:
                case RecordSamples():
                    for entry in effect.entries:
                        self._record(entry)
                case DeclareRankDead() | EvictRank():
                    guilty = effect.rank in self.struck or effect.reason == "exited"
                    self.require(guilty, "innocence", f"{effect} though nothing befell it")
                case SaveBundle():
                    self._bundle(effect)
                case RunFinished():
                    self._finish(effect)
                case _:
                    pass
        if isinstance(event, RoundEnded):
            self._round_ended(event)

    def _record(self, entry: SampleEntry) -> None:
        known = self._snapshots.get((entry.cycle, entry.rank))
        self.require(known is not None, "samples", f"{entry} of a snapshot that was never taken")
        assert known is not None
        told = [
            (entry.epoch, position)
            for part in entry.ranges
            for position in range(part.offset, part.end)
        ]
        truth = [
            (epoch, position)
            for epoch, offset, size in known.drawn
            for position in range(offset, offset + size)
        ]
        self.require(told == truth, "samples", f"{entry} but the rank drew {known.drawn}")
        slot = known.slot
        fits = slot.n > 0 if entry.status is SampleStatus.TRAINED else slot.n == 0
        self.require(fits, "samples", f"{entry} of a snapshot with n = {slot.n}")
        self._recorded[entry.cycle, entry.rank] = entry.status
        if entry.status is SampleStatus.TRAINED:
            self.trained += len(told)
        else:
            self.dropped += len(told)
        for epoch, position in told:
            fate = self._fates(epoch)
            self.require(
                fate[position] == 0, "samples", f"position {position} of epoch {epoch} twice"
            )
            fate[position] = 1

    def _fates(self, epoch: int) -> bytearray:
        return self._fate.setdefault(epoch, bytearray(self.scenario.n_samples))

    def _round_ended(self, event: RoundEnded) -> None:
        """Every accepted contribution is recorded at once, unless the run was over."""
        if event.round is not Round.PARAMS or event.outcome is not RoundOutcome.COMMITTED:
            return
        if self._last_save is not None or self.finished is not None:
            return
        for rank in event.ranks_accepted:
            slot = self._slot(event.cycle, rank)
            if slot.n > 0 and slot.samples > 0:
                status = self._recorded.get((event.cycle, rank))
                self.require(
                    status is SampleStatus.TRAINED,
                    "samples",
                    f"rank {rank} counts in cycle {event.cycle} and its samples do not",
                )

    def _bundle(self, effect: SaveBundle) -> None:
        self.saves += 1
        facts = effect.facts
        if effect.reason is not SaveReason.CHECKPOINT:
            self._last_save = effect.version
        self.require(facts.sync_round == effect.version, "saves", f"{effect}")
        for coverage in facts.coverage:
            fate = self._fates(coverage.epoch)
            span = self._span(coverage.epoch)
            truth = [p for p in range(span.offset, span.end) if not fate[p]]
            told = [p for part in coverage.uncovered for p in range(part.offset, part.end)]
            self.require(told == truth, "saves", f"uncovered {told} instead of {truth}")
        blob = effect.local_buffers.get(COUNTER)
        counters = self._checkpoint_counters.get(effect.version)
        if blob is not None and counters is not None:
            counter = int.from_bytes(blob.data, "little")
            self.require(
                counter in counters, "saves", f"{COUNTER} is {counter}, none of {counters}"
            )

    def _span(self, epoch: int) -> "_Span":
        whole = span_event(
            epoch,
            self.scenario.n_samples,
            splits=self.scenario.epoch_splits,
            batch_size=self.scenario.batch_size,
        ).whole
        return _Span(whole.offset, whole.end)

    def save_begun(self, committed: Committed) -> None:
        """The root pinned the values of a save."""
        content = committed.params.tobytes() + committed.buffers.tobytes()
        self._pinned = (committed, content)

    def save_ended(self) -> None:
        """A write ended; what was pinned must be what it was."""
        if self._pinned is not None:
            committed, before = self._pinned
            content = committed.params.tobytes() + committed.buffers.tobytes()
            self.require(content == before, "saves", "the pinned values changed")
            self._pinned = None

    def _finish(self, effect: RunFinished) -> None:
        self.require(self.finished is None, "ends once", f"{effect} after {self.finished}")
        self.finished, self.finished_at = effect, self.now()
        if self._last_save is not None:
            trained = SampleStatus.TRAINED
            late = [
                key
                for key, status in self._recorded.items()
                if key[0] > self._last_save and status is trained
            ]
            self.require(not late, "saves", f"{late} are recorded after version {self._last_save}")
        done = effect.exit_code in (ExitCode.DONE, ExitCode.NOT_SAVED)
        if done and effect.reason == "finished":
            self._require_all_settled()
        self._require_cause(effect)
        if self.scenario.calm:
            self.require(effect.exit_code == ExitCode.DONE, "ends well", f"{effect}")
            self.require(
                self.dropped == 0 or self.scenario.skip_share > 0,
                "ends well",
                f"{self.dropped} samples dropped",
            )

    def _require_cause(self, effect: RunFinished) -> None:
        """An end has one of the causes that it claims."""
        scenario, applied = self.scenario, self.applied
        hangs = scenario.hanging_save is not None
        lost_all = len(self.struck) == scenario.world_size
        causes = {
            "finished": True,
            "stopped": any(order.kind is not None for order in scenario.orders),
            SaveReason.REDUCE_STALL.value: hangs or Action.STICK in applied,
            SaveReason.NON_FINITE.value: Action.POISON in applied,
            SaveReason.ALL_RANKS_LOST.value: lost_all,
            "rendezvous_failed": bool(self.struck),
            "initial_broadcast_failed": bool(self.struck),
        }
        self.require(causes.get(effect.reason, False), "causes", f"{effect} after {applied}")
        unsaved = effect.exit_code == ExitCode.NOT_SAVED
        may_fail = hangs or bool(scenario.failing_saves)
        self.require(may_fail or not unsaved, "causes", f"{effect} though every write succeeds")

    def _require_all_settled(self) -> None:
        for epoch in range(self.scenario.epochs * self.scenario.epoch_splits):
            span, fate = self._span(epoch), self._fates(epoch)
            lost = [p for p in range(span.offset, span.end) if not fate[p]]
            self.require(not lost, "samples", f"epoch {epoch} is done without positions {lost}")
            whole = sum(fate)
            self.require(whole == span.end - span.offset, "samples", f"epoch {epoch}: a tail")


@dataclass(frozen=True, slots=True)
class _Span:
    """Positions of an event that are given out."""

    offset: int
    end: int
