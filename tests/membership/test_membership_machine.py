"""Random lives of a ledger: hosts come and go, clocks jump, operators start."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from membership_script import World, window

from flodl_core.ids import StartMode
from flodl_core.machines import Note
from flodl_core.membership.events import (
    Aborted,
    AbortMember,
    AdmitMember,
    DeclareHostLost,
    FailWindow,
    FormationFinished,
    FormWorld,
    RefuseMember,
    TrainingEnded,
)

HOSTS = st.sampled_from(["red", "blue", "green", "grey", ""])


class LedgerLife(RuleBasedStateMachine):
    """Drives a ledger and keeps its own simple account of who is in."""

    @initialize(
        mode=st.sampled_from(list(StartMode)),
        quorum=st.integers(2, 5),
        extra=st.none() | st.integers(0, 4),
        window_s=st.floats(1, 50),
        grace_s=st.floats(0, 50),
    )
    def opens(self, mode, quorum, extra, window_s, grace_s):
        target = None if extra is None or mode == "manual" else quorum + extra
        self.config = window(
            mode, quorum=quorum, target=target, window_s=window_s, cap_s=window_s + grace_s
        )
        self.world = World(self.config)
        self.age_s = 0.0
        self.live: dict[int, tuple[str, int]] = {}
        self.joined = 0
        self.starts_heard = 0
        self.lost: list[str] = []
        self.was_final = False

    def is_open(self):
        return self.world.phase in ("waiting", "staging")

    def ranks(self):
        return sum(devices for _, devices in self.live.values())

    @rule(seconds=st.floats(0, 30))
    def time_passes(self, seconds):
        self.age_s += seconds
        self.world.at(self.age_s).tick()

    @rule()
    def time_jumps_to_the_deadline(self):
        due = self.world.ledger.deadline()
        if due is not None:
            self.world.now = max(due, self.world.now)
            self.age_s = max(self.age_s, self.world.now - 1000.0)
            self.world.tick()
            assert self.world.ledger.deadline() != due

    @rule(host=HOSTS, devices=st.integers(0, 3), good=st.booleans())
    def a_host_says_hello(self, host, devices, good):
        connection, self.joined = self.joined, self.joined + 1
        was_open = self.is_open()
        names = {name for name, _ in self.live.values()}
        self.world.joins(host, devices, **({} if good else {"dataset_sig": "ee"}))
        admitted = [e for e in self.world.last if isinstance(e, AdmitMember)]
        should = bool(was_open and host and devices and good and host not in names)
        assert bool(admitted) == should
        if should:
            before = self.ranks()
            assert admitted[0].ranks == tuple(range(before, before + devices))
            assert 0 <= admitted[0].formation_wait_s <= self.config.max_join_timeout_s
            self.live[connection] = (host, devices)
        else:
            assert isinstance(self.world.last[0], RefuseMember)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def a_member_leaves(self, data):
        connection = data.draw(st.sampled_from(sorted(self.live)))
        was_open = self.is_open()
        host, _ = self.live.pop(connection)
        final = self.world.phase in ("forming", "training")
        self.world.leaves(connection)
        losses = [e for e in self.world.last if isinstance(e, DeclareHostLost)]
        assert [loss.host for loss in losses] == ([host] if final else [])
        assert was_open or self.world.ledger.members

    @rule()
    def a_stranger_leaves(self):
        self.world.leaves(10_000)
        assert isinstance(self.world.last[0], Note)

    @rule()
    def the_operator_starts(self):
        was_open, enough = self.is_open(), self.ranks() >= self.config.min_rank_start
        self.world.starts()
        forms = was_open and enough and self.config.start_mode is not StartMode.AUTO
        assert any(isinstance(e, FormWorld) for e in self.world.last) == forms
        if not forms and was_open:
            assert not self.world.snapshot().start_armed

    @precondition(lambda self: self.world.phase in ("forming", "training"))
    @rule(event=st.sampled_from([FormationFinished(), TrainingEnded()]))
    def the_run_goes_on(self, event):
        self.world.does(event)

    @rule(chance=st.integers(0, 9))
    def somebody_aborts(self, chance):
        if chance:
            return
        live = {*self.live} if self.world.phase not in ("done", "failed") else set()
        self.world.does(Aborted(reason="test"))
        told = {e.connection for e in self.world.last if isinstance(e, AbortMember)}
        assert told == live

    @invariant()
    def the_window_ends_once_and_stays_ended(self):
        ends = [e for e in self.world.effects if isinstance(e, FormWorld | FailWindow)]
        assert len(ends) <= 1
        assert bool(ends) == (not self.is_open())
        if self.age_s >= self.config.max_join_timeout_s + 1e-6 and self.is_open():
            assert self.world.ledger.deadline() is not None or self.world.tick().last

    @invariant()
    def a_world_has_its_quorum_and_every_rank_once(self):
        for formed in (e for e in self.world.effects if isinstance(e, FormWorld)):
            ranks = [rank for seated in formed.roster for rank in seated.ranks]
            assert ranks == list(range(len(ranks)))
            assert len(ranks) >= self.config.min_rank_start
            assert formed.reason

    @invariant()
    def the_snapshot_counts_who_is_in(self):
        snapshot = self.world.snapshot()
        connected = [row for row in snapshot.members if row.connected]
        assert snapshot.joined_hosts == len(connected)
        assert snapshot.joined_ranks == self.ranks()
        assert {row.host for row in connected} == {host for host, _ in self.live.values()}
        if not self.is_open():
            assert snapshot.window_remaining_s is None
            assert snapshot.cap_remaining_s is None

    @invariant()
    def a_closed_window_wants_no_tick(self):
        if not self.is_open():
            assert self.world.ledger.deadline() is None


LedgerLife.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLedgerLife = pytest.mark.slow(LedgerLife.TestCase)
