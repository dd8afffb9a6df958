"""A cycle on NCCL as the coordinator sees it: what it tells of waits, and of steps taken back.

Whole runs are in `tests/simulation/test_simulation_nccl.py`.
"""

from collections.abc import Sequence

import pytest
from coordinator_script import EvictRank, Script, codes, control, ends, of, sent

from flodl_core.coordinator.effects import Announce, DismissHost, RaiseAlert
from flodl_core.coordinator.events import DrainRequested, EvictRequested
from flodl_core.ids import (
    Cycle,
    HostName,
    Mode,
    OuterKind,
    Rank,
    RankPhase,
    SaveReason,
    Session,
    SyncOutcome,
)
from flodl_core.messages import timing
from flodl_core.messages.job import OuterSpec


def test_a_stall_names_the_collective_that_each_rank_is_in() -> None:
    script = Script((("red", 2),), mode=Mode.NCCL_SYNC).start()
    script.form_session()
    for rank in range(2):
        script.batch(rank)
    script.heartbeat = lambda rank, _phase: timing.Heartbeat(
        rank=Rank(rank),
        step_count=1,
        phase=RankPhase.REDUCING,
        activity=f"PARAM #{rank + 1} of session 0",
    )
    script.wait(320, beating=(0, 1))
    finished = [one for one in script.said if isinstance(one, RaiseAlert)]
    assert any("rank 1 is in PARAM #2 of session 0" in one.detail for one in finished), finished


def test_a_wait_shows_the_session_and_the_collective_that_it_is_for() -> None:
    script = Script((("red", 2),), mode=Mode.NCCL_SYNC).start()
    script.form_session((0,))
    script.wait(10, beating=(0, 1))
    forming = [one for one in script.machine.view(script.now).waits if "session 0" in one.phase]
    assert [(one.rank, one.outcome) for one in forming] == [(1, "it is evicted")]
    nobody = Script((("red", 3),), mode=Mode.NCCL_SYNC).start()
    nobody.wait(10, beating=(0, 1, 2))
    forming = [one for one in nobody.machine.view(nobody.now).waits if "session 0" in one.phase]
    assert [one.outcome for one in forming] == ["rank 2 is evicted"] * 2 + ["it is evicted"]
    script.form_session((1,))
    for rank in range(2):
        script.batch(rank)
    script.heartbeat = lambda rank, _phase: timing.Heartbeat(
        rank=Rank(rank), step_count=1, phase=RankPhase.REDUCING, activity="COUNT #1"
    )
    script.wait(10, beating=(0, 1))
    phases = [one.phase for one in script.machine.view(script.now).waits]
    assert phases.count("reduce: waiting for the average, in COUNT #1") == 2


def test_an_outer_step_that_ranks_took_back_is_an_alert() -> None:
    outer = OuterSpec(kind=OuterKind.SLOWMO, lr=1.0, momentum=0.9)
    script = Script((("red", 2),), mode=Mode.NCCL_SYNC, outer=outer).start()
    script.form_session()
    for rank in range(2):
        script.batch(rank)
    for rank in range(2):
        script.ready(rank, 1)
        script.tell(
            rank,
            timing.SyncAck(
                rank=Rank(rank),
                cycle=Cycle(1),
                outcome=SyncOutcome.COMMITTED,
                step_count=1,
                divergence=0.1,
                samples=2,
                is_unstepped=True,
            ),
        )
    alerts = [one for one in script.said if isinstance(one, RaiseAlert)]
    assert [one.alert_class for one in alerts] == ["nonfinite"]
    assert "the outer step" in alerts[0].detail


# a session that does not form


def answered(script: Script, ranks: Sequence[int], session: int) -> None:
    """They say what they had completed, and each brings a uid."""
    for rank in ranks:
        script.tell(
            rank,
            timing.NewNcclIdGenerated(
                rank=Rank(rank),
                session=Session(session),
                uid=bytes(128),
                completed_cycle=Cycle(0),
                is_damaged=False,
            ),
        )


def evicted(effects: Sequence[object]) -> list[int]:
    return [effect.rank for effect in of(effects, EvictRank)]


def begun(**numbers: float) -> Script:
    return Script((("red", 4),), mode=Mode.NCCL_SYNC, **numbers).start()


ALL = (0, 1, 2, 3)


def test_who_does_not_answer_is_evicted_and_the_others_have_all_the_time_again() -> None:
    script = begun()
    script.form_session(ALL)
    script.lose(3)
    answered(script, (0, 1), 1)
    assert evicted(script.wait(59, beating=(0, 1, 2))) == []
    assert evicted(script.wait(2, beating=(0, 1, 2))) == [2]
    answered(script, (0, 1), 2)
    assert evicted(script.wait(50, beating=(0, 1))) == []
    script.form_session((0, 1), 2)
    said = script.wait(120, beating=(0, 1))
    assert (evicted(said), ends(script.said)) == ([], None)


def test_a_death_while_the_first_session_forms_leaves_the_survivors_their_time() -> None:
    script = begun()
    script.wait(70, beating=ALL)
    script.lose(3)
    assert evicted(script.wait(59, beating=(0, 1, 2))) == []
    answered(script, (0, 1, 2), 1)
    script.form_session((0, 1, 2), 1)
    assert evicted(script.wait(120, beating=(0, 1, 2))) == []


