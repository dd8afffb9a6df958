"""The events: what happened, root causes first, consequences folded under them.

What it is: the event list filtered and folded, as texts.
What it is not: the log.
Who drives it: the Events screen; the Rank screen shows those of one rank.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from flodl_console.view.formats import clock_time, count, duration, plural
from flodl_console.view.model import ConsoleView
from flodl_console.view.texts import cell_width, clean, fit, says
from flodl_console.view.tones import Glyph, Tone
from flodl_core.telemetry.records import EventKind, EventRecord

SEVERITIES: Final = ("info", "warn", "critical")
MAX_CAUSE_STEPS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which events an operator wants to see."""

    kinds: frozenset[EventKind] = frozenset()
    """Only these; all if empty."""
    min_severity: str = "info"
    """info, warn or critical: these and graver ones."""
    text: str = ""
    """Words that must all be in it: name, path, text, fix or who."""
    rank: int | None = None
    """Only those of one rank."""
    is_newest_first: bool = True
    unfolded: frozenset[int] = frozenset()
    """Numbers of the root causes whose consequences are shown."""
    is_all_unfolded: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRow:
    """One event as texts."""

    seq: int
    time: str
    """Time of day in UTC, `14:03:07`; at most 8 cells."""
    age: str
    """The run's age then, `2 h 07 m`, at most 10 cells."""
    kind: EventKind
    severity: str
    """`info`, `warn` or `critical`."""
    tone: Tone
    glyph: Glyph
    where: str
    """`run`, `blue`, `rank 3` or `rank 3 on blue`, at most 32 cells."""
    text: str
    """One sentence, at most 400 cells, without what other columns say."""
    fix: str
    """What to do about it, at most 240 cells; empty if nothing is known."""
    who: str
    """Who asked for it, at most 48 cells; empty if nobody."""
    count: int
    depth: int
    """0 for a root cause, 1 for a consequence under it."""
    consequences: int
    """How many events follow from this one."""
    is_folded: bool
    """Whether it has consequences that are not shown."""
    fold_text: str
    """`+3 follow`, at most 20 cells; empty without consequences."""
    rank: int | None
    """The rank to jump to; None if it is about none."""
    host: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsPanel:
    """The events that were asked for."""

    seqs: tuple[int, ...]
    """Every event that is listed, in order; the cursor follows one of these."""
    rows: tuple[EventRow, ...]
    """The asked part of `seqs`."""
    where_cells: int
    """Of the longest place of all known events, so that a list does not move as it scrolls."""
    first_row: int
    """Where `rows` begins in `seqs`."""
    total: int
    """Known events, without the query."""
    hidden: int
    """Events that match but are folded away."""
    summary: str
    """`12 of 240 events · 2 critical`, at most 78 cells."""
    lost_text: str
    """What is no longer known, at most 78 cells; empty if nothing was lost."""
    empty_text: str
    """What stands in the place of rows where there are none; empty otherwise."""


_KIND_LOOKS: Final = {
    EventKind.LIFECYCLE: (Glyph.INFO, Tone.INFO),
    EventKind.ADMISSION: (Glyph.OK, Tone.OK),
    EventKind.REFUSAL: (Glyph.WARN, Tone.WARN),
    EventKind.ALERT: (Glyph.WARN, Tone.WARN),
    EventKind.OPERATOR: (Glyph.PINNED, Tone.ACCENT),
}

_SEVERE: Final = {
    "critical": (Glyph.BAD, Tone.BAD),
    "warn": (Glyph.WARN, Tone.WARN),
}


def events_panel(
    view: ConsoleView,
    query: EventQuery,
    *,
    first_row: int = 0,
    max_rows: int | None = None,
) -> EventsPanel:
    """Return the events that were asked for, with the rows of a part of them.

    Args:
        view: of this moment.
        query: filter, order and what is unfolded.
        first_row: where the wanted part begins; clamped.
        max_rows: how many rows are made; all if None.
    """
    matching = [event for event in view.events if _passes(event, query)]
    groups = _grouped(matching, root_seqs(view.events))
    order = reversed(groups) if query.is_newest_first else iter(groups)
    listed_events: list[tuple[EventRecord, int, int]] = []
    hidden = 0
    for root, following in order:
        listed_events.append((root, 0, len(following)))
        if query.is_all_unfolded or root.seq in query.unfolded:
            listed_events.extend((one, 1, 0) for one in following)
        else:
            hidden += len(following)
    first = max(0, min(first_row, len(listed_events)))
    last = len(listed_events) if max_rows is None else first + max(0, max_rows)
    return EventsPanel(
        seqs=tuple(event.seq for event, _, _ in listed_events),
        rows=tuple(
            event_row(event, depth=depth, consequences=following, query=query)
            for event, depth, following in listed_events[first:last]
        ),
        where_cells=_longest_place(view.events),
        first_row=first,
        total=len(view.events),
        hidden=hidden,
        summary=_summary(view.events, matching, hidden),
        lost_text=_lost(view),
        empty_text="" if listed_events else _empty(view),
    )


