"""One rank in full: its facts, its two signals, what it waits for, what happened to it.

What it is: the Rank screen's content in words and numbers.
What it is not: plots; `view.plots` makes those of one rank too.
Who drives it: the Rank screen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from flodl_console.view.events import EventRow, event_row
from flodl_console.view.facts import GONE, STATE_LOOKS, place_of
from flodl_console.view.formats import (
    ABSENT,
    age_of,
    count,
    finite,
    milliseconds,
    number,
    part_of,
    percent,
    rate,
    share_of_100,
    size,
    size_of,
)
from flodl_console.view.marks import UNMARKED, RankMark, mark_ranks
from flodl_console.view.model import ConsoleView
from flodl_console.view.rank_cells import LATE_PART, URGENT_PART, batches_of, look_of
from flodl_console.view.texts import clean, fit, says
from flodl_console.view.tones import Glyph, Tone
from flodl_console.view.waits import WaitRow, wait_rows
from flodl_core.telemetry.records import WindowRecord
from flodl_core.telemetry.state import RankState, StateDocument

MAX_TREND: Final = 240
MAX_RANK_EVENTS: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalGauge:
    """An age that is growing toward its ceiling."""

    label: str
    """`heartbeat` or `progress`."""
    text: str
    """`3.1 / 30 s`, at most 20 cells."""
    fraction: float | None
    """Age as a part of the ceiling, 0 to 1; None where one is not known."""
    outcome: str
    """What happens at the ceiling, at most 60 cells."""
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailRow:
    """One fact of a rank."""

    label: str
    """At most 16 cells."""
    text: str
    """With its unit, at most 60 cells."""
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class DetailGroup:
    """Facts that belong together."""

    title: str
    """At most 24 cells."""
    rows: tuple[DetailRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTrend:
    """The last values of one quantity, for a sparkline."""

    label: str
    """With the unit, at most 16 cells: `ms/batch`."""
    values: tuple[float | None, ...]
    """Oldest first, at most 240; None is a gap."""
    last: str
    """The newest with its unit, at most 16 cells."""
    span: str
    """Lowest to highest, at most 32 cells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankDetail:
    """One rank in full."""

    rank: int
    is_found: bool
    """False if the run has no such rank (now)."""
    title: str
    """`rank 2 on blue, cuda:0`, at most 76 cells."""
    state: str
    """The state as a word, at most 12 cells."""
    meaning: str
    """What that state means, at most 60 cells."""
    tone: Tone
    glyph: Glyph
    mark: RankMark
    note: str
    """What sets it apart and what follows, at most 120 cells; empty if nothing."""
    heartbeat: SignalGauge
    progress: SignalGauge
    groups: tuple[DetailGroup, ...]
    """Work, averaging, device."""
    trends: tuple[RankTrend, ...]
    """ms/batch, batches, weight, divergence."""
    waits: tuple[WaitRow, ...]
    events: tuple[EventRow, ...]
    """Newest first, at most 50."""
    previous_rank: int | None
    """The next lower rank that exists."""
    next_rank: int | None


def rank_detail(view: ConsoleView, rank: int) -> RankDetail:
    """Return everything about one rank; `is_found` is false where the run has no such rank."""
    document = view.document
    found = next((one for one in document.ranks if one.rank == rank), None) if document else None
    if document is None or found is None:
        return _absent(view, rank)
    marked = mark_ranks(view).get(rank, UNMARKED)
    glyph, tone = look_of(found, marked.mark)
    _, _, meaning = STATE_LOOKS[found.state]
    before, after = _neighbours(document, rank)
    return RankDetail(
        rank=rank,
        is_found=True,
        title=fit(f"{place_of(rank, found.host)}, {says(found.device, 16)}", 76),
        state=found.state.value,
        meaning=meaning,
        tone=tone,
        glyph=glyph,
        mark=marked.mark,
        note=fit(marked.note, 120),
        heartbeat=_heartbeat(found),
        progress=_progress(found),
        groups=(_work(found, document, note=marked.note), _averaging(found), _device(found)),
        trends=_trends(view.windows[-MAX_TREND:], rank),
        waits=tuple(row for row in wait_rows(document) if row.rank == rank),
        events=_events(view, rank),
        previous_rank=before,
        next_rank=after,
    )


def _absent(view: ConsoleView, rank: int) -> RankDetail:
    document = view.document
    before, after = _neighbours(document, rank) if document else (None, None)
    why = "the run has no such rank" if document and document.ranks else "there are no ranks yet"
    gauge = SignalGauge(label="", text=ABSENT, fraction=None, outcome="", tone=Tone.DIM)
    return RankDetail(
        rank=rank,
        is_found=False,
        title=f"rank {count(rank)}",
        state=ABSENT,
        meaning=why,
        tone=Tone.DIM,
        glyph=Glyph.NONE,
        mark=RankMark.NONE,
        note="",
        heartbeat=gauge,
        progress=gauge,
        groups=(),
        trends=(),
        waits=(),
        events=_events(view, rank),
        previous_rank=before,
        next_rank=after,
    )


