"""The whole memory of the coordinator, and the few words that its parts share.

What it is: one record that holds the parts (cohort, rendezvous, cycle, book, saves)
and the stage of the run, with the outbox that every part appends its effects to.
What it is not: a rule; it decides nothing.
Who drives it: `coordinator.machine` owns one and hands it to the parts.

    RENDEZVOUS ─▶ INITIAL (cycle 0) ─▶ TRAINING ⇄ EVALUATING
                                          └──────┬────┘
                                                 ▼
                                    CLOSING (save) ─▶ LEAVING ─▶ ENDED
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from flodl_core.coordinator.aggregation import EpochTotals
from flodl_core.coordinator.cadence import Cadence
from flodl_core.coordinator.callback_desk import CallbackDesk, EvalWait
from flodl_core.coordinator.ceiling import Ceiling
from flodl_core.coordinator.cohort import Cohort, RankRecord
from flodl_core.coordinator.cycle import CycleMachine, CyclePhase
from flodl_core.coordinator.effects import (
    Announce,
    Effect,
    RaiseAlert,
    SampleEntry,
    Send,
    Severity,
)
from flodl_core.coordinator.epochs import EpochBook
from flodl_core.coordinator.events import RoundEnded, StopRequested
from flodl_core.coordinator.facts import EpochFacts, ResumePoint
from flodl_core.coordinator.gate import GateVerdict
from flodl_core.coordinator.ledger import LedgerPhase
from flodl_core.coordinator.nccl_sessions import NcclSessions
from flodl_core.coordinator.rates import CommitRates
from flodl_core.coordinator.rendezvous import Rendezvous
from flodl_core.coordinator.saves import SaveDesk
from flodl_core.coordinator.settings import CoordinatorSettings
from flodl_core.ids import HostName, Mode, Rank, RankPhase, SaveReason
from flodl_core.machines import Note, NoteValue
from flodl_core.messages.job import Envelope, RunSpec
from flodl_core.units import Milliseconds, Seconds

SYNC_WINDOW_BATCHES = 1
_KEPT_EPOCHS = 1000
_IN_BATCH = (RankPhase.DATA, RankPhase.TRAINING, RankPhase.BUSY)


class RunStage(StrEnum):
    """Where the run stands."""

    RENDEZVOUS = "rendezvous"
    INITIAL = "initial"
    TRAINING = "training"
    EVALUATING = "evaluating"
    CLOSING = "closing"
    LEAVING = "leaving"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class StopOrder:
    """The first stop that was asked for, by somebody or by the run itself, and when."""

    request: StopRequested
    since: Seconds
    save_reason: SaveReason = SaveReason.GRACEFUL_SHUTDOWN
    detail: str = ""
    """Why the run stops by itself after its next average; empty if somebody asked."""

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for the end; a run that stops by itself takes its time."""
        return not self.detail


@dataclass(slots=True)
class Closing:
    """How the run ends.

    Attributes:
        save_reason: what the bundle's meta says, and ShutdownWithSave unless `plain`.
        label: one or two words, for RunFinished.
        ask: whether a rank is asked for what only it has before the bundle is written.
        plain: whether ranks get Shutdown, as after a run that is done.
        begun: whether the last save has been started.
        retries: how often it was started again because the root had moved on.
        late_rounds: rounds that ended while the last save was being written; they count
            only if that save has to be started again.
        retried_at: since when the news of that commit is awaited; None if it is here.
    """

    exit_code: int
    save_reason: SaveReason
    label: str
    detail: str
    since: Seconds
    ask: bool
    plain: bool = False
    begun: bool = False
    retries: int = 0
    retried_at: Seconds | None = None
    late_rounds: list[RoundEnded] = field(default_factory=list)
    save_error: str | None = None


@dataclass(slots=True)
class Window:
    """The window under way, as it was dealt; Sync keeps none.

    Attributes:
        began_at: when the ranks were released, or had written their parts of a save.
        planned_ms: what the slowest rank needs for its part; None if nothing is measured.
        is_final: whether it is the last one of its event.
        disturbance: why its costs say nothing about averaging; empty if nothing does.
        late: the rank that is far behind its part, in words; empty while none is.
        look_at: when the ranks' lateness is looked at next; None if it is not looked at.
        shrunk: whether counts became smaller since it was dealt.
    """

    began_at: Seconds
    planned_ms: Milliseconds | None
    is_final: bool
    disturbance: str = ""
    late: str = ""
    look_at: Seconds | None = None
    shrunk: bool = False


