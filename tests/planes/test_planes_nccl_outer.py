"""Outer optimizers on the NCCL plane, on the stand-in: every rank steps, all come to the same.

The reference is worked out in f64 from each cycle's own contributions; the formulas' bits
are those of the root's arithmetic.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nccl_rig import Cohort, HaltError, Member
from planes_world import geometry_of

from flodl_core.ids import SyncOutcome
from flodl_core.messages.job import Geometry
from flodl_core.planes.nccl.fused import SUMS
from flodl_core.planes.nccl.keeper import SessionBrokenError
from flodl_core.planes.nccl.outer_step import OuterAdopter, OuterMemory
from flodl_core.planes.nccl.parts import CycleEnd
from flodl_core.reduce.buckets import Run
from flodl_core.reduce.outer import NesterovMomentum, OuterMomentum, OuterStep, SlowMomentum

RULES = [SlowMomentum(lr=0.8, momentum=0.6), NesterovMomentum(lr=0.7, momentum=0.9)]
F64 = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@contextmanager
def cohort_of(
    size: int,
    rule: OuterMomentum,
    *,
    geometry: Geometry | None = None,
    in_place: bool = False,
) -> Iterator[Cohort]:
    made = Cohort(size, geometry=geometry, in_place=in_place, outer=rule)
    made.fill(seed=1)
    for one in made.members:
        one.cycles.take_initial()
    try:
        yield made
    finally:
        made.close()


def drift(cohort: Cohort, seed: int) -> list[F64]:
    """Every member trains: its parameters move by themselves. Returns what each has then."""
    for member in cohort.alive:
        generator = torch.Generator().manual_seed(100 * seed + member.rank)
        for part in member.geometry.params:
            if part.trainable:
                values = member.regions.params[part.offset : part.offset + part.numel]
                values += 0.1 * torch.randn(part.numel, generator=generator)
    return [one.regions.params.double().numpy().copy() for one in cohort.alive]


def ended(result: object) -> CycleEnd:
    assert isinstance(result, CycleEnd), result
    return result


def memory_of(member: Member) -> OuterMemory:
    assert member.regions.outer is not None
    return member.regions.outer


def check_same_bits(members: list[Member]) -> None:
    first = members[0]
    for other in members[1:]:
        assert torch.equal(first.regions.params, other.regions.params)
        assert torch.equal(memory_of(first).velocity, memory_of(other).velocity)
        assert torch.equal(memory_of(first).previous, memory_of(other).previous)


class Reference:
    """The rule in f64, written down from the papers' formulas."""

    def __init__(self, rule: OuterMomentum) -> None:
        self.rule = rule
        self.previous: F64 | None = None
        self.velocity: F64 = np.zeros(1)

    def step(self, values: list[F64], masses: list[float]) -> F64:
        mean: F64 = sum(m * x for m, x in zip(masses, values, strict=True)) / sum(masses)
        if self.previous is None:
            self.previous, self.velocity = mean, np.zeros_like(mean)
            return mean
        lr, mu = self.rule.lr, self.rule.momentum
        gradient = self.previous - mean
        self.velocity = mu * self.velocity + gradient
        ahead = isinstance(self.rule, NesterovMomentum)
        down = mu * self.velocity + gradient if ahead else self.velocity
        self.previous = self.previous - lr * down
        return self.previous


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: str(rule.kind))
@pytest.mark.parametrize("in_place", [False, True])
def test_averages_are_stepped_from_the_second_one_on_and_all_ranks_hold_the_same_bits(
    rule: OuterMomentum, in_place: bool
) -> None:
    with cohort_of(3, rule, in_place=in_place) as cohort:
        reference = Reference(rule)
        for cycle, counts in enumerate([(1, 4, 2), (3, 0, 2), (5, 5, 1), (1, 1, 1)], 1):
            values = drift(cohort, cycle)
            results = cohort.together(
                lambda one, cycle=cycle, counts=counts: one.average(counts[one.rank], cycle=cycle)
            )
            exact = reference.step(values, [float(n) for n in counts])
            check_same_bits(cohort.members)
            found = cohort.members[0].regions.params.double().numpy()
            assert np.abs(found - exact).max() < 2e-6
            for member, before, result in zip(cohort.members, values, results, strict=True):
                end = ended(result)
                assert end.outcome is SyncOutcome.COMMITTED
                assert torch.equal(memory_of(member).previous, member.regions.params)
                if in_place:
                    assert end.divergence is None
                else:
                    assert end.divergence is not None
                    apart = np.linalg.norm(before - found) / np.linalg.norm(found)
                    assert end.divergence.divergence == pytest.approx(apart, rel=1e-5)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e30]),
    lr=st.floats(0.01, 2.0),
    momentum=st.floats(0.0, 0.99),
    ahead=st.booleans(),
)
def test_a_rank_steps_to_the_very_bits_of_the_root(
    seed: int, scale: float, lr: float, momentum: float, ahead: bool
) -> None:
    rule = (NesterovMomentum if ahead else SlowMomentum)(lr=lr, momentum=momentum)
    rng = np.random.default_rng(seed)
    average, previous, velocity = (rng.normal(size=(3, 1000)) * scale).astype(np.float32)
    ours = OuterMemory(torch.from_numpy(previous.copy()), torch.from_numpy(velocity.copy()))
    params = torch.from_numpy(rng.normal(size=1000).astype(np.float32))
    spans = (Run(0, 300), Run(320, 680))
    sums = torch.zeros(SUMS, dtype=torch.float64)
    OuterAdopter(rule, torch.device("cpu")).adopt(
        params, torch.from_numpy(average), ours, spans=spans, sums=sums
    )
    out, after = average.copy(), velocity.copy()
    is_finite = OuterStep(rule).step(out, previous=previous, before=velocity, after=after)
    assert is_finite is (sums[3] == 0.0).item()
    for offset, length in spans:
        run = slice(offset, offset + length)
        assert np.array_equal(params.numpy()[run], out[run])
        assert np.array_equal(ours.velocity.numpy()[run], after[run])
    assert np.array_equal(ours.velocity.numpy()[300:320], velocity[300:320])


