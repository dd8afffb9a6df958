"""The NCCL plane's cycles, on the stand-in: what is averaged, and what a death leaves.

Right values are worked out in f64 apart from the plane. The same promises hold on GPUs,
where `tests/bench/gpu` runs this very module.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nccl_rig import Cohort, FabricOf, HaltError, Member, loopback
from planes_world import geometry_of

from flodl_core.ids import Cycle, Rank, SyncOutcome
from flodl_core.messages.control import DeclareDead
from flodl_core.messages.job import Geometry
from flodl_core.planes.nccl.collective import Collective, CollectiveError, CommState, Pair
from flodl_core.planes.nccl.keeper import FormedSession, SessionBrokenError
from flodl_core.planes.nccl.loopback import LoopbackCollective, LoopbackFabric
from flodl_core.planes.nccl.parts import CycleEnd


@pytest.fixture(name="fabric")
def _fabric() -> FabricOf:
    return loopback


looking = pytest.mark.parametrize("prepares", [False, True], ids=["at-once", "looked"])
"""Whether ranks have looked at their values before the cycle, as those do that are held."""


@contextmanager
def cohort_of(
    size: int,
    fabric: FabricOf,
    *,
    geometry: Geometry | None = None,
    in_place: bool = False,
    prepares: bool = False,
) -> Iterator[Cohort]:
    made = Cohort(size, fabric=fabric, geometry=geometry, in_place=in_place, prepares=prepares)
    made.fill(seed=size)
    try:
        yield made
    finally:
        made.close()


def ended(result: object) -> CycleEnd:
    assert isinstance(result, CycleEnd), result
    return result


def expect_mean(
    cohort: Cohort, before: list[np.ndarray], masses: list[float], *, members: list[Member]
) -> None:
    """All members hold the same bits, inside the bound of a sum of so many contributions."""
    total = sum(masses)
    exact = sum(m * x for m, x in zip(masses, before, strict=True)) / total
    spread = sum(m * abs(x) for m, x in zip(masses, before, strict=True)) / total
    bound = (len(masses) + 4) * 2.0**-24 * spread + 2.0**-149 * (1 + len(masses) / total)
    found = [one.regions.params.cpu() for one in members]
    assert all(torch.equal(found[0], other) for other in found)
    assert (np.abs(found[0].double().numpy() - exact) <= bound).all()


@looking
def test_everybody_adopts_the_mean_weighted_by_work(fabric: FabricOf, prepares: bool) -> None:
    with cohort_of(3, fabric, prepares=prepares) as cohort:
        before = cohort.values()
        counts = [1, 4, 2]
        results = cohort.together(lambda one: one.average(counts[one.rank]))
        expect_mean(cohort, before, [1.0, 4.0, 2.0], members=cohort.members)
        for member, result in zip(cohort.members, results, strict=True):
            end = ended(result)
            after = member.regions.params.cpu().double().numpy()
            apart = np.linalg.norm(before[member.rank] - after) / np.linalg.norm(after)
            assert end.outcome is SyncOutcome.COMMITTED
            assert end.divergence is not None
            assert end.divergence.divergence == pytest.approx(apart, rel=1e-6)
            assert end.divergence.pre_norm == pytest.approx(np.linalg.norm(before[member.rank]))
            assert end.divergence.post_norm == pytest.approx(np.linalg.norm(after))
            assert member.entered == ["COUNT", "PARAM", "BUFFER"]


@settings(max_examples=15, deadline=None)
@given(
    counts=st.lists(st.integers(0, 50), min_size=2, max_size=4).filter(any),
    gamma=st.sampled_from([1.0, 0.0, 0.5, -1.0, 2.0]),
    looked=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_any_counts_and_any_gamma_give_the_weighted_mean(
    counts: list[int], gamma: float, looked: list[bool]
) -> None:
    """Whoever has looked ahead, and whoever has not."""
    with cohort_of(len(counts), loopback) as cohort:
        for member, prepares in zip(cohort.members, looked, strict=False):
            member.prepares = prepares
        before = cohort.values()
        cohort.together(lambda one: one.average(counts[one.rank], gamma=gamma))
        masses = [0.0 if n == 0 else float(n) ** gamma for n in counts]
        expect_mean(cohort, before, masses, members=cohort.members)


@looking
def test_an_idle_cycle_is_one_collective_and_changes_nothing(
    fabric: FabricOf, prepares: bool
) -> None:
    with cohort_of(2, fabric, prepares=prepares) as cohort:
        before = cohort.values()
        results = cohort.together(lambda one: one.average(0))
        assert [ended(one).outcome for one in results] == [SyncOutcome.UNREALIZED] * 2
        assert all(one.entered == ["COUNT"] for one in cohort.members)
        for values, member in zip(before, cohort.members, strict=True):
            assert (member.regions.params.cpu().double().numpy() == values).all()
        cohort.together(lambda one: one.average(1, cycle=2))
        expect_mean(cohort, before, [1.0, 1.0], members=cohort.members)


@looking
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_values_that_are_not_finite_reach_nobody(
    fabric: FabricOf, prepares: bool, poison: float
) -> None:
    with cohort_of(3, fabric, prepares=prepares) as cohort:
        cohort.members[1].regions.params[7] = poison
        before = cohort.values()
        results = cohort.together(lambda one: one.average(2))
        outcomes = [ended(one).outcome for one in results]
        assert outcomes == [SyncOutcome.COMMITTED, SyncOutcome.DECLINED, SyncOutcome.COMMITTED]
        expect_mean(cohort, [before[0], before[2]], [2.0, 2.0], members=cohort.members)
        tally = cohort.members[1].counted[0]
        assert (tally.n, tally.samples, tally.declared) == (0, 8, True)


@looking
def test_buffers_are_the_plain_mean_of_those_who_moved(fabric: FabricOf, prepares: bool) -> None:
    with cohort_of(3, fabric, prepares=prepares) as cohort:
        before = [one.regions.buffers.cpu().double().numpy().copy() for one in cohort.members]
        cohort.together(lambda one: one.average([9, 0, 1][one.rank]))
        expected = (before[0] + before[2]) / 2
        for member in cohort.members:
            found = member.regions.buffers.cpu().double().numpy()
            assert np.allclose(found, expected, rtol=0, atol=1e-6)


@looking
def test_frozen_parameters_stay_bit_by_bit(fabric: FabricOf, prepares: bool) -> None:
    geometry = geometry_of((40, 33, 17), frozen=(1,))
    frozen = slice(geometry.params[1].offset, geometry.params[1].offset + 33)
    with cohort_of(2, fabric, geometry=geometry, prepares=prepares) as cohort:
        before = [one.regions.params.clone() for one in cohort.members]
        cohort.together(lambda one: one.average(1 + one.rank))
        for old, member in zip(before, cohort.members, strict=True):
            assert torch.equal(old[frozen], member.regions.params[frozen])
            assert not torch.equal(old[:40], member.regions.params[:40])


@looking
@pytest.mark.parametrize("name", ["COUNT", "PARAM", "BUFFER"])
def test_a_death_inside_a_collective_costs_the_survivors_nothing(
    fabric: FabricOf, prepares: bool, name: str
) -> None:
    """The survivors keep their own values and repeat the cycle with what they are."""
    with cohort_of(3, fabric, prepares=prepares) as cohort:
        before = cohort.values()
        cohort.members[2].halts_at = name

        def take_part(member: Member) -> CycleEnd:
            try:
                return member.average(1 + member.rank)
            except HaltError:
                for one in cohort.alive:
                    one.wait_for_entry("COUNT", times=1)
                cohort.bury(2)
                cohort.tell_of(2)
                raise

        results = cohort.together(take_part)
        assert isinstance(results[0], SessionBrokenError)
        for values, member in zip(before[:2], cohort.alive, strict=True):
            assert (member.regions.params.cpu().double().numpy() == values).all()
        assert cohort.reform() == [-1, -1]
        cohort.together(lambda one: one.average(1 + one.rank))
        expect_mean(cohort, before[:2], [1.0, 2.0], members=cohort.alive)


@looking
def test_who_completed_a_cycle_gives_it_to_those_who_did_not(
    fabric: FabricOf, prepares: bool
) -> None:
    with cohort_of(3, fabric, prepares=prepares) as cohort:
        before = cohort.values()
        late = cohort.members[1]
        with cohort.death_before(late, dead=2, cycle=1):
            results = cohort.together(lambda one: one.average(1))
        assert isinstance(results[1], SessionBrokenError)
        assert (late.regions.params.cpu().double().numpy() == before[1]).all()
        assert cohort.reform() == [1, -1]
        again = cohort.together(lambda one: one.recover(1 if one is late else None))
        assert again[0] is None
        assert ended(again[1]).outcome is SyncOutcome.COMMITTED
        expect_mean(cohort, before, [1.0, 1.0, 1.0], members=cohort.alive)
        assert torch.equal(cohort.alive[0].regions.buffers, late.regions.buffers)


@looking
def test_one_who_is_left_alone_is_its_own_mean(fabric: FabricOf, prepares: bool) -> None:
    with cohort_of(2, fabric, prepares=prepares) as cohort:
        before = cohort.values()
        cohort.bury(1)
        cohort.tell_of(1)
        cohort.reform()
        end = ended(cohort.members[0].average(3))
        assert end.outcome is SyncOutcome.COMMITTED
        expect_mean(cohort, before[:1], [3.0], members=cohort.alive)


def test_in_place_it_keeps_nothing_and_says_when_a_break_has_spoilt_the_values(
    fabric: FabricOf,
) -> None:
    with cohort_of(3, fabric, in_place=True) as cohort:
        before = cohort.values()
        cohort.together(lambda one: one.average(1))
        expect_mean(cohort, before, [1.0] * 3, members=cohort.members)
        cohort.members[2].halts_at = "PARAM"

        def take_part(member: Member) -> CycleEnd:
            try:
                return member.average(1, cycle=2)
            except HaltError:
                cohort.bury(2)
                cohort.tell_of(2)
                raise

        cohort.together(take_part)
        cohort.reform()
        for one in cohort.alive:
            was_inside = one.entered[-1] != "COUNT"
            assert one.answer_of(1).is_damaged is was_inside


def test_a_session_whose_member_never_comes_is_given_up_for_the_next(fabric: FabricOf) -> None:
    with cohort_of(3, fabric) as cohort:
        cohort.together(lambda one: one.average(1))
        cohort.bury(2)
        cohort.tell_of(2)
        absent = cohort.alive.pop()
        uid = cohort.members[0].keeper.new_uid()
        from flodl_core.ids import Rank, Session
        from flodl_core.messages.control import NewNcclSession

        cohort.members[0].keeper.heed(
            NewNcclSession(session=Session(1), uid=uid, new_rank=Rank(0), new_world_size=2)
        )
        cohort.alive.append(absent)
        cohort.reform(session=2)
        before = cohort.values()
        cohort.together(lambda one: one.average(1, cycle=2))
        expect_mean(cohort, before[:2], [1.0, 1.0], members=cohort.alive)
        assert cohort.members[0].sessions == [0, 2]


def test_a_look_ahead_of_the_cycle_counts_until_it_is_forgotten(fabric: FabricOf) -> None:
    """A rank that waits for the call has looked already; one that went on looks again."""
    with cohort_of(2, fabric) as cohort:
        poisoned = cohort.members[1]
        poisoned.regions.params[0] = float("nan")
        for one in cohort.members:
            one.cycles.prepare()
        outcomes = [ended(one).outcome for one in cohort.together(lambda one: one.average(1))]
        assert outcomes == [SyncOutcome.COMMITTED, SyncOutcome.DECLINED]
        for one in cohort.members:
            one.cycles.prepare()
        poisoned.regions.params[0] = float("inf")
        poisoned.cycles.forget()
        results = cohort.together(lambda one: one.average(1, cycle=2))
        assert [ended(one).outcome for one in results] == outcomes


class Deserted(LoopbackCollective):
    """Its library notices, as PARAM is enqueued, that a peer is gone."""

    is_noticed = False

    def state(self) -> CommState:
        return CommState.FAILED if self.is_noticed else super().state()

    def sum_scaled(self, pairs: Sequence[Pair], factor: float) -> None:
        if pairs[0][0].dtype is torch.float64:
            super().sum_scaled(pairs, factor)
            return
        self.is_noticed = True
        raise CollectiveError("a peer closed its socket")


class DesertedFabric(LoopbackFabric):
    def join(self, uid: bytes, *, place: int, size: int) -> Collective:
        return Deserted(uid, place, size, self._pending)


def test_a_library_that_notices_a_death_first_breaks_the_session_and_not_the_rank() -> None:
    with cohort_of(2, lambda rank: LoopbackFabric() if rank else DesertedFabric()) as cohort:
        before = cohort.values()
        survivor, dead = cohort.members
        dead.halts_at = "PARAM"

        def take_part(member: Member) -> CycleEnd:
            try:
                return member.average(1)
            except HaltError:
                survivor.wait_for_entry("PARAM", times=1)
                cohort.bury(1)
                raise

        assert isinstance(cohort.together(take_part)[0], SessionBrokenError)
        assert survivor.keeper.usable is None
        assert (survivor.regions.params.double().numpy() == before[0]).all()
        cohort.tell_of(1)
        cohort.reform()
        assert ended(survivor.average(1)).outcome is SyncOutcome.COMMITTED
        expect_mean(cohort, before[:1], [1.0], members=[survivor])


@looking
@pytest.mark.parametrize("is_well", [True, False])
def test_a_break_that_spoils_what_was_kept_is_known_of(
    fabric: FabricOf, prepares: bool, is_well: bool
) -> None:
    """The one who brought everything dies; who brought nothing still has the last consensus."""
    with cohort_of(2, fabric, prepares=prepares) as cohort:
        cohort.together(lambda one: one.average(1))
        survivor, dead = cohort.members
        consensus = survivor.regions.params.clone()
        if not is_well:
            survivor.regions.params[3] = float("nan")
        dead.halts_at = "PARAM"

        def take_part(member: Member) -> CycleEnd:
            try:
                return member.average(member.rank, cycle=2)
            except HaltError:
                survivor.wait_for_entry("PARAM", times=2)
                cohort.bury(1)
                cohort.tell_of(1)
                raise

        assert isinstance(cohort.together(take_part)[0], SessionBrokenError)
        assert not survivor.cycles.holds_consensus
        cohort.reform()
        end = ended(survivor.average(0, cycle=2))
        assert end.outcome is SyncOutcome.UNREALIZED
        assert survivor.cycles.holds_consensus is is_well
        if is_well:
            assert torch.equal(survivor.regions.kept_params, consensus)
            assert torch.equal(survivor.regions.kept_buffers, survivor.regions.buffers)


def test_one_who_is_told_that_nobody_brought_anything_keeps_its_own_values(
    fabric: FabricOf,
) -> None:
    """Its kept buffer was spoilt by the first death, and the second one came before its count."""
    with cohort_of(3, fabric) as cohort:
        cohort.together(lambda one: one.average(1))
        first, late, dead = cohort.members
        consensus = late.regions.params.clone()
        dead.halts_at = "PARAM"

        def take_part(member: Member) -> CycleEnd:
            try:
                return member.average(int(member is dead), cycle=2)
            except HaltError:
                for one in cohort.alive[:2]:
                    one.wait_for_entry("PARAM", times=2)
                cohort.bury(2)
                cohort.tell_of(2)
                raise

        cohort.together(take_part)
        cohort.reform()
        complete = late.keeper.complete

        def too_late(formed: FormedSession, done: Cycle) -> None:
            first.wait_for_completed(2)
            late.keeper.heed(DeclareDead(rank=Rank(2)))
            complete(formed, done)

        late.keeper.complete = too_late  # type: ignore[method-assign]
        results = cohort.together(lambda one: one.average(0, cycle=2))
        late.keeper.complete = complete  # type: ignore[method-assign]
        assert ended(results[0]).outcome is SyncOutcome.UNREALIZED
        assert isinstance(results[1], SessionBrokenError)
        late.regions.kept_params.fill_(7.0)
        late.cycles.holds_consensus = False
        assert cohort.reform(session=2) == [2, 1]
        again = cohort.together(lambda one: one.recover(2 if one is late else None))
        assert ended(again[1]).outcome is SyncOutcome.UNREALIZED
        assert late.cycles.holds_consensus
        assert torch.equal(late.regions.kept_params, consensus)