def test_all_who_owe_an_answer_are_evicted_at_once() -> None:
    script = begun()
    script.form_session(ALL)
    script.lose(3)
    answered(script, (1,), 1)
    assert evicted(script.wait(61, beating=(0, 1, 2))) == [0, 2]


def test_while_nobody_has_formed_a_session_one_rank_goes_at_a_time() -> None:
    """Whoever it is that does not come, the last one is saved and not lost."""
    script = begun()
    assert evicted(script.wait(121, beating=ALL)) == [3]
    answered(script, (0, 1, 2), 1)
    assert evicted(script.wait(58, beating=(0, 1, 2))) == []
    assert evicted(script.wait(3, beating=(0, 1, 2))) == [2]
    answered(script, (0, 1), 2)
    assert evicted(script.wait(61, beating=(0, 1))) == [1]
    asked = sent(script.said, control.RequestNewNcclId, 0)
    assert [one.session for one in asked] == [1, 2, 3]
    alerts = [one.alert_class for one in of(script.said, RaiseAlert)]
    assert alerts.count("rank_lost") == 3
    assert SaveReason.SINGLE_SURVIVOR.value in alerts
    assert ends(script.said) is None
    causes = [one.reason for one in of(script.said, EvictRank)]
    assert "not waited for: 0 of 4 ranks" in causes[0]


def test_where_some_have_formed_a_session_the_lowest_that_has_not_goes_first() -> None:
    script = begun()
    script.form_session(ALL)
    script.lose(3)
    answered(script, (0, 1, 2), 1)
    script.form_session((2,), 1)
    assert evicted(script.wait(61, beating=(0, 1, 2))) == [0]
    answered(script, (1, 2), 2)
    script.form_session((1, 2), 2)
    assert evicted(script.wait(120, beating=(1, 2))) == []


def test_a_rank_that_says_it_cannot_join_is_the_only_one_that_is_lost() -> None:
    script = begun()
    script.form_session(ALL)
    script.lose(3)
    answered(script, (0, 1, 2), 1)
    script.wait(40, beating=(0, 1, 2))
    said = script.exiting(1, "it cannot join NCCL session 1: out of memory")
    asked = [rank for rank, one in sent(said, control.RequestNewNcclId) if one.session == 2]
    assert asked == [0, 2]
    answered(script, (0, 2), 2)
    assert evicted(script.wait(40, beating=(0, 2))) == []
    script.form_session((0, 2), 2)
    assert evicted(script.wait(120, beating=(0, 2))) == []
    assert ends(script.said) is None


# down to one rank


def drain(host: str) -> DrainRequested:
    return DrainRequested(HostName(host), "operator")


def with_session(hosts: tuple[tuple[str, int], ...], mode: Mode = Mode.NCCL_SYNC) -> Script:
    script = Script(hosts, mode=mode, n_samples=24).start()
    script.form_session()
    return script


def test_a_drain_that_would_leave_one_rank_is_refused() -> None:
    script = with_session((("red", 1), ("blue", 1)))
    why = script.machine.refuse_drain(HostName("blue"))
    assert why == (
        "host blue would leave only rank 0 (cpu:0 on red), and NCCL needs two; "
        "use flodl stop to end the run"
    )
    assert codes(script.handle(drain("blue"))) == ["drain_refused"]
    on_cpus = Script((("red", 1), ("blue", 1)), n_samples=24).start()
    assert on_cpus.machine.refuse_drain(HostName("blue")) == ""


def test_drains_that_would_leave_one_rank_together_are_refused() -> None:
    script = with_session((("red", 1), ("blue", 1), ("green", 1)))
    assert script.machine.refuse_drain(HostName("blue")) == ""
    script.handle(drain("blue"))
    assert "NCCL needs two" in script.machine.refuse_drain(HostName("green"))


def test_a_drain_is_off_if_a_death_before_it_would_make_it_leave_one_rank() -> None:
    script = with_session((("red", 2), ("blue", 1)))
    for rank in range(3):
        script.batch(rank)
    script.handle(drain("blue"))
    script.lose(1)
    answered(script, (0, 2), 1)
    script.form_session((0, 2), 1)
    for rank in (0, 2):
        script.ready(rank, 1)
    for rank in (0, 2):
        script.ack(rank, 1)
    texts = [one.text for one in of(script.said, Announce)]
    off = "the drain of blue is off: only rank 0 (cpu:0 on red) would be left, and NCCL needs two"
    assert off in texts
    assert not of(script.said, DismissHost)
    assert not sent(script.said, control.Shutdown)
    alerts = [one.alert_class for one in of(script.said, RaiseAlert)]
    assert SaveReason.SINGLE_SURVIVOR.value not in alerts


@pytest.mark.parametrize("ranks", [2, 3])
def test_an_eviction_that_would_leave_one_rank_is_refused(ranks: int) -> None:
    script = with_session((("red", ranks),))
    why = script.machine.refuse_evict(Rank(1))
    said = script.handle(EvictRequested(Rank(1), "operator"))
    if ranks > 2:
        assert why == ""
        assert evicted(said) == [1]
        return
    assert why == (
        "rank 1 would leave only rank 0 (cpu:0 on red), and NCCL needs two; "
        "use flodl stop to end the run"
    )
    assert codes(said) == ["evict_refused"]
