"""The oracle of values: one set, same bits, and nobody non-finite for long.

What it is: every bucket that the root forms is computed again in double precision
from the slots of the ranks that its frame names; after a commit everybody who adopted
must hold the root's very values.
What it is not: a reader of the coordinator; it looks at ranks and root only.
Who drives it: `simulation.world`.
"""

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

from flodl_core.coordinator.events import RoundEnded
from flodl_core.ids import Cycle, Rank, Round, RoundOutcome, SyncOutcome
from flodl_core.messages.data import BucketFrame
from flodl_core.simulation.outer_reference import OuterReference
from flodl_core.simulation.rank_calls import Drawn
from flodl_core.simulation.rules import Rules, SimulationFailure
from flodl_core.simulation.sim_root import Committed
from flodl_core.simulation.tiny_model import BUFFERS_A_BUCKET, F32, PARAMS_A_BUCKET, TinySlot

MOST_DECLARED = 3
"""Non-finite cycles in a row, of one rank or of all, after which somebody must go."""


@dataclass(slots=True)
class Snapshot:
    """What a rank put into its slot, and of which batches it was made."""

    slot: TinySlot
    drawn: list[Drawn]


@dataclass(slots=True)
class ValueOracle:
    """What the values must be."""

    rules: Rules
    snapshots: dict[tuple[int, Rank], Snapshot] = field(default_factory=dict)
    commits: dict[int, Committed] = field(default_factory=dict)
    accepted: dict[int, tuple[Rank, ...]] = field(default_factory=dict)
    """Whose contributions are in the parameters of each committed cycle."""
    _declared: Counter[Rank] = field(default_factory=Counter)
    _barren: int = 0
    _outer: OuterReference = field(init=False)

    def __post_init__(self) -> None:
        """Begin with what the run goes on from."""
        self._outer = OuterReference(self.rules.scenario)

    def snapshot_taken(self, cycle: Cycle, slot: TinySlot, drawn: list[Drawn]) -> None:
        """A rank wrote its slot."""
        total = sum(size for _, _, size in drawn)
        self.rules.require(total == slot.samples, "samples", f"{slot} was made of {total} samples")
        self.snapshots[cycle, slot.rank] = Snapshot(slot, drawn)

    def bucket_formed(self, frame: BucketFrame, values: F32) -> None:
        """The root formed a bucket of a values round."""
        buffers = frame.round is Round.BUFFERS
        width = BUFFERS_A_BUCKET if buffers else PARAMS_A_BUCKET
        part = slice(frame.index * width, (frame.index + 1) * width)
        slots = [self.slot(frame.cycle, rank) for rank in frame.ranks]
        masses = [slot.mass(buffers=buffers) for slot in slots]
        self.rules.require(
            abs(sum(masses) - frame.mass) <= 1e-9 * max(1.0, frame.mass),
            "one set",
            f"{frame} is divided by {frame.mass}; its ranks have {masses}",
        )
        saved = self.rules.scenario.saved
        if frame.cycle == 0 and saved is not None:
            whole = saved.buffers if buffers else saved.params
            same = values.tobytes() == whole[part].tobytes()
            self.rules.require(same, "resume", f"{frame}: {values} are not the saved ones")
            return
        if not slots:
            return
        stacked = np.stack([slot.values(buffers=buffers)[part] for slot in slots]).astype(float)
        weights = np.array(masses)[:, None]
        exact = (stacked * weights).sum(axis=0) / weights.sum()
        scale = (np.abs(stacked) * weights).sum(axis=0) / weights.sum()
        bound = (len(slots) + 4) * 2.0**-24 * scale + 2.0**-149 * (1 + len(slots) / weights.sum())
        if not buffers and self._outer.steps(frame.cycle):
            exact, room = self._outer.step(part, exact)
            bound = np.full_like(exact, room)
        self.rules.require(
            bool((np.abs(values - exact) <= bound).all()),
            "one set",
            f"{frame}: {values} instead of {exact}",
        )

    def slot(self, cycle: int, rank: Rank) -> TinySlot:
        """What the rank put into its slot in that cycle."""
        known = self.snapshots.get((cycle, rank))
        if known is None:
            raise SimulationFailure(f"one set: rank {rank} took no snapshot in cycle {cycle}")
        return known.slot

    def cycle_committed(self, committed: Committed) -> None:
        """The root committed a cycle as a whole."""
        finite = np.isfinite(committed.params).all() and np.isfinite(committed.buffers).all()
        self.rules.require(bool(finite), "one set", f"version {committed.version} is not finite")
        self.commits[committed.version] = committed
        self._outer.committed(committed)

    def acknowledged(
        self, rank: Rank, cycle: Cycle, outcome: SyncOutcome, *, values: F32, before: F32
    ) -> None:
        """A rank adopted, or kept its own; `before` are the parameters that it had."""
        if outcome is SyncOutcome.UNREALIZED:
            self.rules.require(
                cycle not in self.commits, "same bits", f"rank {rank} missed {cycle}"
            )
            return
        committed = self.commits.get(cycle or self.rules.scenario.first_version)
        self.rules.require(
            committed is not None, "same bits", f"rank {rank} adopted cycle {cycle} early"
        )
        assert committed is not None
        alpha = self.rules.scenario.easgd_alpha
        if alpha is not None and cycle > 0 and outcome is SyncOutcome.COMMITTED:
            self._require_moved(rank, cycle, committed.params, values=values, before=before)
            values = np.concatenate((committed.params, values[committed.params.size :]))
        expected = np.concatenate((committed.params, committed.buffers))
        if not committed.buffers_realized:
            expected, values = committed.params, values[: committed.params.size]
        self.rules.require(
            values.tobytes() == expected.tobytes(),
            "same bits",
            f"rank {rank} holds {values} after cycle {cycle}, the root {expected}",
        )

    def _require_moved(
        self, rank: Rank, cycle: Cycle, consensus: F32, *, values: F32, before: F32
    ) -> None:
        """A rank that trained on is α nearer to the consensus, with its later steps in it."""
        alpha = self.rules.scenario.easgd_alpha
        assert alpha is not None
        snapshot = self.slot(cycle, rank).params.astype(float)
        own, target = before.astype(float), consensus.astype(float)
        exact = (1 - alpha) * snapshot + alpha * target + (own - snapshot)
        scale = np.abs(own) + 2 * np.abs(snapshot) + np.abs(target)
        bound = 4 * 2.0**-24 * scale + 4 * 2.0**-149
        apart = np.abs(values[: consensus.size] - exact)
        self.rules.require(
            bool(((apart <= bound) | ~np.isfinite(own)).all()),
            "moved",
            f"rank {rank} holds {values} after cycle {cycle}, expected {exact}",
        )

    def round_reported(self, event: RoundEnded) -> None:
        """The root ended a round; the coordinator will hear of it."""
        committed = event.outcome is RoundOutcome.COMMITTED
        if event.round is Round.PARAMS and committed:
            self.accepted[event.cycle] = event.ranks_accepted
            self._barren = 0
            for tally in event.tallies:
                declared = self._declared[tally.rank] + 1 if tally.declared else 0
                self._declared[tally.rank] = declared
                text = f"rank {tally.rank} declared {declared} cycles in a row"
                self.rules.require(declared <= MOST_DECLARED, "non-finite", text)
        elif event.round is Round.CONTROL and not committed:
            self._barren += any(tally.declared for tally in event.tallies)
            text = f"{self._barren} cycles in a row had no finite contribution"
            self.rules.require(self._barren <= MOST_DECLARED, "non-finite", text)
