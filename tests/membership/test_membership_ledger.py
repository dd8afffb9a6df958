"""The ledger: how a world forms, fails, and goes on, one behaviour a test."""

import pytest
from membership_script import EXPECTED, World, hello, window

from flodl_core.errors import ConfigError, LocalProtocolError, WindowFailedError
from flodl_core.ids import ClusterPhase, ExitCode, StartMode
from flodl_core.machines import Note, Tick
from flodl_core.membership.events import (
    Aborted,
    AbortMember,
    AdmitMember,
    AnnouncePhase,
    DeclareHostLost,
    FailWindow,
    FormationFinished,
    FormWorld,
    HelloReceived,
    MemberLeft,
    RefuseMember,
    StartRequested,
    TrainingEnded,
    WindowOpened,
)
from flodl_core.membership.failure import (
    JoinAbortedError,
    QuorumNotMetError,
    StartNotReceivedError,
    window_error,
)
from flodl_core.membership.ledger import STORY_LINES, TRANSITIONS, MembershipLedger
from flodl_core.membership.roster import ConnectionId
from flodl_core.membership.snapshot import review_start


def test_the_first_thing_announced_is_waiting():
    world = World()
    assert world.effects == [AnnouncePhase(phase=ClusterPhase.WAITING, reason="join window open")]


def test_a_target_forms_the_world_with_the_last_admission():
    world = World(window(quorum=3, target=3)).at(1).joins("red").at(2).joins("blue", 2)
    assert world.kinds() == ["AdmitMember", "AnnouncePhase", "FormWorld"]
    formed = world.one(FormWorld)
    assert formed.reason == "target ranks reached"
    assert [(s.member.host, s.ranks) for s in formed.roster] == [("red", (0,)), ("blue", (1, 2))]
    assert world.phase == "forming"


def test_an_early_quorum_does_not_close_the_window():
    world = World(window(quorum=2)).joins("red", 2).at(299.9).tick()
    assert world.last == []
    assert world.phase == "waiting"
    assert world.at(300).tick().one(FormWorld).reason == "join window closed with quorum"


def test_in_grace_the_first_moment_of_quorum_forms():
    world = World(window(quorum=2)).joins("red").at(300).tick()
    assert world.last == []
    world.at(450).joins("blue")
    assert world.one(FormWorld).reason == "join window closed with quorum"


def test_ranks_in_accept_follow_each_other_and_say_how_long_forming_may_take():
    world = World(window(quorum=9)).at(100).joins("red", 2).at(150).joins("blue", 3)
    assert [(a.connection, a.ranks, a.formation_wait_s) for a in world.admitted()] == [
        (0, (0, 1), 500.0),
        (1, (2, 3, 4), 450.0),
    ]


def test_a_refusal_uses_no_ranks_and_leaves_the_window_open():
    world = World(window(quorum=9)).joins("red").joins("blue", dataset_sig="ee")
    assert world.kinds() == ["RefuseMember"]
    assert "dataset signature mismatch" in world.one(RefuseMember).refusal.reason
    world.joins("green")
    assert world.one(AdmitMember).ranks == (1,)


def test_a_member_that_vanishes_before_forming_is_taken_out_and_the_rest_renumbers():
    world = World(window(quorum=4)).joins("red").joins("blue", 2).joins("green")
    world.leaves(0)
    rows = [(row.host, row.ranks) for row in world.snapshot().members]
    assert rows == [("blue", (0, 1)), ("green", (2,))]
    world.joins("red", 1)
    assert world.one(AdmitMember).ranks == (3,)


def test_a_host_that_left_may_join_again_under_its_name():
    world = World(window(quorum=9)).joins("red").joins("red")
    assert "already joined" in world.one(RefuseMember).refusal.reason
    world.leaves(0).joins("red")
    assert world.kinds() == ["AdmitMember"]


def test_leaving_gives_quorum_back_and_the_window_no_longer_forms():
    world = World(window(quorum=2)).joins("red").joins("blue").at(10).leaves(1).at(300).tick()
    assert world.last == []
    assert world.phase == "waiting"


def test_manual_holds_in_staging_past_the_window_until_the_operator_starts():
    world = World(window("manual", quorum=2, cap_s=86_400)).joins("red").joins("blue")
    assert world.kinds() == ["AdmitMember", "AnnouncePhase"]
    assert world.phase == "staging"
    world.at(300).tick()
    assert world.last == []
    assert world.phase == "staging"
    assert world.snapshot().window_remaining_s is None
    world.at(5000).starts()
    assert world.one(FormWorld).reason == "operator start"
    assert world.snapshot().start_armed


def test_staging_falls_back_to_waiting_when_quorum_is_lost():
    world = World(window("hybrid", quorum=2)).joins("red").joins("blue").leaves(0)
    assert [e.phase for e in world.effects if isinstance(e, AnnouncePhase)] == [
        "waiting",
        "staging",
        "waiting",
    ]


