"""What must hold in a simulated run on NCCL, whoever dies and whoever is quicker.

    one value    everybody who adopts a cycle holds the same bits, parameters and velocity
    whole        an average is the weighted mean of what its members brought, in double precision
    stepped      and what is made of it is the outer rule's formula
    samples      a trained sample was in the contribution of its rank to that average, once
    saves        what is written is what was adopted at that version

What it is: checks on values and records, kept apart from the machines.
What it is not: the order of collectives; `nccl_group` fails on a phantom.
Who drives it: `nccl_world`.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from flodl_core.coordinator.effects import SampleEntry, SampleStatus, SaveBundle
from flodl_core.dispatch.epoch_plan import span_event
from flodl_core.ids import Cycle, OuterKind, Rank
from flodl_core.reduce.mass import gamma_mass
from flodl_core.reduce.velocity_cycles import velocity_up
from flodl_core.simulation.nccl_group import Average, Brought
from flodl_core.simulation.nccl_home import SimClaim, StarOffer
from flodl_core.simulation.rank_calls import Drawn
from flodl_core.simulation.rules import Rules
from flodl_core.simulation.tiny_model import F32, F64

Offered: TypeAlias = tuple[SimClaim, Brought, list[Drawn]]
"""What a rank claimed in a cycle, of which values, made of which batches."""

_ROUNDINGS = 2.0**-19
"""Of the largest value: some dozens of roundings to f32."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a rank holds after a cycle."""

    cycle: int
    params: F32
    velocity: F32
    is_average: bool
    """False after the initial broadcast, from which no step is taken."""

    def is_same(self, other: "Held") -> bool:
        """Return whether both are the same bits."""
        return bool(
            np.array_equal(self.params, other.params)
            and np.array_equal(self.velocity, other.velocity)
        )


