"""Batches of one rank in two halves: what the pending cycle closes, and what came after.

What it is: the split that makes a finish subtract instead of zero. A batch that
is reported before the rank's SnapshotReady of the cycle is in that snapshot,
since both travel on one ordered channel; one reported after it is not. What the
batches cost is kept in the same halves.
What it is not: a divisor; the masses of a reduce come from the slots.
Who drives it: the coordinator, on reports, trigger, snapshot and finish.

    OPEN ──arm──▶ ARMED ──seal──▶ SEALED ──finish──▶ OPEN
    reports go to: open     closing       open
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from flodl_core.elche.window_ledger import WindowLedger, delivered_spacing
from flodl_core.messages.timing import Batch
from flodl_core.units import Milliseconds


class LedgerPhase(StrEnum):
    """Where the next report goes."""

    OPEN = "open"
    ARMED = "armed"
    SEALED = "sealed"


@dataclass(slots=True)
class StepLedger:
    """Batches and samples that a rank reported and that no finished cycle has closed."""

    phase: LedgerPhase = LedgerPhase.OPEN
    open_batches: int = 0
    open_samples: int = 0
    closing_batches: int = 0
    closing_samples: int = 0
    open_costs: WindowLedger = field(default_factory=WindowLedger)
    closing_costs: WindowLedger = field(default_factory=WindowLedger)

    @property
    def samples(self) -> int:
        """Samples reported and not closed, of both halves."""
        return self.open_samples + self.closing_samples

    def report(self, batches: int, samples: int) -> None:
        """Add reported batches to the half that they belong to."""
        if self.phase is LedgerPhase.ARMED:
            self.closing_batches += batches
            self.closing_samples += samples
        else:
            self.open_batches += batches
            self.open_samples += samples

    def measure(self, rows: Sequence[Batch], gap_ms: Milliseconds) -> None:
        """Add what the batches of one report cost.

        A window's first batch is spaced from the rank's release, on our clock. Later ones
        carry their own spacing: reports are gathered before they are sent, so their moments
        say less. A row without one is spaced by these.

        Args:
            rows: of the report.
            gap_ms: from the last batch of the report before, or from the release, to that of
                this one.
        """
        costs = self.closing_costs if self.phase is LedgerPhase.ARMED else self.open_costs
        spacing = delivered_spacing(gap_ms, [row.since_previous_ms for row in rows])
        for row, arrived_ms in zip(rows, spacing, strict=True):
            begins, own_ms = costs.batches == 0, row.since_previous_ms
            delivered_ms = arrived_ms if begins or own_ms <= 0 else own_ms
            costs.record_batch(row.batch_ms, row.data_ms, delivered_ms, loss=row.loss)

    def arm(self) -> None:
        """A cycle was triggered: everything so far is in its closing half."""
        self.closing_costs, self.open_costs = self.open_costs, WindowLedger()
        self.closing_batches += self.open_batches
        self.closing_samples += self.open_samples
        self.open_batches = self.open_samples = 0
        self.phase = LedgerPhase.ARMED

    def seal(self) -> None:
        """The rank took its snapshot: later reports are of the next window."""
        if self.phase is LedgerPhase.ARMED:
            self.phase = LedgerPhase.SEALED

    def finish(self) -> None:
        """The cycle is over: drop its half and nothing else."""
        self.closing_batches = self.closing_samples = 0
        self.closing_costs = WindowLedger()
        self.phase = LedgerPhase.OPEN
