"""The verdict of the window, against a table and against its own order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from membership_script import window

from flodl_core.ids import StartMode
from flodl_core.membership.window import WindowState, review_window
from flodl_core.membership.window_clock import WindowClock

OPERATOR = ("formed", "operator start")
TARGET = ("formed", "target ranks reached")
CLOSED = ("formed", "join window closed with quorum")
NO_START = ("failed", "operator start not received")


@pytest.mark.parametrize(
    ("mode", "joined", "waited_s", "started", "expected"),
    [
        ("auto", 0, 0, False, "open"),
        ("auto", 2, 299.9, False, "open"),
        ("auto", 2, 299.9, True, "open"),
        ("auto", 4, 0, False, TARGET),
        ("auto", 5, 0, False, TARGET),
        ("auto", 2, 300, False, CLOSED),
        ("auto", 1, 300, False, "open"),
        ("auto", 1, 599.9, False, "open"),
        ("auto", 2, 599.9, False, CLOSED),
        ("auto", 2, 600, False, CLOSED),
        ("auto", 1, 600, False, ("failed", "quorum not met: 1/2")),
        ("auto", 0, 10_000, True, ("failed", "quorum not met: 0/2")),
        ("hybrid", 2, 5, False, "open"),
        ("hybrid", 2, 5, True, OPERATOR),
        ("hybrid", 1, 5, True, "open"),
        ("hybrid", 4, 5, True, OPERATOR),
        ("hybrid", 4, 5, False, TARGET),
        ("hybrid", 2, 300, False, CLOSED),
        ("hybrid", 1, 600, True, ("failed", "quorum not met: 1/2")),
        ("manual", 9, 5, False, "open"),
        ("manual", 9, 300, False, "open"),
        ("manual", 9, 599.9, False, "open"),
        ("manual", 2, 450, True, OPERATOR),
        ("manual", 2, 600, False, NO_START),
        ("manual", 2, 600, True, OPERATOR),
        ("manual", 1, 600, True, ("failed", "quorum not met: 1/2")),
    ],
)
def test_the_first_test_that_applies_decides(mode, joined, waited_s, started, expected):
    target = None if mode == "manual" else 4
    verdict = review_window(joined, waited_s, window(mode, target=target), start_requested=started)
    if expected == "open":
        assert verdict.state is WindowState.OPEN
    else:
        assert (verdict.state, verdict.reason) == expected


def test_an_open_window_says_what_it_waits_for():
    def reason(mode, joined, waited_s):
        return review_window(joined, waited_s, window(mode), start_requested=False).reason

    assert reason("auto", 0, 1) == "join window open"
    assert reason("auto", 1, 400) == "past the window, waiting for quorum"
    assert reason("manual", 2, 400) == "past the window, waiting for the operator's start"


MODES = st.sampled_from(list(StartMode))
RANKS = st.integers(0, 8)
WAITED = st.floats(0, 1000)


@st.composite
def windows(draw):
    mode = draw(MODES)
    quorum = draw(st.integers(2, 6))
    target = draw(st.none() | st.integers(quorum, 8)) if mode != "manual" else None
    window_s = draw(st.floats(0.1, 400))
    return window(
        mode,
        quorum=quorum,
        target=target,
        window_s=window_s,
        cap_s=window_s + draw(st.floats(0, 400)),
    )


@given(config=windows(), joined=RANKS, waited_s=WAITED, started=st.booleans())
def test_the_rules_hold_for_every_window(config, joined, waited_s, started):
    verdict = review_window(joined, waited_s, config, start_requested=started)
    assert verdict.reason
    if verdict.state is WindowState.FORMED:
        assert joined >= config.min_rank_start
        if config.start_mode is StartMode.MANUAL:
            assert started
    if verdict.state is WindowState.FAILED:
        assert waited_s >= config.max_join_timeout_s
    if waited_s >= config.max_join_timeout_s:
        assert verdict.state is not WindowState.OPEN
    if config.start_mode is StartMode.AUTO:
        assert verdict == review_window(joined, waited_s, config, start_requested=not started)


@given(config=windows(), joined=RANKS, waited_s=WAITED, started=st.booleans())
def test_one_more_rank_never_undoes_a_world(config, joined, waited_s, started):
    before = review_window(joined, waited_s, config, start_requested=started)
    after = review_window(joined + 1, waited_s, config, start_requested=started)
    if before.state is WindowState.FORMED:
        assert after.state is WindowState.FORMED


@given(
    opened=st.floats(0, 1e7),
    window_s=st.floats(0.01, 1e5),
    grace_s=st.floats(0, 1e5),
    data=st.data(),
)
def test_age_and_instants_are_on_the_same_side_of_every_limit(opened, window_s, grace_s, data):
    clock = WindowClock(window_s=window_s, cap_s=window_s + grace_s, opened_at=opened)
    limits = [opened + clock.window_s, opened + clock.cap_s]
    now = data.draw(
        st.sampled_from([opened, *limits]) | st.floats(opened, opened + 3e5, allow_nan=False)
    )
    waited_s = clock.waited_s(now)
    assert (waited_s >= clock.window_s) == (now >= limits[0])
    assert (waited_s >= clock.cap_s) == (now >= limits[1])
    due = clock.next_due(now)
    assert due is None or now < due
    assert (due is None) == (now >= limits[1])
    assert (clock.window_left_s(now) is None) == (now >= limits[0])
    assert (clock.cap_left_s(now) is None) == (now >= limits[1])


def test_a_window_that_is_not_open_has_no_age_and_no_deadline():
    clock = WindowClock(window_s=3, cap_s=6)
    assert (clock.waited_s(99), clock.next_due(99)) == (0.0, None)
    assert (clock.window_left_s(99), clock.cap_left_s(99)) == (3, 6)