def test_hybrid_forms_by_the_clock_and_by_the_operator():
    by_clock = World(window("hybrid", quorum=2)).joins("red", 2).at(300).tick()
    assert by_clock.one(FormWorld).reason == "join window closed with quorum"
    by_operator = World(window("hybrid", quorum=2)).joins("red", 2).at(5).starts()
    assert by_operator.one(FormWorld).reason == "operator start"


def test_a_start_below_quorum_is_refused_with_the_numbers_and_arms_nothing():
    world = World(window("manual", quorum=2)).joins("red").starts()
    (note,) = world.last
    assert note == Note(
        code="membership_start_refused",
        fields={"who": "operator", "reason": "quorum not met: 1/2"},
    )
    world.joins("blue")
    assert world.phase == "staging"
    assert not world.snapshot().start_armed


def test_a_start_counts_live_members_only():
    world = World(window("manual", quorum=2)).joins("red").joins("blue").leaves(0).starts()
    assert world.kinds() == ["Note"]
    assert world.phase == "waiting"


def test_a_start_in_auto_is_refused():
    world = World(window("auto", quorum=2)).joins("red", 2).starts()
    assert "start mode is auto" in world.one(Note).fields["reason"]
    assert world.phase == "waiting"


def test_a_repeated_start_is_harmless():
    world = World(window("manual", quorum=2)).joins("red", 2).starts().starts()
    assert world.kinds() == ["Note"]
    assert world.phase == "forming"


def test_a_missing_quorum_names_who_waits_who_never_came_and_the_fix():
    world = World(window(quorum=4), hosts=("red", "blue", "green", "grey"))
    world.joins("red").joins("green", dataset_sig="ee").joins("grey", 2).leaves(2)
    failed = world.at(600).tick().one(FailWindow)
    assert failed.reason == "quorum not met: 1/4"
    assert failed.detail == (
        "1 of 4 ranks joined in 600 s, so the run did not start.\n"
        "  Waiting hosts: red (1 device). Never heard from: blue. Not in: green (refused: dataset "
        "signature mismatch: the run has 'dadadada', this host 'ee'), grey (left again)."
    )
    assert failed.fix == "start the agent on blue, or lower join.min_rank_start"
    assert world.last[-1] == AbortMember(connection=ConnectionId(0), reason=failed.reason)
    error = window_error(failed)
    assert isinstance(error, QuorumNotMetError)
    assert error.exit_code == ExitCode.WINDOW_FAILED
    assert "Fix: start the agent on blue" in str(error)


def test_the_fix_fits_where_the_quorum_cannot_be_lowered():
    failed = World(window(quorum=2)).at(600).tick().one(FailWindow)
    assert failed.detail == "0 of 2 ranks joined in 600 s, so the run did not start."
    assert (
        failed.fix == "start the agent on another host, or give join.max_join_timeout_s more time"
    )


def test_a_start_that_never_came_fails_at_the_cap():
    world = World(window("manual", quorum=2)).joins("red", 2).at(600).tick()
    failed = world.one(FailWindow)
    assert failed.reason == "operator start not received"
    assert "2 ranks waited 600 s" in failed.detail
    assert "flodl start" in failed.fix
    assert isinstance(window_error(failed), StartNotReceivedError)


def test_an_abort_reaches_every_member_that_is_in():
    world = World(window(quorum=4)).joins("red").joins("blue").leaves(0)
    world.at(7).does(Aborted(reason="Ctrl-C"))
    assert world.kinds() == ["AnnouncePhase", "FailWindow", "AbortMember"]
    failed = world.one(FailWindow)
    assert failed.reason == "aborted"
    assert "after 7 s with 1 rank in: Ctrl-C" in failed.detail
    error = window_error(failed)
    assert isinstance(error, JoinAbortedError)
    assert isinstance(error, WindowFailedError)
    assert not isinstance(error, ConfigError)


def test_the_world_is_final_from_forming_on():
    world = World(window(quorum=3, target=3)).joins("red").joins("blue", 2)
    world.at(5).leaves(0)
    assert world.last == [DeclareHostLost(host="red", ranks=(0,))]
    world.does(FormationFinished())
    assert world.phase == "training"
    world.leaves(1)
    assert world.last == [DeclareHostLost(host="blue", ranks=(1, 2))]
    world.leaves(1)
    assert world.one(Note).code == "membership_unknown_connection"
    snapshot = world.snapshot()
    assert [(r.host, r.ranks, r.connected) for r in snapshot.members] == [
        ("red", (0,), False),
        ("blue", (1, 2), False),
    ]
    assert (snapshot.joined_ranks, snapshot.joined_hosts) == (0, 0)


