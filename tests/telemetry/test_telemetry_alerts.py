import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.telemetry.alerts import COLLAPSE_S, MAX_KEYS, AlertBook, path_of


def raise_one(book, now, cls="rank_lost", path="root/rank1", detail="gone", **given_):
    return book.raise_alert(cls, path, detail=detail, now=now, **given_)


def test_the_first_alert_is_emitted_at_once():
    book = AlertBook()
    (record,) = raise_one(book, 5.0)
    assert (record.severity, record.count, record.raised_at_s) == ("critical", 1, 5.0)
    assert list(book.recent) == [record]


def test_repeats_within_ten_seconds_are_counted_into_the_next():
    book = AlertBook()
    raise_one(book, 0.0)
    assert raise_one(book, 1.0) == []
    assert raise_one(book, 9.999) == []
    (record,) = raise_one(book, 10.0, detail="gone again")
    assert (record.count, record.detail) == (3, "gone again")


def test_the_ten_seconds_count_from_the_last_emission_not_from_the_last_repeat():
    book = AlertBook()
    raise_one(book, 0.0)
    raise_one(book, 9.0)
    assert len(raise_one(book, 10.5)) == 1
    assert raise_one(book, 20.0) == []
    assert len(raise_one(book, 20.5)) == 1


def test_another_path_or_class_is_another_alert():
    book = AlertBook()
    raise_one(book, 0.0)
    assert len(raise_one(book, 0.0, path="root/rank2")) == 1
    assert len(raise_one(book, 0.0, cls="drift")) == 1


def test_a_flush_emits_what_is_owed_and_a_second_adds_nothing():
    book = AlertBook()
    raise_one(book, 0.0)
    raise_one(book, 1.0)
    raise_one(book, 2.0)
    (record,) = book.flush(3.0)
    assert record.count == 2
    assert book.flush(3.0) == []
    assert raise_one(book, 12.9) == []


def test_owed_counts_have_a_deadline():
    book = AlertBook()
    raise_one(book, 1.0)
    assert book.deadline() is None
    raise_one(book, 2.0)
    assert book.deadline() == 1.0 + COLLAPSE_S
    assert book.flush_due(10.9) == []
    (record,) = book.flush_due(11.0)
    assert record.count == 1
    assert book.deadline() is None


def test_the_two_hundred_and_first_key_evicts_the_quietest_and_says_so():
    book = AlertBook()
    for number in range(MAX_KEYS):
        raise_one(book, 0.0, path=f"root/rank{number}")
    raise_one(book, 1.0, path="root/rank0")
    raise_one(book, 1.0, path="root/rank1")
    raise_one(book, 1.5, path="root/rank0")
    emitted = raise_one(book, 2.0, path="root/rank900")
    assert [(one.alert_class, one.path, one.count) for one in emitted] == [
        ("overflow", "root", 1),
        ("rank_lost", "root/rank900", 1),
    ]
    assert len(raise_one(book, 2.0, path="root/rank2")) == 1
    assert raise_one(book, 2.0, path="root/rank0") == []


def test_an_evicted_key_emits_what_it_owed_and_overflow_collapses_itself():
    book = AlertBook()
    raise_one(book, 0.0, path="root/rank0")
    raise_one(book, 0.5, path="root/rank0")
    for number in range(1, MAX_KEYS):
        raise_one(book, 1.0, path=f"root/rank{number}")
    first = raise_one(book, 2.0, path="root/rank900")
    assert [(one.alert_class, one.path, one.count) for one in first] == [
        ("rank_lost", "root/rank0", 1),
        ("overflow", "root", 1),
        ("rank_lost", "root/rank900", 1),
    ]
    second = raise_one(book, 3.0, path="root/rank901")
    assert [one.alert_class for one in second] == ["rank_lost"]


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0, 8), st.sampled_from("abc"), st.sampled_from(["root", "root/rank1"])),
        max_size=60,
    )
)
def test_no_alert_is_lost_nor_told_twice_and_emissions_keep_their_distance(steps):
    book, now, raised = AlertBook(), 0.0, {}
    emitted = []
    for wait, cls, path in steps:
        now += wait
        raised[cls, path] = raised.get((cls, path), 0) + 1
        emitted += raise_one(book, now, cls=cls, path=path)
    by_key = {}
    for one in emitted:
        by_key.setdefault((one.alert_class, one.path), []).append(one.raised_at_s)
    for times in by_key.values():
        assert all(b - a >= COLLAPSE_S for a, b in itertools.pairwise(times))
    told = {}
    for one in [*emitted, *book.flush(now)]:
        key = (one.alert_class, one.path)
        told[key] = told.get(key, 0) + one.count
    assert told == raised


def test_the_record_has_the_keys_of_the_journal():
    (record,) = raise_one(AlertBook(), 0.0, severity="warn")
    assert record.as_record() == {
        "sev": "warn",
        "kind": "event",
        "class": "rank_lost",
        "detail": "gone",
        "count": 1,
    }


def test_a_peers_words_cannot_steer_a_terminal():
    (record,) = raise_one(AlertBook(), 0.0, detail="\x1b[31mred")
    assert record.detail == "\\x1b[31mred"


@pytest.mark.parametrize(
    ("rank", "host", "hosts", "ranks", "path"),
    [
        (None, None, 2, 4, "root"),
        (None, "blue", 2, 4, "root/blue"),
        (None, "blue", 1, 2, "root"),
        (3, "blue", 2, 4, "root/blue/rank3"),
        (3, "blue", 1, 4, "root/rank3"),
        (3, None, 2, 4, "root/rank3"),
        (0, "blue", 1, 1, "root"),
    ],
)
def test_paths_leave_out_what_tells_nothing(rank, host, hosts, ranks, path):
    assert path_of(rank, host, hosts=hosts, ranks=ranks) == path
