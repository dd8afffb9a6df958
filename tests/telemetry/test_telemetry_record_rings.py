import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.errors import LocalProtocolError, RemoteProtocolError
from flodl_core.telemetry.record_rings import MAX_PAGE, MAX_PAGE_BYTES, RecordRing
from flodl_core.telemetry.records import (
    EventKind,
    EventRecord,
    read_event_page_untrusted,
    read_window_page_untrusted,
)


def filled(count, *, limit=10, limit_bytes=10_000, size=1):
    ring = RecordRing(limit, limit_bytes=limit_bytes)
    for _ in range(count):
        seq = ring.next_seq
        ring.add(seq, json.dumps({"seq": seq, "text": "x" * size}).encode())
    return ring


def seqs(page):
    return [row["seq"] for row in json.loads(page)["records"]]


def test_a_page_holds_the_records_after_a_number_oldest_first():
    page = json.loads(filled(5).page(2))
    assert [row["seq"] for row in page["records"]] == [3, 4, 5]
    assert (page["version"], page["oldest_seq"], page["newest_seq"]) == (1, 1, 5)


def test_an_empty_ring_says_that_none_was_made():
    assert json.loads(RecordRing(3).page(0)) == {
        "version": 1,
        "oldest_seq": 0,
        "newest_seq": 0,
        "records": [],
    }


def test_the_oldest_are_forgotten_and_the_page_says_which_is_the_oldest_kept():
    page = filled(25).page(3)
    assert json.loads(page)["oldest_seq"] == 16
    assert seqs(page) == list(range(16, 26))


def test_a_ring_is_bounded_in_bytes_too_and_keeps_the_newest():
    assert seqs(filled(9, limit_bytes=450, size=80).page(0)) == [6, 7, 8, 9]
    assert seqs(filled(3, limit_bytes=50, size=500).page(0)) == [3]


def test_a_page_ends_at_its_limits_and_holds_one_record_at_least():
    many = filled(2_000, limit=2_000, limit_bytes=1_000_000)
    assert len(seqs(many.page(0, 10_000))) == MAX_PAGE
    assert seqs(many.page(7, 2)) == [8, 9]
    large = filled(4, limit_bytes=100_000_000, size=MAX_PAGE_BYTES - 1_000)
    assert seqs(large.page(0)) == [1]
    assert seqs(large.page(3)) == [4]


def test_a_number_past_the_newest_gets_an_empty_page():
    assert seqs(filled(3).page(3)) == []
    assert seqs(filled(3).page(99)) == []


def test_a_record_out_of_turn_is_refused():
    with pytest.raises(LocalProtocolError, match="record 5 was made after 3"):
        filled(3).add(5, b"{}")


@given(st.integers(0, 60), st.integers(-5, 70), st.integers(1, 600))
def test_every_page_is_what_a_list_would_give(count, since, limit):
    kept = list(range(max(1, count - 9), count + 1))
    wanted = [seq for seq in kept if seq > since][:limit]
    assert seqs(filled(count).page(since, limit)) == wanted


def test_pages_read_back_and_junk_is_refused():
    ring = RecordRing(5)
    event = EventRecord(
        seq=1, at="2031-01-02T03:04:05Z", uptime_s=2.5, kind=EventKind.REFUSAL, severity="warn",
        name="host_refused", host="blue", text="blue was refused", fix="give it a name",
    )  # fmt: skip
    ring.add(1, event.model_dump_json().encode())
    assert read_event_page_untrusted(ring.page(0)).records == (event,)
    for junk in (b"", b"[]", b'{"oldest_seq": 1}', b"[" * 100_000):
        with pytest.raises(RemoteProtocolError, match="no page of events"):
            read_event_page_untrusted(junk)
        with pytest.raises(RemoteProtocolError, match="no page of history"):
            read_window_page_untrusted(junk)
