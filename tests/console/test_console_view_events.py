"""Events: filtered, root causes first with what follows folded under them."""

import pytest
from console_documents import document, event, events_page, training, view_of

from flodl_console.view.events import EventQuery, event_row, events_panel, root_seqs
from flodl_console.view.fold import fold
from flodl_console.view.model import initial
from flodl_console.view.tones import Glyph, Tone
from flodl_core.telemetry.records import EventKind

HOST_LOST = event(
    10,
    kind=EventKind.ALERT,
    severity="critical",
    name="host_lost",
    host="blue",
    text="blue was lost: silent for 30 s",
    fix="look at its machine",
)
RANK_LOST = [
    event(
        seq,
        kind=EventKind.ALERT,
        severity="critical",
        name="rank_lost",
        host="blue",
        rank=seq - 9,
        text=f"rank {seq - 9} was lost: its host blue was lost",
        cause_seq=cause,
    )
    for seq, cause in ((11, 10), (12, 11))
]
JOINED = event(2, kind=EventKind.ADMISSION, name="host_joined", host="blue", text="blue joined")
STOP = event(
    20, kind=EventKind.OPERATOR, name="stop", who="operator at 10.0.0.9", text="asked to stop"
)
ALL = (event(1), JOINED, HOST_LOST, *RANK_LOST, STOP)


def listed(query=None, *, events=ALL, **parts):
    return events_panel(view_of(training(), events=events), query or EventQuery(), **parts)


def test_the_newest_root_causes_come_first_and_what_follows_is_folded():
    panel = listed()
    assert panel.seqs == (20, 10, 2, 1)
    cause = panel.rows[1]
    assert (cause.depth, cause.consequences, cause.is_folded) == (0, 2, True)
    assert cause.fold_text == "+2 follow"
    assert (panel.hidden, panel.total) == (2, 6)
    assert panel.summary == "6 of 6 events · 3 critical · 2 folded"


def test_the_room_for_places_is_that_of_the_longest_known_one_even_out_of_sight():
    known = (event(1, rank=11, host="blue"), event(2), event(3))
    panel = events_panel(view_of(training(), events=known), EventQuery(), max_rows=1)
    assert [row.where for row in panel.rows] == ["run"]
    assert panel.where_cells == len("rank 11 on blue")


def test_an_unfolded_cause_has_its_consequences_under_it_in_order_of_time():
    panel = listed(EventQuery(unfolded=frozenset({10})))
    assert panel.seqs == (20, 10, 11, 12, 2, 1)
    assert [row.depth for row in panel.rows] == [0, 0, 1, 1, 0, 0]
    assert (panel.rows[1].is_folded, panel.rows[1].fold_text) == (False, "-2 follow")
    assert panel.hidden == 0
    oldest_first = EventQuery(is_all_unfolded=True, is_newest_first=False)
    assert listed(oldest_first).seqs == (1, 2, 10, 11, 12, 20)


def test_a_cause_that_is_no_longer_known_or_later_makes_no_chain():
    events = (event(5, cause_seq=3), event(6, cause_seq=9), event(9, cause_seq=9))
    assert root_seqs(events) == {5: 5, 6: 6, 9: 9}


def test_a_chain_of_causes_is_followed_for_a_while_only():
    events = tuple(event(seq, cause_seq=seq - 1) for seq in range(1, 21))
    roots = root_seqs(events)
    assert (roots[1], roots[17], roots[18]) == (1, 1, 2)


def test_a_consequence_whose_cause_is_filtered_away_stands_by_itself():
    panel = listed(EventQuery(rank=3))
    assert panel.seqs == (12,)
    assert panel.rows[0].depth == 0


@pytest.mark.parametrize(
    ("query", "seqs"),
    [
        (EventQuery(kinds=frozenset({EventKind.ADMISSION})), (2,)),
        (EventQuery(min_severity="critical"), (10,)),
        (EventQuery(min_severity="warn"), (10,)),
        (EventQuery(text="blue LOST silent"), (10,)),
        (EventQuery(text="host joined"), (2,)),
        (EventQuery(text="10.0.0.9"), (20,)),
        (EventQuery(text="rank 2"), (11,)),
        (EventQuery(text="operator"), (20,)),
        (EventQuery(text="machine"), (10,)),
        (EventQuery(text="green"), ()),
    ],
)
def test_events_are_filtered_by_kind_severity_and_words(query, seqs):
    assert listed(query).seqs == seqs


def test_only_the_wanted_part_of_the_rows_is_made():
    panel = listed(first_row=1, max_rows=2)
    assert [row.seq for row in panel.rows] == [10, 2]
    assert panel.first_row == 1
    assert listed(first_row=50).rows == ()


def test_a_row_says_when_where_what_and_who():
    row = event_row(STOP.model_copy(update={"uptime_s": 7_620.0, "count": 3}))
    assert (row.time, row.age, row.where) == ("00:00:20", "2 h 07 m", "run")
    assert (row.text, row.who, row.count) == ("asked to stop (×3)", "operator at 10.0.0.9", 3)
    assert (row.glyph, row.tone) == (Glyph.PINNED, Tone.ACCENT)
    assert (row.fold_text, row.is_folded) == ("", False)


@pytest.mark.parametrize(
    ("rank", "host", "where"),
    [
        (None, None, "run"),
        (None, "blue", "blue"),
        (3, None, "rank 3"),
        (3, "blue", "rank 3 on blue"),
    ],
)
def test_a_row_names_its_place(rank, host, where):
    row = event_row(event(1, rank=rank, host=host))
    assert (row.where, row.rank, row.host) == (where, rank, host)


@pytest.mark.parametrize(
    ("severity", "shown", "glyph", "tone"),
    [
        ("critical", "critical", Glyph.BAD, Tone.BAD),
        ("warn", "warn", Glyph.WARN, Tone.WARN),
        ("info", "info", Glyph.INFO, Tone.INFO),
        ("strange", "strange", Glyph.INFO, Tone.INFO),
    ],
)
def test_severity_beats_the_kind(severity, shown, glyph, tone):
    row = event_row(event(1, severity=severity))
    assert (row.severity, row.glyph, row.tone) == (shown, glyph, tone)


def test_an_event_without_a_sentence_is_called_by_its_name():
    assert event_row(event(1, text="", name="save_failed")).text == "save failed"


def test_an_unknown_severity_counts_as_the_least():
    assert listed(EventQuery(min_severity="strange")).seqs == (20, 10, 2, 1)


@pytest.mark.parametrize(
    ("view", "query", "text"),
    [
        (initial(), EventQuery(), "no document has come yet"),
        (view_of(document()), EventQuery(), "nothing has happened yet"),
        (
            view_of(document(), events=ALL),
            EventQuery(text="green"),
            "no event matches the filter",
        ),
    ],
)
def test_an_empty_list_says_why(view, query, text):
    panel = events_panel(view, query)
    assert (panel.rows, panel.empty_text) == ((), text)


def test_a_list_without_events_has_a_summary_all_the_same():
    assert listed(events=()).summary == "no events"
    assert listed(events=(event(1),)).summary == "1 of 1 event"


def test_what_is_no_longer_known_is_said():
    assert listed(events=(event(1),)).lost_text == ""
    assert listed(events=(event(4),)).lost_text == "3 older events no longer kept"
    view = fold(view_of(training(), events=(event(1),)), events_page(event(4)))
    expected = "2 events were dropped by the run before they were read"
    assert events_panel(view, EventQuery()).lost_text == expected
