"""What must be true of every run, looked at after every event: samples, saves, metrics.

What it is: independent books. They know from the ranks themselves which samples each
snapshot held and from the root which buckets were formed of whom; the coordinator's
words are compared with both. A broken rule raises `SimulationFailure` at once.
What it is not: part of a machine; it changes nothing.
Who drives it: `simulation.world` reports everything here.

    samples      each position trained or dropped at most once, exactly once in a run that is done
    one set      a bucket's sum, divisor and ranks agree, within the bound of the algebra
    same bits    after a commit everybody who adopted holds the root's very values
    moved        or, where ranks run on, is as much nearer to them as it has to be
    hold         no rank trains on past the batches of its window, or past its overshoot
    saves        a bundle holds the version it says, untouched while it is written
    innocence    no rank is taken out that no fault has struck and nobody has drained
    drains       a host whose drain was accepted has left before the run is done
    ceilings     no wait is older than its ceiling, and every run ends
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from flodl_core.coordinator.effects import (
    Announce,
    DeclareRankDead,
    EvictRank,
    RaiseAlert,
    RecordSamples,
    RunFinished,
    SampleEntry,
    SampleStatus,
    SaveBundle,
    Send,
)
from flodl_core.coordinator.events import RankMessage, RoundEnded
from flodl_core.dispatch.epoch_plan import span_event
from flodl_core.elche.overshoot import OVERSHOOT_CEILING
from flodl_core.ids import Cycle, Mode, Rank, Round, RoundOutcome, SaveReason
from flodl_core.messages.control import (
    EpochAggregated,
    EpochPlan,
    SetGlobalStep,
    StartEpoch,
    Update,
)
from flodl_core.messages.metrics import MetricsMsg
from flodl_core.messages.timing import CheckpointResult
from flodl_core.simulation.end_oracle import EndOracle
from flodl_core.simulation.rank_calls import Drawn
from flodl_core.simulation.rules import Rules
from flodl_core.simulation.saved_run import SavedRun
from flodl_core.simulation.sim_root import Committed
from flodl_core.simulation.tiny_model import COUNTER, TinySlot
from flodl_core.simulation.value_oracle import ValueOracle


@dataclass(slots=True)
class Oracles:
    """The independent books of one run."""

    rules: Rules
    values: ValueOracle
    ends: EndOracle
    saves: int = 0
    trained: int = 0
    dropped: int = 0
    _fate: dict[int, list[int]] = field(default_factory=dict)
    _recorded: dict[tuple[int, Rank], SampleStatus] = field(default_factory=dict)
    _reported: Counter[tuple[Rank, int]] = field(default_factory=Counter)
    """Samples that a rank reported of an epoch in its metrics."""
    _settled: Counter[tuple[Rank, int]] = field(default_factory=Counter)
    """Samples of an epoch that a rank trained or saw dropped."""
    _window_batches: dict[Rank, int] = field(default_factory=dict)
    """Batches of the window that each rank was told last."""
    _before_last_save: set[tuple[int, Rank]] = field(default_factory=set)
    _last_save: int | None = None
    """The version of the save that ends the run."""
    _pinned: tuple[Committed, bytes] | None = None
    _bundled: tuple[SaveBundle, dict[int, tuple[bool, ...]]] | None = None
    """The save that was ordered last, and what is settled in it."""
    _written: SavedRun | None = None
    newest_bundle: SavedRun | None = None
    """The newest complete one."""
    _checkpoint_counters: dict[int, set[int]] = field(default_factory=dict)

    def snapshot_taken(self, cycle: Cycle, slot: TinySlot, drawn: list[Drawn]) -> None:
        """A rank wrote its slot, after these batches."""
        most = self._most_batches(slot.rank)
        self.rules.require(
            len(drawn) <= most, "hold", f"rank {slot.rank} did {len(drawn)} batches of {most}"
        )
        self.values.snapshot_taken(cycle, slot, drawn)

    def _most_batches(self, rank: Rank) -> float:
        """What a rank may have in a snapshot; after a loss the others' counts are anew."""
        scenario, told = self.rules.scenario, self._window_batches.get(rank, 0)
        if scenario.mode is not Mode.CPU_ASYNC or not told:
            return told
        further = OVERSHOOT_CEILING if scenario.overshoot is None else scenario.overshoot
        lost = self.ends.taken_out or scenario.drained_hosts
        return math.inf if lost else told + max(further, 2 * scenario.world_size)

    def cycle_committed(self, committed: Committed) -> None:
        """The root committed a cycle as a whole."""
        self.values.cycle_committed(committed)
        pinned = self._pinned
        ahead = pinned is None or committed.version <= pinned[0].version
        overtaken = (
            sum(version > pinned[0].version for version in self.values.commits) if pinned else 0
        )
        self.rules.require(
            ahead or overtaken <= 1,
            "saves",
            f"version {committed.version} would overwrite what is being written",
        )

    def checkpoint_read(self, version: int, drawn: int) -> None:
        """A rank read what only it has, with this many batches drawn after its last snapshot."""
        self.rules.require(
            drawn == 0 or version == 0,
            "saves",
            f"version {version} was read {drawn} batches too late",
        )

    # what the coordinator says

    def effects(self, event: object, effects: Sequence[object]) -> None:
        """The coordinator answered an event."""
        if isinstance(event, RankMessage):
            self._message_taken(event.rank, event.message)
        for effect in effects:
            self._effect(effect)
        if isinstance(event, RoundEnded):
            self._round_ended(event)

    def _effect(self, effect: object) -> None:
        match effect:
            case Send():
                self._sent(effect.rank, effect.message)
            case RecordSamples():
                for entry in effect.entries:
                    self._record(entry)
            case RaiseAlert(alert_class="rank_lost"):
                self.ends.loss_alerted(effect)
            case Announce():
                self.ends.drain_announced(effect)
            case DeclareRankDead() | EvictRank():
                self.ends.rank_taken_out(effect)
            case SaveBundle():
                self._bundle(effect)
            case RunFinished():
                self._finish(effect)
            case _:
                pass

    def _sent(self, rank: Rank, message: object) -> None:
        match message:
            case EpochAggregated():
                self._aggregated(rank, message.epoch)
            case StartEpoch(plan=plan) | Update(next_plan=EpochPlan() as plan) if (
                plan.window_batches
            ):
                self._window_batches[rank] = plan.window_batches
            case SetGlobalStep(own_batches=own) if own:
                self._window_batches[rank] = max(own, self._window_batches.get(rank, 0))
            case _:
                pass

    def _message_taken(self, rank: Rank, message: object) -> None:
        if isinstance(message, MetricsMsg):
            self._reported[rank, message.epoch] += message.samples_processed
        elif isinstance(message, CheckpointResult):
            blob = message.local_buffers.get(COUNTER)
            if blob is not None:
                counters = self._checkpoint_counters.setdefault(message.version, set())
                counters.add(int.from_bytes(blob.data, "little"))

    def _aggregated(self, rank: Rank, epoch: int) -> None:
        reported, settled = self._reported[rank, epoch], self._settled[rank, epoch]
        self.rules.require(
            reported == settled,
            "metrics",
            f"epoch {epoch} ends with {reported} samples reported by rank {rank} of {settled}",
        )

    def _record(self, entry: SampleEntry) -> None:
        known = self.values.snapshots.get((entry.cycle, entry.rank))
        self.rules.require(
            known is not None, "samples", f"{entry} of a snapshot that was never taken"
        )
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
        self.rules.require(told == truth, "samples", f"{entry} but the rank drew {known.drawn}")
        slot = known.slot
        fits = slot.n > 0 if entry.status is SampleStatus.TRAINED else slot.n == 0
        self.rules.require(fits, "samples", f"{entry} of a snapshot with n = {slot.n}")
        if entry.status is SampleStatus.TRAINED:
            accepted = self.values.accepted.get(entry.cycle, ())
            self.rules.require(
                entry.rank in accepted, "one set", f"{entry}; accepted were {accepted}"
            )
        self._recorded[entry.cycle, entry.rank] = entry.status
        self._settled[entry.rank, entry.epoch] += len(told)
        if entry.status is SampleStatus.TRAINED:
            self.trained += len(told)
        else:
            self.dropped += len(told)
        for epoch, position in told:
            fate = self._fates(epoch)
            self.rules.require(
                fate[position] == 0, "samples", f"position {position} of epoch {epoch} twice"
            )
            fate[position] = entry.cycle + 1

    def _fates(self, epoch: int) -> list[int]:
        """One number a position: 0, or the cycle that settled it plus 1."""
        saved, count = self.rules.scenario.saved, self.rules.scenario.n_samples
        if epoch not in self._fate:
            before = saved.settled.get(epoch, ()) if saved is not None else ()
            self._fate[epoch] = [int(done) for done in before] or [0] * count
        return self._fate[epoch]

    def _round_ended(self, event: RoundEnded) -> None:
        """Every accepted contribution is recorded at once, unless the run was over."""
        if event.round is not Round.PARAMS or event.outcome is not RoundOutcome.COMMITTED:
            return
        if self._last_save is not None or self.ends.finished is not None:
            return
        for rank in event.ranks_accepted:
            slot = self.values.slot(event.cycle, rank)
            if slot.n > 0 and slot.samples > 0:
                status = self._recorded.get((event.cycle, rank))
                self.rules.require(
                    status is SampleStatus.TRAINED,
                    "samples",
                    f"rank {rank} counts in cycle {event.cycle} and its samples do not",
                )

    def _bundle(self, effect: SaveBundle) -> None:
        self.saves += 1
        facts = effect.facts
        if effect.reason is not SaveReason.CHECKPOINT:
            self._last_save = effect.version
            self._before_last_save = set(self._recorded)
            self.ends.saving_last = True
        self.rules.require(facts.sync_round == effect.version, "saves", f"{effect}")
        settled = {
            epoch: tuple(not self._is_open(one, effect) for one in fate)
            for epoch, fate in self._fate.items()
        }
        self._bundled = effect, settled
        written = {(one.rank, one.sha256) for one in effect.rank_files}
        right = {(one.rank, str(effect.version)) for one in effect.rank_files}
        self.rules.require(written == right, "saves", f"rank files {written} in {effect.version}")
        for coverage in facts.coverage:
            fate = self._fates(coverage.epoch)
            span = self._span(coverage.epoch)
            truth = [p for p in range(span.offset, span.end) if self._is_open(fate[p], effect)]
            told = [p for part in coverage.uncovered for p in range(part.offset, part.end)]
            self.rules.require(told == truth, "saves", f"uncovered {told} instead of {truth}")
        blob = effect.local_buffers.get(COUNTER)
        counters = self._checkpoint_counters.get(effect.version)
        if blob is not None and counters is not None:
            counter = int.from_bytes(blob.data, "little")
            self.rules.require(
                counter in counters, "saves", f"{COUNTER} is {counter}, none of {counters}"
            )

    def _is_open(self, settled: int, effect: SaveBundle) -> bool:
        """Whether a position is not settled in what is saved; a half commit is not."""
        cycle = settled - 1
        half_committed = cycle > effect.version and cycle in self.values.accepted
        return not settled or half_committed

    def _span(self, epoch: int) -> "_Span":
        whole = span_event(
            epoch,
            self.rules.scenario.n_samples,
            splits=self.rules.scenario.epoch_splits,
            batch_size=self.rules.scenario.batch_size,
        ).whole
        return _Span(whole.offset, whole.end)

    def save_begun(self, committed: Committed) -> None:
        """The root pinned the values of a save."""
        content = committed.params.tobytes() + committed.buffers.tobytes()
        self._pinned = (committed, content)
        if self._bundled is not None:
            order, settled = self._bundled
            self._written = SavedRun(
                order.facts,
                order.local_buffers,
                committed.params,
                committed.buffers,
                settled,
                committed.outer,
            )

    def bundle_complete(self) -> None:
        """A write ended well."""
        self.newest_bundle = self._written

    def save_ended(self) -> None:
        """A write ended; what was pinned must be what it was."""
        if self._pinned is not None:
            committed, before = self._pinned
            content = committed.params.tobytes() + committed.buffers.tobytes()
            self.rules.require(content == before, "saves", "the pinned values changed")
            self._pinned = None

    def _finish(self, effect: RunFinished) -> None:
        self.ends.run_finished(effect)
        require, last = self.rules.require, self._last_save
        if last is not None:
            trained = SampleStatus.TRAINED
            new = self._recorded.keys() - self._before_last_save
            late = [key for key in new if key[0] > last and self._recorded[key] is trained]
            require(not late, "saves", f"{late} are recorded after version {last}")
        if effect.reason == "finished":
            self._require_all_settled()
        if self.rules.scenario.calm:
            may_drop = self.rules.scenario.skip_share > 0
            text = f"{self.dropped} samples dropped"
            require(self.dropped == 0 or may_drop, "ends well", text)

    def _require_all_settled(self) -> None:
        for epoch in range(self.rules.scenario.epochs * self.rules.scenario.epoch_splits):
            span, fate = self._span(epoch), self._fates(epoch)
            lost = [p for p in range(span.offset, span.end) if not fate[p]]
            self.rules.require(
                not lost, "samples", f"epoch {epoch} is done without positions {lost}"
            )
            whole = sum(settled > 0 for settled in fate)
            self.rules.require(whole == span.end - span.offset, "samples", f"epoch {epoch}: a tail")


@dataclass(frozen=True, slots=True)
class _Span:
    """Positions of an event that are given out."""

    offset: int
    end: int