@dataclass(frozen=True, slots=True)
class BeforeCommit:
    """How things stood before the params round of the cycle under way was committed.

    Until its buffers round has ended the root holds the commit before it as a whole,
    and that is what a save gets.

    Attributes:
        entries: what that round settled.
    """

    version: int | None
    global_step: int
    trained_samples: int
    dropped_samples: int
    entries: tuple[SampleEntry, ...] = ()


@dataclass(slots=True)
class SchedulerState:
    """Everything the coordinator remembers."""

    envelope: Envelope
    settings: CoordinatorSettings
    has_eval: bool
    local_host: HostName | None
    cohort: Cohort
    rendezvous: Rendezvous
    cycle: CycleMachine
    book: EpochBook
    saves: SaveDesk
    nccl: NcclSessions | None = None
    """Who averages with whom; None where the root averages."""
    cadence: Cadence | None = None
    """Who does how many batches; None in Sync, where everybody does one."""
    window: Window | None = None
    plans_ended: bool = False
    """Whether the cycle under way is a cut: nobody trains on before it is over."""
    draining: dict[HostName, str] = field(default_factory=dict)
    """Hosts that leave at the next average, and who asked for it."""
    drained: set[HostName] = field(default_factory=set)
    stage: RunStage = RunStage.RENDEZVOUS
    out: list[Effect] = field(default_factory=list)
    started_at: Seconds | None = None
    resume: ResumePoint | None = None
    """Where the run goes on; None if it begins."""
    committed_version: int | None = None
    """The cycle of the newest committed params round; of the initial one, what it began with."""
    before_commit: BeforeCommit | None = None
    """Only of use while the cycle is in its buffers round."""
    global_step: int = 0
    syncs: int = 0
    """Committed cycles after the initial broadcast."""
    barren_cycles: int = 0
    """Cycles in a row without a finite contribution although someone declared."""
    totals: EpochTotals | None = None
    verdict: GateVerdict | None = None
    quiet_since: Seconds | None = None
    """Since when no rank may step and nothing is under way that could change that."""
    evaluation: EvalWait | None = None
    callbacks: CallbackDesk = field(default_factory=CallbackDesk)
    stop: StopOrder | None = None
    closing: Closing | None = None
    leaving_since: Seconds | None = None
    hosts_gone: dict[HostName, Seconds] = field(default_factory=dict)
    """Worker hosts without a rank that takes part, and since when; dropped ones are left out."""
    dropped_hosts: set[HostName] = field(default_factory=set)
    first_cause: str = ""
    """The first death's cause: what a failure is traced back to."""
    epochs: deque[EpochFacts] = field(default_factory=lambda: deque(maxlen=_KEPT_EPOCHS))
    rates: CommitRates = field(default_factory=CommitRates)
    next_beacon: Seconds | None = None
    next_check: Seconds | None = None
    """The earliest per-rank ceiling, as of the last tick."""

    @property
    def spec(self) -> RunSpec:
        """The numbers of the run."""
        return self.envelope.spec

    @property
    def runs_on(self) -> bool:
        """Whether ranks train on while they are averaged."""
        return self.spec.mode is Mode.CPU_ASYNC

    @property
    def first_version(self) -> int:
        """The version of what the initial broadcast brings."""
        return self.resume.sync_round if self.resume is not None else 0

    @property
    def ending(self) -> bool:
        """Whether nothing new is begun any more."""
        return self.stage in (RunStage.CLOSING, RunStage.LEAVING, RunStage.ENDED)

    @property
    def half_committed(self) -> BeforeCommit | None:
        """How things stood before a commit that is not whole yet; None if there is none."""
        return self.before_commit if self.cycle.phase is CyclePhase.BUFFERING else None

    @property
    def whole_version(self) -> int | None:
        """The newest version that the root holds as a whole."""
        half = self.half_committed
        return half.version if half is not None else self.committed_version

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.stage is RunStage.ENDED

    @property
    def hold_reason(self) -> str:
        """Why no cycle may be triggered, whatever the ranks did; empty if one may."""
        held = self.saves.hold_reason(self.committed_version or 0)
        return held or (self.nccl.hold_reason if self.nccl is not None else "")

    @property
    def window_end_words(self) -> str:
        """How a window ends that somebody wants to end."""
        whole = self.cadence is None or (self.cadence.is_pinned and not self.runs_on)
        return "finishing the window" if whole else "cutting the window"

    def ceiling(self, since: Seconds) -> Ceiling:
        """The ceiling of a reduce, a callback, a save, an adoption or a drain."""
        return Ceiling(since, self.spec.stall_timeout_s)

    def send(self, rank: Rank, message: object) -> None:
        """Send a message to one rank."""
        self.out.append(Send(rank, message))

    def send_alive(self, *messages: object) -> None:
        """Send these messages to every alive rank, rank by rank, in order."""
        for rank in self.cohort.alive_ranks:
            self.out.extend(Send(rank, message) for message in messages)

    def note(self, code: str, **fields: NoteValue) -> None:
        """Say that an input changed nothing."""
        self.out.append(Note(code=code, fields=fields))

    def alert(
        self, severity: Severity, alert_class: str, detail: str, *, rank: Rank | None = None
    ) -> None:
        """Tell the operator."""
        self.out.append(RaiseAlert(severity, alert_class, rank, detail))

    def announce(self, topic: str, text: str, **fields: NoteValue) -> None:
        """State a fact for log and operator."""
        self.out.append(Announce(topic, text, fields))

    def unreported_samples(self, rank: Rank) -> int:
        """Samples that the rank holds and has not reported as drawn.

        What a cycle closes leaves the holdings when its params round has ended, and the
        ledger only when the cycle is over.
        """
        ledger = self.cohort[rank].ledger
        drawn = ledger.open_samples if self.cycle.params_ended else ledger.samples
        return max(0, self.book.held_samples(rank) - drawn)

    def is_quiesced(self, rank: Rank) -> bool:
        """Whether the rank has nothing left to draw."""
        return self.unreported_samples(rank) == 0

    def may_step(self, rank: Rank) -> bool:
        """Whether the rank could be in a batch now."""
        if self.stage is not RunStage.TRAINING or self.cycle.pending:
            return False
        record = self.cohort[rank]
        return self._owes_batch(record, record.ledger.open_batches)

    def keeps_cycle_waiting(self, rank: Rank) -> bool:
        """Whether the cycle under way waits for a batch of that rank, by the rank's own word."""
        if self.stage is not RunStage.TRAINING or not self.cycle.pending:
            return False
        record = self.cohort[rank]
        if not record.alive or record.phase not in _IN_BATCH:
            return False
        if record.ledger.phase is LedgerPhase.ARMED:
            return self._owes_batch(record, record.ledger.closing_batches)
        is_asked = self.runs_on and self.cycle.phase is CyclePhase.ADOPTING
        if not is_asked or self.cycle.evidence(rank).ack is not None:
            return False
        return self._owes_batch(record, record.ledger.open_batches)

    def _owes_batch(self, record: RankRecord, done: int) -> bool:
        """Whether a rank that has done so many batches of its window owes another.

        One that is throttled owes the batch that it is in.
        """
        if self.evaluation is not None and self.evaluation.target == record.rank:
            return False
        window_open = self.runs_on or done < record.planned_batches
        is_held = record.throttled and record.phase not in _IN_BATCH
        return window_open and not is_held and not self.is_quiesced(record.rank)

    def disturb(self, why: str) -> None:
        """The costs of the window under way say nothing about averaging."""
        if self.window is not None:
            self.window.disturbance = self.window.disturbance or why

    def mark_able(self, ranks: Sequence[Rank], now: Seconds) -> None:
        """These ranks can step from now on: their progress ceilings begin."""
        for rank in ranks:
            self.cohort[rank].progress_at = now

    def release(self, ranks: Sequence[Rank], now: Seconds) -> None:
        """These ranks begin a window: their batches are spaced from now."""
        self.go_on(ranks, now)
        for rank in ranks:
            self.cohort[rank].spaced_from = now

    def go_on(self, ranks: Sequence[Rank], now: Seconds) -> None:
        """These ranks go on with what they are doing; nothing holds them back."""
        self.mark_able(ranks, now)
        for rank in ranks:
            self.cohort[rank].throttled = False