@dataclass(slots=True)
class NcclOracle:
    """The oracle of one run."""

    rules: Rules
    offers: dict[tuple[int, Rank], Offered] = field(default_factory=dict)
    contributors: dict[int, tuple[Rank, ...]] = field(default_factory=dict)
    """Whose values are in the average of each cycle."""
    commits: dict[int, Held] = field(default_factory=dict)
    holding: dict[Rank, Held] = field(default_factory=dict)
    trained: dict[tuple[int, int], int] = field(default_factory=dict)
    """Cycle of each position of an event."""
    dropped: int = 0
    saves: int = 0

    def held(self) -> tuple[Held, ...]:
        """Return what the ranks hold."""
        return tuple(self.holding.values())

    def offered(self, claim: SimClaim, values: Brought, drawn: list[Drawn]) -> None:
        """A rank made a claim."""
        total = sum(size for _, _, size in drawn)
        self.rules.require(total == claim.tally.samples, "samples", f"{claim} of {total}")
        self.offers[claim.cycle, claim.tally.rank] = (claim, values, drawn)

    def began(self, rank: Rank, params: F32) -> None:
        """A rank took the initial broadcast."""
        held = Held(0, params.copy(), np.zeros_like(params), is_average=False)
        known = self.commits.setdefault(0, held)
        self.rules.require(known.is_same(held), "one value", f"rank {rank} begins otherwise")
        self.holding[rank] = held

    def adopted(self, rank: Rank, average: Average, held: Held, *, alive: set[Rank]) -> None:
        """A rank holds what it made of an average; others may have died with another one."""
        require, cycle = self.rules.require, average.cycle
        known = self.commits.get(cycle)
        if known is not None and not known.is_same(held):
            holders = [one for one in alive - {rank} if self.holding[one] is known]
            require(not holders, "one value", f"rank {rank} at cycle {cycle} beside {holders}")
            known = None
        before = self.holding[rank]
        require(before.cycle < cycle, "one value", f"rank {rank} adopts cycle {cycle} again")
        self._check_average(average)
        self._check_step(average, held, before)
        self.commits[cycle] = known or held
        self.holding[rank] = self.commits[cycle]
        self.contributors[cycle] = tuple(one.rank for one in average.tallies if one.n > 0)

    def _check_average(self, average: Average) -> None:
        gamma = self.rules.scenario.gamma
        mean: F64 = np.zeros(average.params.size)
        size, total = 0.0, 0.0
        for tally in average.tallies:
            claim, values, _ = self.offers[average.cycle, tally.rank]
            self.rules.require(claim.tally == tally, "whole", f"{tally} was claimed as {claim}")
            mass = gamma_mass(tally.n, gamma)
            if mass > 0:
                mean += mass * values.params.astype(float)
                size = max(size, float(np.abs(values.params).max()))
                total += mass
        apart = float(np.abs(average.params - mean / total).max())
        self.rules.require(apart <= _ROUNDINGS * size, "whole", f"{average} is off by {apart}")

    def _check_step(self, average: Average, held: Held, before: Held) -> None:
        rule, mean = self.rules.scenario.outer, average.params.astype(float)
        expected: F64 = mean
        if rule is not None and before.is_average:
            gradient = before.params.astype(float) - mean
            velocity = rule.momentum * before.velocity.astype(float) + gradient
            is_diloco = rule.kind is OuterKind.NESTEROV
            down = rule.momentum * velocity + gradient if is_diloco else velocity
            expected = before.params.astype(float) - rule.lr * down
        room = _ROUNDINGS * max(1.0, float(np.abs(expected).max()), float(np.abs(mean).max()))
        apart = float(np.abs(held.params - expected).max())
        self.rules.require(apart <= room, "stepped", f"cycle {average.cycle} is off by {apart}")

    def recorded(self, entry: SampleEntry) -> None:
        """The coordinator settled samples."""
        require = self.rules.require
        told = [(entry.epoch, at) for part in entry.ranges for at in range(part.offset, part.end)]
        claim, _, drawn = self.offers[entry.cycle, entry.rank]
        own = [(epoch, at) for epoch, first, size in drawn for at in range(first, first + size)]
        own = [one for one in own if one[0] == entry.epoch]
        require(told == own, "samples", f"{entry} was drawn as {drawn}")
        if entry.status is SampleStatus.DROPPED:
            require(claim.tally.declared, "samples", f"{entry} was well")
            self.dropped += len(told)
        else:
            inside = entry.rank in self.contributors.get(entry.cycle, ())
            require(inside, "samples", f"{entry} is not in its average")
        for one in told:
            require(one not in self.trained, "samples", f"{one} is settled twice: {entry}")
            self.trained[one] = entry.cycle

    def flaw_of(self, order: SaveBundle, brought: dict[int, StarOffer]) -> str | None:
        """Return why a save cannot be written; None if the root has the very values of it."""
        require, held_as = self.rules.require, order.held_as
        require(held_as is not None, "saves", f"{order} names no cycle of the root")
        offer = brought.get(held_as if held_as is not None else -1)
        if offer is None or offer.params is None:
            return "nobody brought it"
        commit = self.commits[order.facts.sync_round]
        require(np.array_equal(offer.params, commit.params), "saves", f"{order} has other values")
        if self.rules.scenario.outer is not None and commit.is_average:
            moving = brought.get(velocity_up(Cycle(offer.cycle)))
            if moving is None or moving.params is None:
                return "nobody brought the velocity"
            same = np.array_equal(moving.params, commit.velocity)
            require(same, "saves", f"{order} has another velocity")
        self.saves += 1
        return None

    def ended(self, *, is_finished: bool, alive: set[Rank]) -> None:
        """The run is over."""
        scenario, require = self.rules.scenario, self.rules.require
        if is_finished:
            values = {self.holding[rank].cycle for rank in alive}
            require(len(values) <= 1, "one value", f"survivors end at cycles {values}")
            events = range(scenario.epochs * scenario.epoch_splits)
            wholes = [
                span_event(
                    event,
                    scenario.n_samples,
                    splits=scenario.epoch_splits,
                    batch_size=scenario.batch_size,
                ).whole
                for event in events
            ]
            every = {
                (event, at)
                for event, span in zip(events, wholes, strict=True)
                for at in range(span.offset, span.end)
            }
            lost = sorted(every ^ self.trained.keys())
            require(not lost, "samples", f"{lost} are not settled, or no batch holds them")
