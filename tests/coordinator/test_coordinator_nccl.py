"""A cycle on NCCL as the coordinator sees it: what it tells of waits, and of steps taken back.

Whole runs are in `tests/simulation/test_simulation_nccl.py`.
"""

from coordinator_script import Script

from flodl_core.coordinator.effects import RaiseAlert
from flodl_core.ids import Cycle, Mode, OuterKind, Rank, RankPhase, Session, SyncOutcome
from flodl_core.messages import timing
from flodl_core.messages.job import OuterSpec


def test_a_stall_names_the_collective_that_each_rank_is_in() -> None:
    script = Script((("red", 2),), mode=Mode.NCCL_SYNC).start()
    for rank in range(2):
        script.tell(rank, timing.NcclSessionFormed(rank=Rank(rank), session=Session(0)))
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
    script.tell(0, timing.NcclSessionFormed(rank=Rank(0), session=Session(0)))
    script.wait(10, beating=(0, 1))
    forming = [one for one in script.machine.view(script.now).waits if "session 0" in one.phase]
    assert [(one.rank, one.outcome) for one in forming] == [(1, "it is evicted")]
    script.tell(1, timing.NcclSessionFormed(rank=Rank(1), session=Session(0)))
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
    for rank in range(2):
        script.tell(rank, timing.NcclSessionFormed(rank=Rank(rank), session=Session(0)))
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
