"""How far ranks run on: three batches, one more while it is calm, back after a nudge."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.guards import NudgeDown, Stable, SuppressGrowth
from flodl_core.elche.overshoot import Overshoot
from flodl_core.errors import ConfigError

CALM, STOP, BACK = Stable(), SuppressGrowth("it rises"), NudgeDown(0.5, "it runs away")


def after(*verdicts, pinned=None):
    overshoot = Overshoot(pinned)
    for verdict in verdicts:
        overshoot.judge(verdict)
    return overshoot.batches


def test_it_begins_at_three_and_a_calm_average_adds_one():
    assert after() == 3
    assert after(CALM, CALM) == 5


def test_it_ends_at_fifteen():
    assert after(*[CALM] * 11) == 14
    assert after(*[CALM] * 40) == 15


def test_a_nudge_brings_it_back_to_the_start_and_it_rises_again():
    assert after(*[CALM] * 9, BACK) == 3
    assert after(*[CALM] * 9, BACK, CALM) == 4


def test_a_verdict_against_growth_alone_leaves_it_where_it_is():
    assert after(CALM, CALM, STOP) == 5


@given(st.integers(0, 100), st.lists(st.sampled_from([CALM, STOP, BACK])))
def test_a_given_value_is_kept_whatever_is_judged(pinned, verdicts):
    assert after(*verdicts, pinned=pinned) == pinned


@given(st.lists(st.sampled_from([CALM, STOP, BACK])))
def test_it_stays_between_start_and_ceiling(verdicts):
    assert 3 <= after(*verdicts) <= 15


def test_less_than_nothing_is_refused():
    with pytest.raises(ConfigError, match="overshoot"):
        Overshoot(-1)
