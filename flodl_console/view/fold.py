"""The one way in which the console's knowledge changes: a record is folded in.

What it is: a pure function of a view and a record.
What it is not: a reader; feeds make records.
Who drives it: the app, for each record that its worker posts.
"""

from dataclasses import replace
from typing import TypeVar, assert_never

from flodl_console.view.model import MAX_EVENTS, MAX_WINDOWS, ConsoleView
from flodl_console.view.records import (
    ClockTicked,
    DocumentArrived,
    EventsArrived,
    LinkChanged,
    LinkState,
    PagesChanged,
    PlaybackMoved,
    PlaybackReset,
    Record,
    SourceOpened,
    WindowsArrived,
)
from flodl_core.telemetry.records import EventRecord, WindowRecord

RowT = TypeVar("RowT", bound=WindowRecord | EventRecord)


def fold(view: ConsoleView, record: Record) -> ConsoleView:
    """Return the view with a record folded in.

    A document of another run voids the history. Rows that are known already are passed
    over; rows that the run dropped before they could be read are counted as lost.
    """
    match record:
        case SourceOpened():
            return ConsoleView(
                source=record.kind,
                label=record.label,
                is_read_only=record.is_read_only,
                now_s=view.now_s,
            )
        case DocumentArrived():
            return _take_document(view, record)
        case WindowsArrived():
            windows, lost = _append(view.windows, record.page.records, limit=MAX_WINDOWS)
            return replace(
                view,
                windows=windows,
                windows_lost=view.windows_lost + lost,
                now_s=max(view.now_s, record.at_s),
            )
        case EventsArrived():
            events, lost = _append(view.events, record.page.records, limit=MAX_EVENTS)
            return replace(
                view,
                events=events,
                events_lost=view.events_lost + lost,
                now_s=max(view.now_s, record.at_s),
            )
        case PagesChanged():
            return replace(view, pages_fault=record.detail, now_s=max(view.now_s, record.at_s))
        case LinkChanged():
            return _change_link(view, record)
        case PlaybackMoved():
            return replace(view, playback=record)
        case PlaybackReset():
            return _forget_history(view)
        case ClockTicked():
            return replace(view, now_s=max(view.now_s, record.at_s))
        case _:
            assert_never(record)


def _take_document(view: ConsoleView, record: DocumentArrived) -> ConsoleView:
    known = view.document
    if known is not None and known.run.id != record.document.run.id:
        view = _forget_history(view)
    return replace(
        view,
        document=record.document,
        received_at_s=record.at_s,
        now_s=max(view.now_s, record.at_s),
        document_bytes=record.size_bytes,
        document_ms=record.took_ms,
        link=LinkState.LIVE,
        link_detail="",
        retry_at_s=None,
    )


def _change_link(view: ConsoleView, record: LinkChanged) -> ConsoleView:
    retry_in_s = record.retry_in_s
    return replace(
        view,
        link=record.state,
        link_detail=record.detail,
        retry_at_s=None if retry_in_s is None else record.at_s + retry_in_s,
        now_s=max(view.now_s, record.at_s),
    )


def _forget_history(view: ConsoleView) -> ConsoleView:
    return replace(view, windows=(), windows_lost=0, events=(), events_lost=0)


def _append(
    known: tuple[RowT, ...], rows: tuple[RowT, ...], *, limit: int
) -> tuple[tuple[RowT, ...], int]:
    last = known[-1].seq if known else 0
    fresh: list[RowT] = []
    lost = 0
    for row in rows:
        if row.seq <= last:
            continue
        if last:
            lost += row.seq - last - 1
        fresh.append(row)
        last = row.seq
    if not fresh:
        return known, 0
    return tuple([*known, *fresh][-limit:]), lost