def test_a_hello_after_the_window_is_refused_and_may_try_again():
    world = World(window(target=2)).joins("red", 2).joins("blue")
    refused = world.one(RefuseMember).refusal
    assert refused.reason == "the join window is closed: forming"
    assert refused.transient


def test_a_hello_before_the_window_is_refused_and_may_try_again():
    world = World(opened=False).joins("red")
    refused = world.one(RefuseMember).refusal
    assert refused.reason == "the join window is not open yet"
    assert refused.transient


def test_before_the_window_opens_nothing_is_decided():
    world = World(window("manual", quorum=2), opened=False)
    assert world.at(10_000).tick().last == []
    assert world.starts().kinds() == ["Note"]
    assert world.phase == "waiting"
    assert world.snapshot().window_remaining_s == 300.0
    assert world.does(Aborted(reason="x")).phase == "failed"


def test_a_second_hello_on_one_connection_changes_nothing():
    world = World(window(quorum=9)).joins("red")
    second = HelloReceived(connection=ConnectionId(0), hello=hello("blue"), address="x")
    world.does(second)
    assert world.one(Note).code == "membership_second_hello"
    assert len(world.snapshot().members) == 1


def test_training_that_ends_is_done_and_an_aborted_one_failed():
    def trained():
        return World(window(target=2)).joins("red", 2).does(FormationFinished())

    assert trained().does(TrainingEnded()).phase == "done"
    aborted = trained().does(Aborted(reason="stall"))
    assert aborted.kinds() == ["AnnouncePhase", "AbortMember"]
    assert aborted.phase == "failed"
    assert aborted.snapshot().reason == "stall"


def test_the_deadline_is_the_window_then_the_cap_then_nothing():
    world = World(window("manual", quorum=2))
    assert world.ledger.deadline() == 1300.0
    world.joins("red", 2).at(300).tick()
    assert world.ledger.deadline() == 1600.0
    world.at(600).tick()
    assert world.phase == "failed"
    assert world.ledger.deadline() is None
    assert World(opened=False).ledger.deadline() is None


def test_the_snapshot_has_what_the_status_document_needs():
    world = World(window("hybrid", quorum=2, target=4)).at(12).joins("red", 2, gpus=("H200",))
    snapshot = world.at(100).snapshot()
    assert (snapshot.phase, snapshot.start_mode) == ("staging", StartMode.HYBRID)
    assert (snapshot.joined_ranks, snapshot.joined_hosts) == (2, 1)
    assert (snapshot.min_rank_start, snapshot.target_ranks) == (2, 4)
    assert (snapshot.window_remaining_s, snapshot.cap_remaining_s) == (200.0, 500.0)
    (row,) = snapshot.members
    assert (row.host, row.address, row.joined_at_s) == ("red", "10.0.0.5:9", 12.0)
    assert (row.local_devices, row.gpus) == (("cpu:0", "cpu:1"), ("H200",))
    assert row.torch_variant == "2.6.0+cpu"


def test_a_waiting_window_says_how_many_are_in():
    assert World(window(quorum=3)).joins("red").snapshot().reason == "join window open, 1/3 ranks"


def test_the_list_of_tensors_is_not_kept_where_the_run_has_its_own():
    world = World(window(quorum=9)).joins("red")
    assert world.ledger.members[0].hello.model_entries == ()
    without = World(window(quorum=9), expected=type(EXPECTED)()).joins("red")
    assert without.ledger.members[0].hello.model_entries == EXPECTED.model_entries
    without.joins("blue", model_sig="cd" * 32, model_entries=("param|x|float32|(1,)",))
    assert "first difference" in without.one(RefuseMember).refusal.reason


def test_hosts_that_are_not_in_are_remembered_within_a_bound():
    world = World(window(quorum=2))
    for i in range(200):
        world.joins(f"host-{i}", dataset_sig="ee")
    failed = world.at(600).tick().one(FailWindow)
    assert failed.detail.count("refused") == 64


def test_the_story_keeps_the_last_events_and_no_idle_tick():
    world = World(window(quorum=2))
    for _ in range(100):
        world.tick()
    assert [line.event for line in world.ledger.story] == ["WindowOpened"]
    for i in range(STORY_LINES):
        world.at(i).joins("red").leaves(i)
    assert len(world.ledger.story) == STORY_LINES
    assert world.ledger.story[-1].event == "MemberLeft"
    assert world.ledger.story[-2].effects == ("AdmitMember",)


def test_a_broken_invariant_is_our_own_error_and_tells_the_story():
    world = World(window(quorum=2)).joins("red")
    world.ledger._start_armed = True
    with pytest.raises(LocalProtocolError, match="a start closes the window") as caught:
        world.ledger.check()
    assert "HelloReceived" in str(caught.value)
    world.ledger._start_armed = False


