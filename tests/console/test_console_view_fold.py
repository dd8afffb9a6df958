"""Records are folded into one view: nothing is lost, nothing of another run is kept."""

import pytest
from console_documents import (
    document,
    event,
    events_page,
    run_state,
    view_of,
    window,
    windows_page,
)

from flodl_console.view.fold import fold
from flodl_console.view.model import MAX_EVENTS, MAX_WINDOWS, initial
from flodl_console.view.records import (
    ClockTicked,
    DocumentArrived,
    LinkChanged,
    LinkState,
    PlaybackMoved,
    PlaybackReset,
    SourceKind,
    SourceOpened,
)


def arrived(shown=None, *, at_s=10.0):
    return DocumentArrived(document=shown or document(), at_s=at_s, size_bytes=2_048, took_ms=3.5)


def test_nothing_is_known_before_a_feed_opens():
    view = initial()
    assert view.source is None
    assert view.document is None
    assert view.age_s is None
    assert not view.is_current
    assert not view.is_stale


def test_a_feed_that_opens_forgets_the_one_before_but_not_the_time():
    before = fold(view_of(document(), windows=(window(1),)), ClockTicked(at_s=9.0))
    opened = SourceOpened(kind=SourceKind.REPLAY, label="runs/a", is_read_only=True)
    view = fold(before, opened)
    assert (view.source, view.label, view.is_read_only) == (SourceKind.REPLAY, "runs/a", True)
    assert view.document is None
    assert view.windows == ()
    assert view.now_s == 9.0


def test_a_document_is_kept_with_its_size_and_age():
    view = fold(initial(), arrived(at_s=10.0))
    view = fold(view, ClockTicked(at_s=12.5))
    assert view.document == document()
    assert (view.document_bytes, view.document_ms) == (2_048, 3.5)
    assert view.age_s == 2.5
    assert view.link is LinkState.LIVE


def test_time_never_runs_backwards():
    view = fold(fold(initial(), ClockTicked(at_s=5.0)), ClockTicked(at_s=4.0))
    assert view.now_s == 5.0


@pytest.mark.parametrize(("age_s", "is_stale"), [(3.0, False), (3.1, True)])
def test_a_live_document_is_stale_after_three_seconds(age_s, is_stale):
    view = fold(view_of(document()), ClockTicked(at_s=age_s))
    assert view.is_stale is is_stale
    assert view.is_current is not is_stale


def test_a_demos_document_is_never_stale():
    view = fold(view_of(document(), kind=SourceKind.DEMO), ClockTicked(at_s=60.0))
    assert not view.is_stale
    assert view.is_current


def test_a_broken_road_is_not_called_stale_but_is_not_current_either():
    change = LinkChanged(state=LinkState.DISCONNECTED, detail="refused", at_s=4.0, retry_in_s=2.0)
    view = fold(view_of(document()), change)
    assert (view.link, view.link_detail, view.retry_at_s) == (
        LinkState.DISCONNECTED,
        "refused",
        6.0,
    )
    assert not view.is_stale
    assert not view.is_current


def test_a_document_mends_the_road():
    change = LinkChanged(state=LinkState.DISCONNECTED, detail="refused", at_s=4.0, retry_in_s=2.0)
    view = fold(fold(view_of(document()), change), arrived())
    assert (view.link, view.link_detail, view.retry_at_s) == (LinkState.LIVE, "", None)


def test_a_change_of_the_road_without_a_retry_names_no_next_attempt():
    change = LinkChanged(state=LinkState.ENDED, detail="over", at_s=4.0)
    assert fold(view_of(document()), change).retry_at_s is None


def test_pages_are_joined_and_known_rows_passed_over():
    view = view_of(document(), windows=(window(1), window(2)))
    view = fold(view, windows_page(window(2), window(3)))
    assert [one.seq for one in view.windows] == [1, 2, 3]
    assert view.windows_lost == 0


def test_rows_that_were_dropped_before_they_were_read_are_counted():
    view = view_of(document(), events=(event(1), event(2)))
    view = fold(view, events_page(event(6), event(9)))
    assert [one.seq for one in view.events] == [1, 2, 6, 9]
    assert view.events_lost == 3 + 2


def test_a_first_page_that_begins_late_has_lost_nothing_in_between():
    assert view_of(document(), events=(event(5),)).events_lost == 0


def test_a_page_without_news_leaves_the_very_same_rows():
    view = view_of(document(), windows=(window(1),))
    assert fold(view, windows_page(window(1))).windows is view.windows


def test_windows_and_events_are_bounded_and_the_oldest_go_first():
    windows = tuple(window(seq) for seq in range(1, MAX_WINDOWS + 2))
    events = tuple(event(seq) for seq in range(1, MAX_EVENTS + 4))
    view = view_of(document(), windows=windows, events=events)
    assert (view.windows[0].seq, len(view.windows)) == (2, MAX_WINDOWS)
    assert (view.events[0].seq, len(view.events)) == (4, MAX_EVENTS)


def test_a_document_of_another_run_voids_the_history():
    view = view_of(document(), windows=(window(1),), events=(event(1), event(5)))
    other = document(run=run_state(id="fedcba9876543210"))
    view = fold(view, arrived(other))
    assert (view.windows, view.events, view.events_lost) == ((), (), 0)
    assert view.document == other


def test_a_document_of_the_same_run_keeps_the_history():
    view = fold(view_of(document(), windows=(window(1),)), arrived())
    assert [one.seq for one in view.windows] == [1]


def test_a_jump_of_the_playback_voids_the_history_but_not_the_document():
    view = view_of(document(), windows=(window(1),), events=(event(1),), kind=SourceKind.REPLAY)
    moved = PlaybackMoved(position_s=3.0, length_s=9.0, speed=2.0, is_paused=True)
    view = fold(fold(view, moved), PlaybackReset())
    assert (view.windows, view.events) == ((), ())
    assert view.document is not None
    assert view.playback == moved


def test_what_is_no_record_is_a_bug():
    with pytest.raises(AssertionError):
        fold(initial(), "a line")
