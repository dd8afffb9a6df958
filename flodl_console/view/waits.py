"""Who is missing, who is slow, and what every wait will end in.

What it is: the one-line verdict of a run, and the rows behind it.
What it is not: enforcement; the run itself acts at its ceilings.
Who drives it: every screen shows the verdict; Training and Rank show the rows.

The gravest comes first: how it ended, the wait that ends next, who is gone, who is late
or slow, and only then that all is well.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from flodl_console.view.ending import ending_words
from flodl_console.view.facts import alive_ranks, host_names, is_over, lost_ranks, place_of
from flodl_console.view.formats import age_of, duration, finite, part_of, plural
from flodl_console.view.marks import Marked, RankMark, mark_ranks, times
from flodl_console.view.model import ConsoleView
from flodl_console.view.outlook import window_outlook
from flodl_console.view.records import LinkState
from flodl_console.view.texts import cell_width, clean, fit, listed, says
from flodl_console.view.tones import Glyph, Line, Phrase, Tone
from flodl_core.ids import ClusterPhase
from flodl_core.telemetry.state import RankState, StateDocument, WaitState

SHORT_CELLS: Final = 76
TEXT_CELLS: Final = 160
URGENT_PART: Final = 0.5
"""From this part of its ceiling on, a wait is bad."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitRow:
    """Somebody waits."""

    who: str
    """`rank 2 on blue` or `the run`, at most 40 cells."""
    phase: str
    """In what, at most 100 cells."""
    age: str
    """Age and ceiling, `12.1 / 30 s`, at most 20 cells."""
    outcome: str
    """What happens at the ceiling, at most 80 cells."""
    remaining_s: float | None
    """Until then; None without a ceiling."""
    fraction: float | None
    """Age as a part of the ceiling, 0 to 1."""
    tone: Tone
    rank: int | None
    """The rank to jump to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunVerdict:
    """What an operator must know first."""

    tone: Tone
    glyph: Glyph
    text: str
    """Who, where, how long, and what happens next; at most 160 cells."""
    short: str
    """The same in at most 76 cells, so that it fits beside a glyph at 80 columns."""
    line: Line
    """Glyph and `short` as one line of at most 78 cells."""
    rank: int | None
    """The rank that it is about, to jump to."""
    waits: tuple[WaitRow, ...]
    """Every wait that the run names, the next to end first."""
    missing: tuple[str, ...]
    """`rank 2 on blue`, or `host blue` before the world has formed; each at most 40 cells."""
    slow: tuple[str, ...]
    """`rank 3 on blue: ×10`, each at most 48 cells."""


@dataclass(frozen=True, slots=True)
class _Finding:
    tone: Tone
    text: str
    short: str
    rank: int | None = None


def run_verdict(view: ConsoleView) -> RunVerdict:
    """Return the verdict of the newest document, with its age where it is not the present."""
    document = view.document
    if document is None:
        return _worded(_nothing_known(view), waits=(), missing=(), slow=())
    marks = mark_ranks(view)
    waits = wait_rows(document)
    return _worded(
        _aged(view, _judge(document, waits=waits, marks=marks)),
        waits=waits,
        missing=_missing(document),
        slow=_slow(document, marks),
    )


def _worded(
    finding: _Finding,
    *,
    waits: tuple[WaitRow, ...],
    missing: tuple[str, ...],
    slow: tuple[str, ...],
) -> RunVerdict:
    glyph = _GLYPHS[finding.tone]
    short = fit(finding.short, SHORT_CELLS)
    return RunVerdict(
        tone=finding.tone,
        glyph=glyph,
        text=fit(finding.text, TEXT_CELLS),
        short=short,
        line=(Phrase(f"{glyph} ", finding.tone), Phrase(short, finding.tone)),
        rank=finding.rank,
        waits=waits,
        missing=missing,
        slow=slow,
    )


_GLYPHS: Final = {
    Tone.OK: Glyph.OK,
    Tone.INFO: Glyph.WAITING,
    Tone.ACCENT: Glyph.PAUSED,
    Tone.WARN: Glyph.WARN,
    Tone.BAD: Glyph.BAD,
    Tone.DIM: Glyph.INFO,
}


def _nothing_known(view: ConsoleView) -> _Finding:
    detail = clean(view.link_detail)
    if view.link is LinkState.LOADING:
        where = f" from {says(view.label, 40)}" if view.label else ""
        return _Finding(Tone.DIM, f"nothing is known yet{where}", f"nothing is known yet{where}")
    text = f"nothing is known of the run{': ' if detail else ''}{detail}"
    return _Finding(Tone.BAD, text, text)


def _aged(view: ConsoleView, finding: _Finding) -> _Finding:
    if view.is_current or view.link is LinkState.ENDED:
        return finding
    prefix = f"{duration(view.age_s)} ago: "
    tone = Tone.WARN if finding.tone is Tone.OK else finding.tone
    return replace(finding, tone=tone, text=prefix + finding.text, short=prefix + finding.short)


def _judge(
    document: StateDocument, *, waits: tuple[WaitRow, ...], marks: Mapping[int, Marked]
) -> _Finding:
    if is_over(document):
        tone, text = ending_words(document)
        return _Finding(tone, text, text)
    if document.phase in (ClusterPhase.WAITING, ClusterPhase.STAGING):
        outlook = window_outlook(document)
        return _Finding(outlook.tone, outlook.text, outlook.short)
    grave = next((row for row in waits if row.tone in (Tone.WARN, Tone.BAD)), None)
    if grave is not None:
        return _told_wait(grave, more=len(waits) - 1, left=len(alive_ranks(document)) - 1)
    if document.phase is ClusterPhase.FORMING:
        return _forming(document, waits)
    return _progressing(document, waits=waits, marks=marks)


def _told_wait(row: WaitRow, *, more: int, left: int) -> _Finding:
    others = f"  (+{plural(more, 'wait')})" if more > 0 else ""
    ends_rank = row.rank is not None and row.outcome in ("it is lost", "it is evicted")
    goes_on = f" and {plural(left, 'rank')} go on" if ends_rank and left > 0 else ""
    text = f"{row.who}: {row.phase}, {row.age}, then {row.outcome}{goes_on}{others}"
    short = f"{row.who}: {row.phase}, {row.age} → {row.outcome}"
    if cell_width(short) > SHORT_CELLS:
        kept = f", {row.age} → {row.outcome}"
        room = SHORT_CELLS - cell_width(row.who) - 2 - cell_width(kept)
        short = f"{row.who}: {fit(row.phase, max(12, room))}{kept}"
    return _Finding(row.tone, text, short, row.rank)


def _forming(document: StateDocument, waits: tuple[WaitRow, ...]) -> _Finding:
    ranks = plural(document.joined_ranks, "rank")
    hosts = plural(document.joined_hosts, "host")
    text = f"forming: {ranks} on {hosts} start and meet"
    if waits:
        row = waits[0]
        told = f"{text}; {row.phase}, {row.age}, then {row.outcome}"
        return _Finding(Tone.INFO, told, f"forming: {fit(row.phase, 40)}, {row.age}")
    return _Finding(Tone.INFO, f"{text}; the window is closed, no host can join", text)


def _progressing(
    document: StateDocument, *, waits: tuple[WaitRow, ...], marks: Mapping[int, Marked]
) -> _Finding:
    alive, lost = alive_ranks(document), lost_ranks(document)
    marked = [(rank, marks[rank.rank]) for rank in alive]
    for mark in (RankMark.LATE, RankMark.SLOW):
        found = [(rank, one) for rank, one in marked if one.mark is mark]
        if found:
            return _told_mark(found, mark, gone=len(lost))
    if lost:
        return _told_lost(document, lost, alive=len(alive))
    if waits:
        return _told_wait(waits[0], more=len(waits) - 1, left=len(alive) - 1)
    who = f"all {plural(len(alive), 'rank')} on {plural(len(host_names(document)), 'host')}"
    saving = document.checkpoint is not None and document.checkpoint.saving
    doing = "train, a checkpoint is being written" if saving else "train"
    text = f"{who} {doing}; nobody is missing, late or slow"
    return _Finding(Tone.OK, text, text)


def _told_mark(found: list[tuple[RankState, Marked]], mark: RankMark, *, gone: int) -> _Finding:
    rank, marked = max(found, key=lambda pair: (pair[1].ratio or 0.0, -pair[0].rank))
    who = place_of(rank.rank, rank.host)
    others = f" (+{len(found) - 1} {mark.value})" if len(found) > 1 else ""
    lost = f"; {plural(gone, 'rank')} lost before" if gone else ""
    word = "is slow: " if mark is RankMark.SLOW else "is late: "
    follows = "; its share shrinks until it keeps up" if mark is RankMark.SLOW else ""
    text = f"{who} {word}{marked.note}{others}{follows}{lost}"
    return _Finding(Tone.WARN, text, f"{who} {word}{marked.note}{others}", rank.rank)


def _told_lost(document: StateDocument, lost: tuple[RankState, ...], *, alive: int) -> _Finding:
    total = len(document.ranks)
    first = lost[0]
    names = listed([place_of(rank.rank, rank.host) for rank in lost], 40)
    head = f"{alive} of {plural(total, 'rank')} go on; lost: {names}"
    cause = clean(first.cause)
    text = f"{head}; their samples go to the others{f'; {cause}' if cause else ''}"
    return _Finding(Tone.WARN, text, head, first.rank)


def wait_rows(document: StateDocument) -> tuple[WaitRow, ...]:
    """Return the waits of a document, the next to reach its ceiling first."""
    usual_s: dict[int | None, float] = {}
    usual_s |= {rank.rank: (finite(rank.ms_per_batch) or 0.0) / 1_000 for rank in document.ranks}
    rows = [_wait_row(wait, usual_s.get(wait.rank, 0.0)) for wait in document.waits]
    return tuple(sorted(rows, key=_urgency))


def _urgency(row: WaitRow) -> tuple[bool, bool, float]:
    mild = row.tone is Tone.INFO
    return mild, row.remaining_s is None, row.remaining_s or 0.0


def _wait_row(wait: WaitState, usual_s: float) -> WaitRow:
    age, ceiling = finite(wait.age_s), finite(wait.ceiling_s)
    fraction = part_of(age, ceiling)
    return WaitRow(
        who=place_of(wait.rank, wait.host),
        phase=says(wait.phase, 100),
        age=age_of(age, ceiling),
        outcome=says(wait.outcome, 80),
        remaining_s=None if age is None or ceiling is None else max(0.0, ceiling - age),
        fraction=fraction,
        tone=_wait_tone(age or 0.0, fraction or 0.0, usual_s=usual_s),
        rank=wait.rank,
    )


def _wait_tone(age_s: float, fraction: float, *, usual_s: float) -> Tone:
    if fraction >= URGENT_PART:
        return Tone.BAD
    return Tone.INFO if age_s < 3 * usual_s else Tone.WARN


def _missing(document: StateDocument) -> tuple[str, ...]:
    gone = [place_of(rank.rank, rank.host) for rank in lost_ranks(document)]
    if document.ranks:
        return tuple(gone)
    return tuple(place_of(None, host) for host in document.expected_hosts)


def _slow(document: StateDocument, marks: Mapping[int, Marked]) -> tuple[str, ...]:
    return tuple(
        f"{place_of(rank.rank, rank.host)}: {times(marked.ratio)}"
        for rank in document.ranks
        if (marked := marks[rank.rank]).ratio is not None
    )