STARTS = [
    ("auto", "staging", 2, True, 409, "auto"),
    ("manual", "staging", 2, False, 403, "Bearer"),
    ("manual", None, 2, True, 503, "published"),
    ("manual", "forming", 2, True, 409, "not open: forming"),
    ("manual", "waiting", 1, True, 409, "quorum not met: 1/2"),
    ("manual", "staging", 2, True, 200, "armed"),
    ("auto", None, 0, False, 409, "auto"),
    ("manual", None, 0, False, 403, "Bearer"),
]


@pytest.mark.parametrize(("mode", "phase", "ranks", "trusted", "status", "words"), STARTS)
def test_the_answer_to_a_start_follows_the_order_of_its_tests(
    mode, phase, ranks, trusted, status, words
):
    snapshot = None
    if phase is not None:
        world = World(window("manual", quorum=2)).joins("red", max(ranks, 1))
        if phase == "forming":
            world.starts()
        snapshot = world.snapshot()
    answer = review_start(StartMode(mode), snapshot, trusted=trusted)
    assert answer.status == status
    assert words in answer.reason
    if status == 200:
        assert answer.body() == {"armed": True, "joined_ranks": 2, "min_rank_start": 2}
    else:
        assert answer.body() == {"error": answer.reason}


REACHED = {
    "waiting": lambda: World(window("manual", quorum=3, target=None)).joins("red", 2),
    "staging": lambda: World(window("manual", quorum=2)).joins("red", 2),
    "forming": lambda: World(window("manual", quorum=2)).joins("red", 2).starts(),
    "training": lambda: (
        World(window("manual", quorum=2)).joins("red", 2).starts().does(FormationFinished())
    ),
    "done": lambda: (
        World(window("manual", quorum=2))
        .joins("red", 2)
        .starts()
        .does(FormationFinished())
        .does(TrainingEnded())
    ),
    "failed": lambda: World(window("manual", quorum=2)).joins("red", 2).does(Aborted(reason="x")),
}

EVENTS = {
    "opened": WindowOpened(),
    "hello": HelloReceived(connection=ConnectionId(77), hello=hello("new"), address="x"),
    "left": MemberLeft(connection=ConnectionId(0)),
    "stranger left": MemberLeft(connection=ConnectionId(55)),
    "start": StartRequested(),
    "formation": FormationFinished(),
    "ended": TrainingEnded(),
    "aborted": Aborted(reason="x"),
    "tick": Tick(),
}

TABLE = """
            | waiting  | staging  | forming  | training | done     | failed
opened      | waiting  | staging  | forming  | training | done     | failed
hello       | staging  | staging  | forming  | training | done     | failed
left        | waiting  | waiting  | forming  | training | done     | failed
stranger left | waiting | staging | forming  | training | done     | failed
start       | waiting  | forming  | forming  | training | done     | failed
formation   | waiting  | staging  | training | training | done     | failed
ended       | waiting  | staging  | done     | done     | done     | failed
aborted     | failed   | failed   | failed   | failed   | done     | failed
tick        | waiting  | staging  | forming  | training | done     | failed
"""
ANSWERS = """
            | waiting  | staging  | forming  | training | done     | failed
opened      | Note     | Note     | Note     | Note     | Note     | Note
hello       | Admit    | Admit    | Refuse   | Refuse   | Refuse   | Refuse
left        | -        | Announce | Declare  | Declare  | -        | -
stranger left | Note   | Note     | Note     | Note     | Note     | Note
start       | Note     | Announce | Note     | Note     | Note     | Note
formation   | Note     | Note     | Announce | Note     | Note     | Note
ended       | Note     | Note     | Announce | Announce | Note     | Note
aborted     | Announce | Announce | Announce | Announce | Note     | Note
tick        | -        | -        | -        | -        | -        | -
"""


def cells(table):
    head, *rows = [
        [word.strip() for word in line.split("|")] for line in table.strip("\n").splitlines()
    ]
    return {
        (row[0], phase): word for row in rows for phase, word in zip(head[1:], row[1:], strict=True)
    }


@pytest.mark.parametrize(("event", "phase"), sorted(cells(TABLE)))
def test_every_event_in_every_phase_does_what_the_table_says(event, phase):
    world = REACHED[phase]()
    assert world.phase == phase
    world.does(EVENTS[event])
    assert world.phase == cells(TABLE)[event, phase]
    first = cells(ANSWERS)[event, phase]
    assert (world.kinds() or ["-"])[0].startswith(first)


def test_the_table_of_transitions_covers_every_phase_and_event():
    assert set(TRANSITIONS) == set(ClusterPhase)
    kinds = {type(event) for event in EVENTS.values()}
    for row in TRANSITIONS.values():
        assert set(row) == kinds
        assert all(callable(getattr(MembershipLedger, action)) for action in row.values())
