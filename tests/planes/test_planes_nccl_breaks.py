"""A session that breaks between two collectives, and who is told later how its cycle ended."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from nccl_rig import PATIENCE_S, Cohort, HaltError, Member

from flodl_core.ids import Rank, Session, SyncOutcome
from flodl_core.messages.control import DeclareDead, RequestNewNcclId
from flodl_core.messages.data import RankTally
from flodl_core.planes.nccl.keeper import SessionBrokenError
from flodl_core.planes.nccl.parts import CycleEnd
from flodl_core.reduce.outer import OuterRule, SlowMomentum

SLOWMO = SlowMomentum(lr=0.8, momentum=0.6)


@contextmanager
def cohort_of(size: int, *, in_place: bool, outer: OuterRule | None = None) -> Iterator[Cohort]:
    made = Cohort(size, in_place=in_place, outer=outer)
    made.fill(seed=size)
    for one in made.members:
        one.cycles.take_initial()
    try:
        yield made
    finally:
        made.close()


def ended(result: object) -> CycleEnd:
    assert isinstance(result, CycleEnd), result
    return result


def tell_anew(member: Member, session: int) -> None:
    """What a rank's bridge hears when rank 2 dies: at once, whatever its training is at."""
    member.keeper.heed(DeclareDead(rank=Rank(2)))
    member.keeper.heed(RequestNewNcclId(session=Session(session), makes_uid=member.rank == 0))


@contextmanager
def death_after_count(cohort: Cohort) -> Iterator[None]:
    """Rank 2 dies, and the others hear of it, when all have counted and nobody has gone on."""
    have_counted = threading.Barrier(3)

    def heard(member: Member) -> Callable[[RankTally], None]:
        def hear(tally: RankTally) -> None:
            member.counted.append(tally)
            have_counted.wait(PATIENCE_S)
            if member.rank == 2:
                raise HaltError
            tell_anew(member, 1)

        return hear

    for member in cohort.members:
        member.cycles.on_counted = heard(member)
    yield
    for member in cohort.members:
        member.cycles.on_counted = member.counted.append


@pytest.mark.parametrize("in_place", [False, True], ids=["kept", "in-place"])
@pytest.mark.parametrize("declares", [False, True], ids=["idle", "declared"])
def test_a_session_that_breaks_after_the_count_leaves_everything_as_it_was(
    in_place: bool, declares: bool
) -> None:
    """Rank 0 brings nothing, and would make room in what it has; the break came before that."""
    with cohort_of(3, in_place=in_place) as cohort:
        cohort.together(lambda one: one.average(1))
        idle, mover, _ = cohort.members
        idle.regions.params *= 2.0
        if declares:
            idle.regions.params[3] = float("nan")
        mover.regions.params *= 3.0
        before = [one.regions.params.clone() for one in (idle, mover)]
        kept = [one.regions.kept_params.clone() for one in (idle, mover)]
        counts = [int(declares), 5, 7]
        with death_after_count(cohort):
            results = cohort.together(lambda one: one.average(counts[one.rank], cycle=2))
        assert [type(one) for one in results[:2]] == [SessionBrokenError] * 2
        cohort.bury(2)
        for index, one in enumerate(cohort.alive):
            answer = one.answer_of(1)
            assert (answer.completed_cycle, answer.is_damaged) == (1, False)
            torch.testing.assert_close(
                one.regions.params, before[index], rtol=0, atol=0, equal_nan=True
            )
            torch.testing.assert_close(
                one.regions.kept_params, kept[index], rtol=0, atol=0, equal_nan=True
            )
            assert one.cycles.holds_consensus
        cohort.reform(session=2)
        results = cohort.together(lambda one: one.average(counts[one.rank], cycle=2))
        outcome = SyncOutcome.DECLINED if declares else SyncOutcome.COMMITTED
        assert [ended(one).outcome for one in results] == [outcome, SyncOutcome.COMMITTED]
        for one in cohort.alive:
            assert torch.equal(one.regions.params, before[1])


def test_in_place_a_break_after_the_count_is_no_damage_for_a_later_session_either() -> None:
    with cohort_of(3, in_place=True) as cohort:
        with death_after_count(cohort):
            cohort.together(lambda one: one.average(1))
        cohort.bury(2)
        for one in cohort.alive:
            tell_anew(one, 2)
        assert [one.answer_of(2).is_damaged for one in cohort.alive] == [False, False]


@pytest.mark.parametrize("in_place", [False, True], ids=["kept", "in-place"])
@pytest.mark.parametrize("outer", [None, SLOWMO], ids=["plain", "stepped"])
def test_who_declared_and_is_given_the_cycle_later_has_declined_it(
    in_place: bool, outer: OuterRule | None
) -> None:
    """Its values were not finite: it takes those of the others, and has nothing to go on from."""
    with cohort_of(3, in_place=in_place, outer=outer) as cohort:
        before = cohort.values()
        sick = cohort.members[1]
        sick.regions.params[3] = float("nan")
        with cohort.death_before(sick, dead=2, cycle=1):
            results = cohort.together(lambda one: one.average(1 + one.rank))
        assert isinstance(results[1], SessionBrokenError)
        assert cohort.reform() == [1, -1]
        again = cohort.together(lambda one: one.recover(1 if one is sick else None))
        end = ended(again[1])
        assert (end.outcome, end.divergence) == (SyncOutcome.DECLINED, None)
        exact = (before[0] + 3 * before[2]) / 4
        for one in cohort.alive:
            found = one.regions.params.double().numpy()
            assert np.allclose(found, exact, rtol=0, atol=1e-6)


@pytest.mark.parametrize("in_place", [False, True], ids=["kept", "in-place"])
@pytest.mark.parametrize("outer", [None, SLOWMO], ids=["plain", "stepped"])
def test_a_cycle_that_was_declared_in_says_nothing_of_the_next_one(
    in_place: bool, outer: OuterRule | None
) -> None:
    with cohort_of(3, in_place=in_place, outer=outer) as cohort:
        late = cohort.members[1]
        late.regions.params[3] = float("nan")
        first = cohort.together(lambda one: one.average(1))
        assert ended(first[1]).outcome is SyncOutcome.DECLINED
        with cohort.death_before(late, dead=2, cycle=2):
            cohort.together(lambda one: one.average(1, cycle=2))
        assert cohort.reform() == [2, 1]
        again = cohort.together(lambda one: one.recover(2 if one is late else None))
        assert ended(again[1]).outcome is SyncOutcome.COMMITTED