def _neighbours(document: StateDocument, rank: int) -> tuple[int | None, int | None]:
    numbers = sorted(one.rank for one in document.ranks)
    below = [one for one in numbers if one < rank]
    above = [one for one in numbers if one > rank]
    return (below[-1] if below else None), (above[0] if above else None)


def _heartbeat(rank: RankState) -> SignalGauge:
    part = part_of(rank.heartbeat_age_s, rank.heartbeat_ceiling_s)
    return SignalGauge(
        label="heartbeat",
        text=age_of(rank.heartbeat_age_s, rank.heartbeat_ceiling_s),
        fraction=part,
        outcome=_over(rank) or "then it is lost, unless it burns CPU",
        tone=_age_tone(part),
    )


def _progress(rank: RankState) -> SignalGauge:
    part = part_of(rank.progress_age_s, rank.progress_ceiling_s)
    return SignalGauge(
        label="progress",
        text=age_of(rank.progress_age_s, rank.progress_ceiling_s),
        fraction=part,
        outcome=_over(rank) or ("then it is evicted" if part is not None else "it holds no work"),
        tone=_age_tone(part),
    )


def _over(rank: RankState) -> str:
    """Return why a rank's signals mean nothing any more; empty while it takes part."""
    if rank.state not in GONE:
        return ""
    return "it is waited for no more"


def _age_tone(part: float | None) -> Tone:
    if part is None:
        return Tone.DIM
    if part >= URGENT_PART:
        return Tone.BAD
    return Tone.WARN if part >= LATE_PART else Tone.OK


def _row(label: str, text: str, tone: Tone = Tone.INFO) -> DetailRow:
    return DetailRow(label=label, text=fit(text, 60), tone=Tone.DIM if text == ABSENT else tone)


def _work(rank: RankState, document: StateDocument, *, note: str) -> DetailGroup:
    is_gone = rank.state in GONE
    elche = document.elche
    counts = elche.batch_counts if elche else ()
    planned = count(counts[rank.rank]) if rank.rank < len(counts) and not is_gone else ABSENT
    is_anchor = elche is not None and elche.anchor_rank == rank.rank
    unit = " batches, the anchor" if is_anchor else " batches"
    speed = milliseconds(rank.ms_per_batch)
    rows = [
        _row("this window", f"{batches_of(rank)} batches"),
        _row("next window", planned if planned == ABSENT else planned + unit),
        _row("ms/batch", speed if speed == ABSENT else f"{speed} ms"),
        _row("samples/s", ABSENT if is_gone else rate(rank.throughput)),
        _row("all batches", count(rank.batch_count)),
        _row("trained", f"{count(rank.samples)} samples"),
        _row("share", f"{percent(rank.share)} of all trained"),
        _row("loss", number(rank.loss)),
    ]
    if rank.throttled:
        rows.append(_row("throttled", "yes: no other batch in this window", Tone.WARN))
    if rank.cause and clean(rank.cause) not in note:
        rows.append(_row("cause", says(rank.cause, 60), Tone.BAD))
    return DetailGroup(title="Work", rows=tuple(rows))


def _averaging(rank: RankState) -> DetailGroup:
    return DetailGroup(
        title="Averaging",
        rows=(
            _row("weight", percent(rank.weight)),
            _row("divergence", number(rank.divergence, digits=3)),
            _row("phase", says(rank.phase or "", 20) or ABSENT),
        ),
    )


def _device(rank: RankState) -> DetailGroup:
    used = rank.resources
    rows = [_row("device", says(rank.device, 16))]
    if rank.gpu:
        rows.append(_row("card", says(rank.gpu, 48)))
    if used is not None:
        rows += [
            _row("card use", share_of_100(used.gpu_percent)),
            _row("card memory", size_of(used.vram_used_bytes, used.vram_total_bytes)),
            _row("CPU", share_of_100(used.cpu_percent)),
            _row("RAM", size(used.ram_used_bytes)),
        ]
    return DetailGroup(title="Device", rows=tuple(rows))


def _trends(windows: Sequence[WindowRecord], rank: int) -> tuple[RankTrend, ...]:
    return (
        _trend("ms/batch", [_at(one.ms_per_batch, rank) for one in windows], milliseconds),
        _trend("batches", [_at(one.batch_counts, rank) for one in windows], _whole),
        _trend("weight", [_at(one.weights, rank) for one in windows], percent),
        _trend("divergence", [_at(one.divergences, rank) for one in windows], _three),
    )


def _at(values: Sequence[float | None], rank: int) -> float | None:
    return finite(values[rank]) if rank < len(values) else None


def _whole(value: float | None) -> str:
    return count(None if value is None else int(value))


def _three(value: float | None) -> str:
    return number(value, digits=3)


def _trend(
    label: str, values: list[float | None], show: Callable[[float | None], str]
) -> RankTrend:
    known = [value for value in values if value is not None]
    span = f"{show(min(known))} to {show(max(known))}" if known else ABSENT
    return RankTrend(
        label=label,
        values=tuple(values),
        last=fit(show(known[-1] if known else None), 16),
        span=fit(span, 32),
    )


def _events(view: ConsoleView, rank: int) -> tuple[EventRow, ...]:
    own = [event for event in view.events if event.rank == rank]
    return tuple(event_row(event) for event in reversed(own[-MAX_RANK_EVENTS:]))
