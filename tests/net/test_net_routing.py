"""Which protocol a connection speaks, and the counting of those that speak none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.net.port_statistics import DropReason, FloodCollapser
from flodl_core.net.routing import Route, route_untrusted


@pytest.mark.parametrize(
    ("first", "route"),
    [
        (b"JOIN", Route.JOIN),
        (b"JOIN\x01\x01", Route.JOIN),
        (b"MUX1", Route.MUX),
        (b"GET / HTTP/1.1", Route.HTTP),
        (b"POST /start", Route.HTTP),
        (b"HEAD /", Route.HTTP),
        (b"OPTIONS *", Route.HTTP),
        (b"PUT /", Route.HTTP),
        (b"\x16\x03\x01\x02", Route.TLS),
        (b"SSH-", Route.JUNK),
        (b"join", Route.JUNK),
        (b"MUX2", Route.JUNK),
        (b"\x00", Route.JUNK),
        (b"JOX", Route.JUNK),
        (b"JOI", None),
        (b"M", None),
        (b"P", None),
        (b"\x16", None),
        (b"", None),
    ],
)
def test_the_first_bytes_decide(first, route):
    assert route_untrusted(first) is route


@given(st.binary(min_size=4, max_size=64))
def test_four_bytes_always_decide(first):
    assert route_untrusted(first) is not None


@given(st.binary(max_size=8), st.integers(0, 8))
def test_more_bytes_never_change_a_decision(data, cut):
    early = route_untrusted(data[:cut])
    assert early is None or early is route_untrusted(data)


def test_a_flood_of_one_reason_becomes_one_line_each_ten_seconds():
    floods = FloodCollapser()
    first = floods.note(DropReason.JUNK, 100.0, address="a")
    assert first is not None
    assert first.count == 1
    for n in range(10_000):
        assert floods.note(DropReason.JUNK, 100.0 + n / 2000, address="b") is None
    other = floods.note(DropReason.TLS, 101.0, address="c")
    assert other is not None
    later = floods.note(DropReason.JUNK, 110.0, address="d", detail="x")
    assert later is not None
    assert (later.count, later.address, later.detail) == (10_001, "d", "x")
