"""Who may be connected without a proof, and who leaves for a newcomer."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from flodl_core.net.admission_gate import AdmissionGate, GateLimits


def gate(**limits):
    return AdmissionGate(GateLimits(**limits))


def admit(gate, number, group="10.0.0.1"):
    return gate.admit(number, group=group, is_loopback=group == "127.0.0.1")


def test_the_defaults_are_those_of_the_design():
    limits = GateLimits()
    assert (limits.unauthenticated, limits.per_address) == (256, 16)
    assert (limits.loopback, limits.http) == (128, 64)


def test_the_oldest_silent_connection_leaves_when_all_places_are_taken():
    g = gate(unauthenticated=2, per_address=9)
    assert admit(g, 1, "a") == []
    assert admit(g, 2, "b") == []
    assert admit(g, 3, "c") == [1]
    assert admit(g, 4, "d") == [2]
    assert g.unproven == 2


def test_one_address_crowds_out_only_itself():
    g = gate(unauthenticated=100, per_address=2)
    assert admit(g, 1, "good") == []
    assert admit(g, 2, "bad") == []
    assert admit(g, 3, "bad") == []
    assert admit(g, 4, "bad") == [2]
    assert admit(g, 5, "bad") == [3]


def test_loopback_has_a_limit_of_its_own():
    g = gate(per_address=1, loopback=3)
    assert [admit(g, number, "127.0.0.1") for number in range(4)] == [[], [], [], [0]]


def test_whoever_sent_a_valid_first_message_leaves_last():
    g = gate(unauthenticated=2)
    admit(g, 1, "a")
    admit(g, 2, "b")
    g.spoke(1)
    assert admit(g, 3, "c") == [2]
    g.spoke(3)
    assert admit(g, 4, "d") == [1]


def test_a_proven_connection_is_counted_no_more():
    g = gate(unauthenticated=1)
    admit(g, 1)
    g.remove(1)
    assert admit(g, 2) == []
    g.remove(1)
    g.spoke(1)
    assert g.unproven == 1


def test_http_has_places_of_its_own():
    g = gate(unauthenticated=1, http=1)
    admit(g, 1)
    assert g.is_http(1) == []
    assert admit(g, 2) == []
    assert g.is_http(2) == [1]
    assert (g.unproven, g.http) == (0, 1)
    assert g.is_http(7) == []


def test_without_a_descriptor_the_oldest_leaves_http_last():
    g = gate()
    assert g.oldest() is None
    admit(g, 1)
    g.is_http(1)
    admit(g, 2)
    assert [g.oldest(), g.oldest(), g.oldest()] == [2, 1, None]


@pytest.mark.parametrize("field", ["unauthenticated", "per_address", "loopback", "http"])
def test_a_limit_of_zero_is_an_error(field):
    with pytest.raises(ValueError, match="would serve nobody"):
        GateLimits(**{field: 0})


class GateUnderFire(RuleBasedStateMachine):
    """Against a model that keeps plain lists."""

    def __init__(self):
        super().__init__()
        self.limits = GateLimits(unauthenticated=6, per_address=2, loopback=4, http=3)
        self.gate = AdmissionGate(self.limits)
        self.number = 0
        self.unproven, self.http = [], []

    def forget(self, number):
        for pool in (self.unproven, self.http):
            pool[:] = [entry for entry in pool if entry[0] != number]

    @rule(group=st.sampled_from(["127.0.0.1", "a", "b", "c", "d"]))
    def arrive(self, group):
        self.number += 1
        silent = {number for number, _, spoke in self.unproven if not spoke}
        leavers = admit(self.gate, self.number, group)
        assert self.number not in leavers
        for leaver in leavers:
            group_of = {n: g for n, g, _ in self.unproven}
            same = {n for n, g in group_of.items() if g == group_of[leaver]}
            assert leaver in silent or not silent & same
            self.forget(leaver)
        self.unproven.append((self.number, group, False))

    @precondition(lambda self: self.number)
    @rule(data=st.data())
    def speak(self, data):
        number = data.draw(st.integers(1, self.number))
        self.gate.spoke(number)
        self.unproven[:] = [(n, g, s or n == number) for n, g, s in self.unproven]

    @precondition(lambda self: self.unproven)
    @rule(data=st.data())
    def turn_out_to_be_http(self, data):
        entry = data.draw(st.sampled_from(self.unproven))
        for leaver in self.gate.is_http(entry[0]):
            assert leaver != entry[0]
            self.forget(leaver)
        self.forget(entry[0])
        self.http.append(entry)

    @precondition(lambda self: self.number)
    @rule(data=st.data())
    def leave(self, data):
        number = data.draw(st.integers(1, self.number))
        self.gate.remove(number)
        self.forget(number)

    @invariant()
    def counts_agree_and_hold(self):
        assert self.gate.unproven == len(self.unproven) <= 6
        assert self.gate.http == len(self.http) <= 3
        for group in ("127.0.0.1", "a", "b", "c", "d"):
            most = 4 if group == "127.0.0.1" else 2
            assert sum(g == group for _, g, _ in self.unproven) <= most


TestGateUnderFire = GateUnderFire.TestCase
TestGateUnderFire.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
