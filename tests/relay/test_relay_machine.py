"""One host's barrier: sentences, the table of rounds, and random events."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Round, RoundOutcome
from flodl_core.machines import Note, Tick
from flodl_core.messages.data import RoundEnd
from flodl_core.relay.machine import (
    DropRank,
    EndRelay,
    FanOut,
    RankGone,
    RankReady,
    RelayMachine,
    RelayPhase,
    RoundEndReceived,
    ShipRound,
    UpstreamClosed,
    following_round,
)

CONTROL, PARAMS, BUFFERS = Round.CONTROL, Round.PARAMS, Round.BUFFERS
COMMITTED, UNREALIZED, FAILED = (
    RoundOutcome.COMMITTED,
    RoundOutcome.UNREALIZED,
    RoundOutcome.FAILED,
)


def end(cycle, kind, outcome=COMMITTED, ranks=()):
    return RoundEnd(cycle=cycle, round=kind, outcome=outcome, ranks_accepted=ranks, mass=1.0)


class Script:
    """A machine at one instant, checked after every event."""

    def __init__(self, *ranks, has_buffers=True):
        self.machine = RelayMachine(ranks, has_buffers=has_buffers)
        self.now = 100.0

    def __call__(self, event):
        effects = self.machine.handle(event, self.now)
        self.machine.check()
        return effects

    def ready(self, rank, cycle=1):
        return self(RankReady(rank, cycle))

    def gone(self, rank):
        return self(RankGone(rank))

    def ends(self, cycle, kind, outcome=COMMITTED):
        return self(RoundEndReceived(end(cycle, kind, outcome)))


def codes(effects):
    assert all(isinstance(effect, Note) for effect in effects)
    return [effect.code for effect in effects]


def test_the_round_is_shipped_when_the_last_alive_rank_is_ready():
    host = Script(4, 5, 6)
    assert host.ready(6) == []
    assert host.ready(4) == []
    assert host.machine.waiting_for == (5,)
    assert host.ready(5) == [ShipRound(1, CONTROL, (4, 5, 6))]
    assert host.machine.waiting_for == ()


def test_one_ready_mark_serves_every_round_of_the_cycle():
    host = Script(0, 1)
    host.ready(0)
    host.ready(1)
    assert host.ends(1, CONTROL) == [
        FanOut(end(1, CONTROL), (0, 1)),
        ShipRound(1, PARAMS, (0, 1)),
    ]
    assert host.ends(1, PARAMS) == [FanOut(end(1, PARAMS), (0, 1)), ShipRound(1, BUFFERS, (0, 1))]
    assert host.ends(1, BUFFERS) == [FanOut(end(1, BUFFERS), (0, 1))]
    assert host.machine.phase is RelayPhase.GATHERING
    host.ready(0, 2)
    assert host.ready(1, 2) == [ShipRound(2, CONTROL, (0, 1))]


def test_without_buffers_a_cycle_ends_with_its_parameters():
    host = Script(0, has_buffers=False)
    host.ready(0)
    host.ends(1, CONTROL)
    assert host.ends(1, PARAMS) == [FanOut(end(1, PARAMS), (0,))]
    assert host.machine.cycle is None


def test_an_unrealized_control_round_skips_both_others():
    host = Script(0)
    host.ready(0)
    assert host.ends(1, CONTROL, UNREALIZED) == [FanOut(end(1, CONTROL, UNREALIZED), (0,))]
    assert host.ready(0, 2) == [ShipRound(2, CONTROL, (0,))]


@pytest.mark.parametrize(
    ("ended", "outcome", "with_buffers", "without"),
    [
        (CONTROL, COMMITTED, PARAMS, PARAMS),
        (CONTROL, UNREALIZED, None, None),
        (CONTROL, FAILED, None, None),
        (PARAMS, COMMITTED, BUFFERS, None),
        (PARAMS, UNREALIZED, BUFFERS, None),
        (PARAMS, FAILED, None, None),
        (BUFFERS, COMMITTED, None, None),
        (BUFFERS, UNREALIZED, None, None),
        (BUFFERS, FAILED, None, None),
    ],
)
def test_the_round_that_follows_is_the_same_for_everybody(ended, outcome, with_buffers, without):
    assert following_round(ended, outcome, has_buffers=True) is with_buffers
    assert following_round(ended, outcome, has_buffers=False) is without


def test_a_rank_that_goes_before_its_mark_may_complete_the_barrier():
    host = Script(0, 1)
    host.ready(0)
    assert host.gone(1) == [ShipRound(1, CONTROL, (0,))]


def test_a_rank_that_goes_after_its_mark_stays_in_every_round_but_hears_of_none():
    host = Script(0, 1)
    host.ready(0)
    assert host.gone(0) == []
    assert host.ready(1) == [ShipRound(1, CONTROL, (0, 1))]
    assert host.ends(1, CONTROL) == [FanOut(end(1, CONTROL), (1,)), ShipRound(1, PARAMS, (0, 1))]
    host.ends(1, PARAMS)
    host.ends(1, BUFFERS)
    assert host.ready(1, 2) == [ShipRound(2, CONTROL, (1,))]


def test_a_second_deposit_drops_the_rank():
    host = Script(0, 1)
    host.ready(0)
    effects = host.ready(0)
    assert effects[0] == DropRank(0, "rank 0 deposited twice in cycle 1")
    assert host.machine.alive == (1,)


def test_a_second_deposit_in_a_round_drops_the_rank_too():
    host = Script(0, 1)
    host.ready(0)
    host.ready(1)
    assert host.ready(1) == [DropRank(1, "rank 1 deposited twice in cycle 1")]


def test_a_mark_of_another_cycle_drops_the_rank_and_may_complete_the_barrier():
    host = Script(0, 1)
    host.ready(0, 1)
    assert host.ready(1, 2) == [
        DropRank(1, "rank 1 deposited for cycle 2 in cycle 1"),
        ShipRound(1, CONTROL, (0,)),
    ]


def test_a_mark_of_a_cycle_that_is_over_drops_the_rank():
    host = Script(0, 1, has_buffers=False)
    for rank in (0, 1):
        host.ready(rank)
    host.ends(1, CONTROL)
    host.ends(1, PARAMS)
    assert host.ready(1, 1) == [DropRank(1, "rank 1 deposited for cycle 1, which is over")]


def test_the_relay_ends_with_its_last_rank():
    host = Script(0, 1)
    assert host.gone(0) == []
    assert host.gone(1) == [EndRelay("every local rank is gone")]
    assert host.machine.phase is RelayPhase.ENDED


def test_the_last_rank_going_after_its_mark_completes_the_cycle_first():
    host = Script(0)
    host.ready(0)
    assert host.gone(0) == []
    assert host.machine.deadline() == 110.0
    assert host.ends(1, CONTROL) == [FanOut(end(1, CONTROL), ()), ShipRound(1, PARAMS, (0,))]
    host.ends(1, PARAMS)
    assert host.ends(1, BUFFERS) == [
        FanOut(end(1, BUFFERS), ()),
        EndRelay("every local rank is gone and its last cycle is over"),
    ]
    assert host.machine.deadline() is None


def test_ranks_that_all_went_while_gathering_are_shipped_with_the_marks_there_are():
    host = Script(0, 1)
    host.ready(1)
    host.gone(1)
    assert host.gone(0) == [ShipRound(1, CONTROL, (1,))]
    assert host.machine.deadline() == 110.0


def test_rounds_without_any_rank_left_end_at_their_ceiling():
    host = Script(0)
    host.ready(0)
    host.gone(0)
    host.now = 109.9
    assert host(Tick()) == []
    host.now = 110.0
    assert host(Tick()) == [
        EndRelay("every local rank is gone and the rounds of cycle 1 did not end in 10 s")
    ]
    assert host.machine.deadline() is None


def test_a_tick_without_a_drain_does_nothing():
    host = Script(0)
    assert host.machine.deadline() is None
    assert host(Tick()) == []


def test_the_relay_ends_when_the_root_is_gone():
    host = Script(0, 1)
    host.ready(0)
    assert host(UpstreamClosed("connection reset")) == [EndRelay("connection reset")]


@pytest.mark.parametrize(
    "event",
    [
        RankReady(0, 1),
        RankGone(0),
        RoundEndReceived(end(1, CONTROL)),
        UpstreamClosed("again"),
        Tick(),
    ],
)
def test_after_the_end_every_event_is_a_note(event):
    host = Script(0)
    host.gone(0)
    assert codes(host(event)) == ["relay_has_ended"]


def test_input_about_unknown_or_gone_ranks_is_noted():
    host = Script(0, 1)
    assert codes(host.ready(7)) == ["ready_of_unknown_rank"]
    assert codes(host.gone(7)) == ["gone_of_unknown_rank"]
    host.gone(1)
    assert codes(host.gone(1)) == ["gone_twice"]
    assert codes(host.ready(1)) == ["ready_after_gone"]


@pytest.mark.parametrize(("cycle", "kind"), [(1, PARAMS), (2, CONTROL), (0, CONTROL), (1, BUFFERS)])
def test_the_end_of_another_round_changes_nothing(cycle, kind):
    host = Script(0)
    host.ready(0)
    assert codes(host.ends(cycle, kind)) == ["round_end_out_of_turn"]
    assert host.machine.round is CONTROL


def test_a_round_end_while_gathering_changes_nothing():
    assert codes(Script(0).ends(1, CONTROL)) == ["round_end_out_of_turn"]


@pytest.mark.parametrize("ranks", [(), (1, 1)])
def test_a_relay_needs_distinct_ranks(ranks):
    with pytest.raises(LocalProtocolError, match="expected one or more"):
        RelayMachine(ranks, has_buffers=False)


def test_a_broken_state_is_named():
    host = Script(0, 1)
    host.machine._ready.add(9)
    with pytest.raises(LocalProtocolError, match="a rank of another host"):
        host.machine.check()


ROUNDS = st.sampled_from(list(Round))


@settings(max_examples=60)
@given(
    st.lists(
        st.one_of(
            st.builds(RankReady, st.integers(0, 3), st.integers(0, 3)),
            st.builds(RankGone, st.integers(0, 3)),
            st.builds(
                RoundEndReceived,
                st.builds(end, st.integers(0, 3), ROUNDS, st.sampled_from(list(RoundOutcome))),
            ),
            st.just(Tick()),
        ),
        max_size=40,
    ),
    st.booleans(),
)
def test_whatever_arrives_the_machine_stays_whole_and_ends_once(events, has_buffers):
    machine = RelayMachine((0, 1, 2), has_buffers=has_buffers)
    shipped = []
    ended = 0
    for step, event in enumerate(events):
        effects = machine.handle(event, float(step))
        machine.check()
        shipped += [(e.cycle, e.round) for e in effects if isinstance(e, ShipRound)]
        ended += sum(isinstance(effect, EndRelay) for effect in effects)
        if isinstance(event, Tick):
            due = machine.deadline()
            assert due is None or due > step
    assert len(set(shipped)) == len(shipped)
    assert [cycle for cycle, _ in shipped] == sorted(cycle for cycle, _ in shipped)
    assert ended <= 1


class AnHonestHostServesEveryCycle(RuleBasedStateMachine):
    """Ranks that follow the protocol, and die at any moment; the root answers each round."""

    @initialize(world=st.integers(1, 4), has_buffers=st.booleans())
    def build(self, world, has_buffers):
        self.machine = RelayMachine(range(world), has_buffers=has_buffers)
        self.has_buffers = has_buffers
        self.alive = set(range(world))
        self.marked = set()
        self.cycle = 0
        self.under_way = None
        self.over = False

    def apply(self, event):
        for effect in self.machine.handle(event, 0.0):
            assert not isinstance(effect, DropRank | Note)
            if isinstance(effect, ShipRound):
                assert effect.cycle == self.cycle
                assert effect.ranks == tuple(sorted(self.marked))
                self.under_way = effect.round
            elif isinstance(effect, FanOut):
                assert effect.ranks == tuple(sorted(self.alive))
            else:
                assert not self.alive
                self.over = True

    @precondition(lambda self: not self.over and self.under_way is None)
    @rule(data=st.data())
    def a_rank_is_ready(self, data):
        waiting = sorted(self.alive - self.marked)
        rank = data.draw(st.sampled_from(waiting))
        self.marked.add(rank)
        self.apply(RankReady(rank, self.cycle))

    @precondition(lambda self: not self.over and self.alive)
    @rule(data=st.data())
    def a_rank_dies(self, data):
        rank = data.draw(st.sampled_from(sorted(self.alive)))
        self.alive.discard(rank)
        self.apply(RankGone(rank))

    @precondition(lambda self: not self.over and self.under_way is not None)
    @rule(outcome=st.sampled_from([COMMITTED, UNREALIZED]))
    def the_root_ends_the_round(self, outcome):
        ended, self.under_way = self.under_way, None
        last = following_round(ended, outcome, has_buffers=self.has_buffers) is None
        self.apply(RoundEndReceived(end(self.cycle, ended, outcome)))
        if last:
            assert self.under_way is None
            self.cycle += 1
            self.marked = set()

    @precondition(lambda self: self.over)
    @rule()
    def time_passes_after_the_end(self):
        assert codes(self.machine.handle(Tick(), 1e6)) == ["relay_has_ended"]

    @invariant()
    def nothing_waits_that_could_go_on(self):
        if not hasattr(self, "machine"):
            return
        self.machine.check()
        complete = bool(self.marked) and self.alive <= self.marked
        assert self.over or complete == (self.under_way is not None)
        assert self.over == (self.machine.phase is RelayPhase.ENDED)


AnHonestHostServesEveryCycle.TestCase.settings = settings(
    max_examples=50, stateful_step_count=25, deadline=None
)
TestAnHonestHostServesEveryCycle = pytest.mark.slow(AnHonestHostServesEveryCycle.TestCase)