def root_seqs(events: Sequence[EventRecord]) -> Mapping[int, int]:
    """Return the root cause of every event, itself where it has none that is still known."""
    causes = {event.seq: event.cause_seq for event in events}
    roots: dict[int, int] = {}
    for event in events:
        root = event.seq
        for _ in range(MAX_CAUSE_STEPS):
            cause = causes.get(root)
            if cause is None or cause not in causes or cause >= root:
                break
            root = cause
        roots[event.seq] = root
    return roots


def _grouped(
    matching: Sequence[EventRecord], roots: Mapping[int, int]
) -> list[tuple[EventRecord, list[EventRecord]]]:
    """Return root causes with their consequences, both in order of time.

    A consequence whose root does not match stands by itself.
    """
    groups: dict[int, tuple[EventRecord, list[EventRecord]]] = {}
    for event in matching:
        root = groups.get(roots[event.seq])
        if root is None:
            groups[event.seq] = (event, [])
        else:
            root[1].append(event)
    return list(groups.values())


def _passes(event: EventRecord, query: EventQuery) -> bool:
    if query.kinds and event.kind not in query.kinds:
        return False
    if _severity(event.severity) < _severity(query.min_severity):
        return False
    if query.rank is not None and event.rank != query.rank:
        return False
    words = query.text.casefold().split()
    return not words or _holds(event, words)


def _severity(word: str) -> int:
    return SEVERITIES.index(word) if word in SEVERITIES else 0


def _holds(event: EventRecord, words: Sequence[str]) -> bool:
    rank = "" if event.rank is None else f"rank {event.rank}"
    parts = (
        event.name,
        event.name.replace("_", " "),
        event.path,
        event.host or "",
        rank,
        event.text,
        event.fix,
        event.who or "",
        event.kind.value,
        event.severity,
    )
    text = " ".join(parts).casefold()
    return all(word in text for word in words)


def event_row(
    event: EventRecord, *, depth: int = 0, consequences: int = 0, query: EventQuery | None = None
) -> EventRow:
    """Return one event as texts.

    Args:
        event: as the run told it.
        depth: 1 if it stands under its root cause.
        consequences: how many events follow from it.
        query: tells whether those are shown; they are not if None.
    """
    glyph, tone = _SEVERE.get(event.severity, _KIND_LOOKS[event.kind])
    is_open = query is not None and (query.is_all_unfolded or event.seq in query.unfolded)
    times = f" (×{count(event.count)})" if event.count > 1 else ""
    sign = "-" if is_open else "+"
    return EventRow(
        seq=event.seq,
        time=clock_time(event.at),
        age=duration(event.uptime_s),
        kind=event.kind,
        severity=event.severity if event.severity in SEVERITIES else says(event.severity, 8),
        tone=tone,
        glyph=glyph,
        where=_place(event.rank, event.host),
        text=fit(clean(event.text or event.name.replace("_", " ")), 380) + times,
        fix=says(event.fix, 240),
        who=says(event.who or "", 48),
        count=event.count,
        depth=depth,
        consequences=consequences,
        is_folded=consequences > 0 and not is_open,
        fold_text=_fold_text(sign, consequences),
        rank=event.rank,
        host=event.host,
    )


def _longest_place(events: Sequence[EventRecord]) -> int:
    places = {(event.rank, event.host) for event in events}
    return max((cell_width(_place(rank, host)) for rank, host in places), default=0)


def _fold_text(sign: str, consequences: int) -> str:
    if not consequences:
        return ""
    return f"{sign}{count(consequences)} {'follows' if consequences == 1 else 'follow'}"


def _place(rank: int | None, host: str | None) -> str:
    if rank is None and not host:
        return "run"
    told = says(host or "", 16)
    if rank is None:
        return told
    return fit(f"rank {rank}{f' on {told}' if told else ''}", 32)


def _summary(events: Sequence[EventRecord], matching: Sequence[EventRecord], hidden: int) -> str:
    if not events:
        return "no events"
    critical = sum(event.severity == "critical" for event in matching)
    parts = [f"{count(len(matching))} of {plural(len(events), 'event')}"]
    parts += [f"{count(critical)} critical"] if critical else []
    parts += [f"{count(hidden)} folded"] if hidden else []
    return " · ".join(parts)


def _lost(view: ConsoleView) -> str:
    if view.events_lost:
        return f"{plural(view.events_lost, 'event')} were dropped by the run before they were read"
    older = view.events[0].seq - 1 if view.events else 0
    return f"{plural(older, 'older event')} no longer kept" if older > 0 else ""


def _empty(view: ConsoleView) -> str:
    if view.events:
        return "no event matches the filter"
    if view.document is None:
        return "no document has come yet"
    return "nothing has happened yet"
