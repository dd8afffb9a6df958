"""Who is missing, who is slow, and what every wait will end in.

What it is: the one-line verdict of a run, and the rows behind it.
What it is not: enforcement; the run itself acts at its ceilings.
Who drives it: every screen shows the verdict; Training and Rank show the rows.

The gravest comes first: how it ended, the wait that ends next, who is gone, who is late
or slow, and only then that all is well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from flodl_console.view.ending import ending_words
from flodl_console.view.facts import (
    alive_ranks,
    host_names,
    is_gone,
    is_over,
    lost_ranks,
    place_of,
    starting_ranks,
    unacknowledged,
)
from flodl_console.view.formats import age_at, age_of, count, duration, finite, part_of, plural
from flodl_console.view.marks import Marked, RankMark, mark_ranks, times
from flodl_console.view.model import ConsoleView
from flodl_console.view.outlook import window_outlook
from flodl_console.view.records import LinkState
from flodl_console.view.texts import cell_width, clean, fit, listed, says
from flodl_console.view.tones import Glyph, Line, Phrase, Tone
from flodl_core.ids import ClusterPhase
from flodl_core.telemetry.records import EventKind, EventRecord
from flodl_core.telemetry.state import RankState, StateDocument, WaitState

SHORT_CELLS: Final = 76
TEXT_CELLS: Final = 160
URGENT_PART: Final = 0.5
"""From this part of its ceiling on, a wait is bad."""
START_PATIENCE_PART: Final = 0.25
"""While ranks start, a wait of the run is usual up to this part of its ceiling."""
ALERT_SHOWN_S: Final = 120.0
"""An alert that is younger belongs to the verdict."""
_LOSSES: Final = frozenset({"rank_lost", "host_lost"})


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
        _aged(view, _judge(view, document, waits=waits, marks=marks)),
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
    view: ConsoleView,
    document: StateDocument,
    *,
    waits: tuple[WaitRow, ...],
    marks: Mapping[int, Marked],
) -> _Finding:
    if is_gone(view):
        return _gone(document)
    if is_over(document):
        tone, text, short = ending_words(document)
        return _Finding(tone, text, short)
    if document.phase in (ClusterPhase.WAITING, ClusterPhase.STAGING):
        outlook = window_outlook(document)
        return _Finding(outlook.tone, outlook.text, outlook.short)
    grave = next((row for row in waits if row.tone in (Tone.WARN, Tone.BAD)), None)
    if grave is not None:
        return _told_wait(document, grave, more=len(waits) - 1)
    if document.phase is ClusterPhase.FORMING:
        return _forming(document, waits)
    stop = _stop_asked(view.events, document)
    return stop or _progressing(document, waits=waits, marks=marks)


def _gone(document: StateDocument) -> _Finding:
    """Return what is left of a run that told of no end; the line above it says why."""
    saved = document.checkpoint
    version = None if saved is None else saved.version
    if saved is None or saved.path is None:
        kept = "nothing was saved"
    else:
        kept = "its last save remains" if version is None else f"version {count(version)} is saved"
    head = "the run is gone, nothing trains any more"
    text = f"{head}; {kept}; what is shown is the last that was heard of it"
    return _Finding(Tone.BAD, text, f"{head}; {kept}")


_SHORT_OUTCOMES: Final = {
    "the last commit is saved and the run ends": "save and end",
    "it is held busy until its progress ceiling": "held until its progress ceiling",
    "the run ends with what is saved": "the run ends",
}


def _told_wait(document: StateDocument, row: WaitRow, *, more: int) -> _Finding:
    left = len(alive_ranks(document)) - 1
    others = f"  (+{plural(more, 'wait')})" if more > 0 else ""
    ends_rank = row.rank is not None and row.outcome in ("it is lost", "it is evicted")
    goes_on = f" and {plural(left, 'rank')} go on" if ends_rank and left > 0 else ""
    late = unacknowledged(document) if row.rank is None and row.who == "the run" else ()
    names = listed([place_of(rank.rank, rank.host) for rank in late], 36)
    who = f"averaging waits for {names}" if late else f"{row.who}: {row.phase}"
    text = f"{row.who}: {row.phase}, {row.age}, then {row.outcome}{goes_on}{others}"
    tail = f", {row.age} → {_SHORT_OUTCOMES.get(row.outcome, row.outcome)}"
    short = f"{fit(who, max(24, SHORT_CELLS - cell_width(tail)))}{tail}"
    rank = row.rank if row.rank is not None or not late else late[0].rank
    return _Finding(row.tone, text, short, rank)


def _forming(document: StateDocument, waits: tuple[WaitRow, ...]) -> _Finding:
    ranks = plural(document.joined_ranks, "rank")
    hosts = plural(document.joined_hosts, "host")
    text = f"forming: {ranks} on {hosts} start and meet"
    if waits:
        row = waits[0]
        told = f"{text}; {row.phase}, {row.age}, then {row.outcome}"
        return _Finding(Tone.INFO, told, f"forming: {fit(row.phase, 40)}, {row.age}")
    return _Finding(Tone.INFO, f"{text}; the window is closed, no host can join", text)


def _stop_asked(events: Sequence[EventRecord], document: StateDocument) -> _Finding | None:
    asked = next(
        (one for one in reversed(events) if one.kind is EventKind.OPERATOR and one.name == "stop"),
        None,
    )
    if asked is None:
        return None
    ago = duration(document.run.uptime_s - asked.uptime_s)
    who = says(asked.who or "somebody", 40)
    text = f"stopping: asked {ago} ago by {who}; then the run ends"
    return _Finding(Tone.WARN, f"{text}: {clean(asked.text)}", text)


def _progressing(
    document: StateDocument, *, waits: tuple[WaitRow, ...], marks: Mapping[int, Marked]
) -> _Finding:
    alive, lost = alive_ranks(document), lost_ranks(document)
    marked = [(rank, marks[rank.rank]) for rank in alive]
    for mark in (RankMark.LATE, RankMark.SLOW):
        found = [(rank, one) for rank, one in marked if one.mark is mark]
        if found:
            return _told_mark(found, mark, gone=len(lost))
    alert = _recent_alert(document)
    if alert is not None:
        return alert
    if lost:
        return _told_lost(document, lost, alive=len(alive))
    if waits:
        return _told_wait(document, waits[0], more=len(waits) - 1)
    return _told_well(document, alive=len(alive))


def _told_well(document: StateDocument, *, alive: int) -> _Finding:
    total = len(document.ranks)
    saving = document.checkpoint is not None and document.checkpoint.saving
    starting = len(starting_ranks(document))
    if starting:
        text = f"starting: {total - starting} of {plural(total, 'rank')} are there"
        return _Finding(Tone.INFO, text, text)
    if alive < total:
        text = f"ending: {total - alive} of {plural(total, 'rank')} are done"
    else:
        verb = "trains" if total == 1 else "train"
        text = f"all {plural(total, 'rank')} on {plural(len(host_names(document)), 'host')} {verb}"
    text += ", a checkpoint is being written" if saving else ""
    told = f"{text}; nobody is missing, late or slow"
    return _Finding(Tone.OK, told, text if saving else told)


def _recent_alert(document: StateDocument) -> _Finding | None:
    """Return the newest alert, if it is young and says more than that a rank is lost."""
    told = [one for one in document.alerts if one.alert_class not in _LOSSES]
    if not told:
        return None
    newest = told[-1]
    age_s = age_at(document.run.uptime_s, newest.uptime_s)
    if age_s is None or age_s > ALERT_SHOWN_S:
        return None
    count_text = f" (×{count(newest.count)})" if newest.count > 1 else ""
    head = f"{says(newest.alert_class.replace('_', ' '), 24)}{count_text} {duration(age_s)} ago"
    text = f"{head}: {clean(newest.detail)}"
    tone = Tone.BAD if newest.severity == "critical" else Tone.WARN
    return _Finding(tone, text, text)


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
    verb = "goes" if alive == 1 else "go"
    head = f"{alive} of {plural(total, 'rank')} {verb} on; lost: {names}"
    follows = "their samples go to the others" if alive else "the run ends"
    cause = clean(first.cause)
    text = f"{head}; {follows}{f'; {cause}' if cause else ''}"
    return _Finding(Tone.WARN if alive else Tone.BAD, text, head, first.rank)


def wait_rows(document: StateDocument) -> tuple[WaitRow, ...]:
    """Return the waits of a document, the next to reach its ceiling first."""
    usual_s: dict[int | None, float] = {
        rank.rank: (finite(rank.ms_per_batch) or 0.0) / 1_000 for rank in document.ranks
    }
    hosts: dict[int | None, str] = {rank.rank: rank.host for rank in document.ranks}
    patience = START_PATIENCE_PART if starting_ranks(document) else 0.0
    rows = [
        _wait_row(
            wait,
            host=wait.host or hosts.get(wait.rank),
            usual_s=usual_s.get(wait.rank, 0.0),
            patience=patience if wait.rank is None else 0.0,
        )
        for wait in document.waits
    ]
    return tuple(sorted(rows, key=_urgency))


def _urgency(row: WaitRow) -> tuple[bool, bool, float]:
    mild = row.tone is Tone.INFO
    return mild, row.remaining_s is None, row.remaining_s or 0.0


def _wait_row(wait: WaitState, *, host: str | None, usual_s: float, patience: float) -> WaitRow:
    age, ceiling = finite(wait.age_s), finite(wait.ceiling_s)
    fraction = part_of(age, ceiling)
    return WaitRow(
        who=place_of(wait.rank, host),
        phase=says(wait.phase, 100),
        age=age_of(age, ceiling),
        outcome=says(wait.outcome, 80),
        remaining_s=None if age is None or ceiling is None else max(0.0, ceiling - age),
        fraction=fraction,
        tone=_wait_tone(age or 0.0, fraction or 0.0, usual_s=usual_s, patience=patience),
        rank=wait.rank,
    )


def _wait_tone(age_s: float, fraction: float, *, usual_s: float, patience: float) -> Tone:
    if fraction >= URGENT_PART:
        return Tone.BAD
    return Tone.INFO if age_s < 3 * usual_s or fraction < patience else Tone.WARN


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