def test_a_step_that_is_not_finite_is_taken_back_as_a_whole() -> None:
    with cohort_of(2, SlowMomentum(lr=9.0, momentum=0.9)) as cohort:
        cohort.together(lambda one: one.average(1))
        for one in cohort.members:
            memory_of(one).velocity[3] = 3e38
        values = drift(cohort, 1)
        results = cohort.together(lambda one: one.average(1, cycle=2))
        assert [ended(one).is_unstepped for one in results] == [True, True]
        check_same_bits(cohort.members)
        found = cohort.members[0].regions.params.double().numpy()
        assert np.abs(found - (values[0] + values[1]) / 2).max() < 1e-6
        assert not memory_of(cohort.members[0]).velocity.any()
        results = cohort.together(lambda one: one.average(1, cycle=3))
        assert [ended(one).is_unstepped for one in results] == [False, False]


def test_frozen_parameters_and_their_velocity_stay_bit_by_bit() -> None:
    geometry = geometry_of((40, 33, 17), frozen=(1,))
    frozen = slice(geometry.params[1].offset, geometry.params[1].offset + 33)
    with cohort_of(2, RULES[1], geometry=geometry) as cohort:
        before = [one.regions.params.clone() for one in cohort.members]
        for cycle in (1, 2, 3):
            drift(cohort, cycle)
            cohort.together(lambda one, cycle=cycle: one.average(1 + one.rank, cycle=cycle))
        for old, member in zip(before, cohort.members, strict=True):
            assert torch.equal(old[frozen], member.regions.params[frozen])
            assert not memory_of(member).velocity[frozen].any()
            assert memory_of(member).velocity[:40].any()


@pytest.mark.parametrize("in_place", [False, True])
def test_who_completed_a_stepped_cycle_gives_it_to_those_who_did_not(in_place: bool) -> None:
    """The one who was late steps by itself, to the bits of the other."""
    with cohort_of(3, RULES[1], in_place=in_place) as cohort:
        for cycle in (1, 2):
            drift(cohort, cycle)
            cohort.together(lambda one, cycle=cycle: one.average(1, cycle=cycle))
        drift(cohort, 3)
        late = cohort.members[1]
        with cohort.death_before(late, dead=2, cycle=3):
            cohort.together(lambda one: one.average(1, cycle=3))
        assert cohort.reform() == [3, 2]
        again = cohort.together(lambda one: one.recover(3 if one is late else None))
        assert ended(again[1]).outcome is SyncOutcome.COMMITTED
        check_same_bits(cohort.alive)
        drift(cohort, 4)
        cohort.together(lambda one: one.average(1, cycle=4))
        check_same_bits(cohort.alive)


@pytest.mark.parametrize("name", ["COUNT", "PARAM", "BUFFER"])
def test_a_death_inside_a_collective_leaves_the_velocity_as_it_was(name: str) -> None:
    with cohort_of(3, RULES[0]) as cohort:
        for cycle in (1, 2):
            drift(cohort, cycle)
            cohort.together(lambda one, cycle=cycle: one.average(1, cycle=cycle))
        values = drift(cohort, 3)
        velocity = memory_of(cohort.members[0]).velocity.clone()
        previous = memory_of(cohort.members[0]).previous.double().numpy().copy()
        cohort.members[2].halts_at = name

        def take_part(member: Member) -> CycleEnd:
            try:
                return member.average(1, cycle=3)
            except HaltError:
                cohort.bury(2)
                cohort.tell_of(2)
                raise

        assert isinstance(cohort.together(take_part)[0], SessionBrokenError)
        for one in cohort.alive:
            assert torch.equal(memory_of(one).velocity, velocity)
        cohort.reform()
        cohort.together(lambda one: one.average(1, cycle=3))
        check_same_bits(cohort.alive)
        moved = 0.6 * velocity.double().numpy() + previous - (values[0] + values[1]) / 2
        found = cohort.alive[0].regions.params.double().numpy()
        assert np.abs(found - (previous - 0.8 * moved)).max() < 1e-6
