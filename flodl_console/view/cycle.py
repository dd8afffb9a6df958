"""The cycle panel: where the averaging stands, and how long it may.

What it is: Idle or Pending with the pending time against the stall ceiling.
What it is not: the cadence between two averages; that is `view.elche`.
Who drives it: the Training screen.
"""

from dataclasses import dataclass

from flodl_console.view.facts import place_of, unacknowledged
from flodl_console.view.formats import (
    ABSENT,
    age_of,
    count,
    finite,
    part_of,
    percent,
    size,
    span_ms,
)
from flodl_console.view.model import ConsoleView
from flodl_console.view.texts import fit, joined, listed, says
from flodl_console.view.tones import Glyph, Line, Phrase, Tone
from flodl_core.telemetry.state import ElcheState, ReduceState, StateDocument

SUMMARY_CELLS = 78
STALL_OUTCOME = "the last commit is saved and the run ends"
WARN_PART = 0.1
BAD_PART = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclePanel:
    """Where the averaging stands."""

    is_known: bool
    """False before the world has formed."""
    is_pending: bool
    word: str
    """`Idle`, `Pending` or `–`."""
    tone: Tone
    glyph: Glyph
    cycle: str
    """`cycle 41` or `no cycle yet`, at most 20 cells."""
    version: str
    """`version 40`, at most 20 cells: commits so far."""
    gauge: float | None
    """Pending time as a part of the stall ceiling, 0 to 1; None while idle."""
    pending: str
    """`12.1 / 300 s`, at most 20 cells."""
    outcome: str
    """What happens at the ceiling, at most 100 cells; empty while idle."""
    awaited: str
    """`waits for rank 2 (blue)`, at most 60 cells; empty if nobody is known to be missing."""
    last_sync: str
    """`42 ms`, at most 12 cells."""
    last_outcome: str
    """`committed`, at most 16 cells."""
    last_tone: Tone
    overhead: str
    """`3.1 % of the window, target 5 %`, at most 40 cells."""
    overhead_tone: Tone
    volume: str
    """`12.3 MiB by cpu`, at most 24 cells."""
    lines: tuple[tuple[str, Phrase], ...]
    """Label and value of each fact, labels at most 12 cells, values at most 60."""
    summary: Line
    """All of it in one line of at most 78 cells."""


def cycle_panel(view: ConsoleView) -> CyclePanel:
    """Return the cycle panel; its designed empty state before the world has formed."""
    document = view.document
    if document is None or document.reduce is None:
        return _UNKNOWN
    reduce = document.reduce
    is_pending = reduce.state == "pending"
    part = part_of(reduce.pending_s, reduce.stall_ceiling_s) if is_pending else None
    tone = _tone(part, is_pending=is_pending)
    pending = age_of(reduce.pending_s, reduce.stall_ceiling_s) if is_pending else ABSENT
    has_ceiling = is_pending and reduce.stall_ceiling_s is not None
    outcome, awaited = (
        STALL_OUTCOME if has_ceiling else "",
        _awaited(document) if is_pending else "",
    )
    last_outcome, last_tone = _last(reduce)
    overhead, overhead_tone = overhead_of(document.elche)
    cycle = f"cycle {count(reduce.cycle)}" if reduce.cycle >= 0 else "no cycle yet"
    version = f"version {count(reduce.version)}"
    word = "Pending" if is_pending else "Idle"
    glyph = Glyph.REDUCING if is_pending else Glyph.WAITING
    last_sync = span_ms(reduce.last_sync_ms)
    last = Phrase(f"{last_sync}, {last_outcome}", last_tone)
    volume = f"{size(reduce.bytes)} by {says(reduce.backend, 8)}"
    lines = (
        ("state", Phrase(f"{word}  {pending}" if is_pending else word, tone)),
        ("then", Phrase(outcome or ABSENT, Tone.INFO if outcome else Tone.DIM)),
        (
            "waits for",
            Phrase(
                awaited.removeprefix("waits for ") or ABSENT, Tone.INFO if awaited else Tone.DIM
            ),
        ),
        ("cycle", Phrase(f"{cycle}, {version}", Tone.INFO)),
        ("last sync", last),
        ("overhead", Phrase(overhead, overhead_tone)),
        ("volume", Phrase(volume, Tone.DIM)),
    )
    head = _head(reduce, cycle, pending=pending, is_long=tone is not Tone.INFO)
    return CyclePanel(
        is_known=True,
        is_pending=is_pending,
        word=word,
        tone=tone,
        glyph=glyph,
        cycle=cycle,
        version=version,
        gauge=part,
        pending=pending,
        outcome=outcome,
        awaited=awaited,
        last_sync=last_sync,
        last_outcome=last_outcome,
        last_tone=last_tone,
        overhead=overhead,
        overhead_tone=overhead_tone,
        volume=volume,
        lines=lines,
        summary=joined(
            [
                (1, Phrase(f"{glyph} {head}", tone)),
                (2, Phrase(awaited, Tone.WARN)),
                (3, Phrase(f"last {last.text}" if reduce.last_outcome else "", last_tone)),
                (4, Phrase(_short_overhead(document.elche), overhead_tone)),
                (5, Phrase(version, Tone.DIM)),
            ],
            SUMMARY_CELLS,
        ),
    )


_UNKNOWN = CyclePanel(
    is_known=False,
    is_pending=False,
    word=ABSENT,
    tone=Tone.DIM,
    glyph=Glyph.NONE,
    cycle=ABSENT,
    version=ABSENT,
    gauge=None,
    pending=ABSENT,
    outcome="",
    awaited="",
    last_sync=ABSENT,
    last_outcome=ABSENT,
    last_tone=Tone.DIM,
    overhead=ABSENT,
    overhead_tone=Tone.DIM,
    volume=ABSENT,
    lines=(("state", Phrase("no world yet: nothing is averaged", Tone.DIM)),),
    summary=(Phrase("no cycle yet: the world has not formed", Tone.DIM),),
)


def overhead_of(elche: ElcheState | None) -> tuple[str, Tone]:
    """Return averaging's part of a window against its target; at most 40 cells."""
    if elche is None or finite(elche.overhead) is None:
        return ABSENT, Tone.DIM
    if finite(elche.overhead_target) is None:
        return f"{percent(elche.overhead)} of the window", Tone.INFO
    target = elche.overhead_target or 0.0
    is_over = (elche.overhead or 0.0) > target
    text = f"{percent(elche.overhead)} of the window, target {percent(target)}"
    return text, Tone.WARN if is_over else Tone.OK


def _head(reduce: ReduceState, cycle: str, *, pending: str, is_long: bool) -> str:
    """Return the cycle in a few words; what ends a wait is said once the wait is long."""
    if reduce.state != "pending":
        return f"{cycle} under way" if reduce.cycle >= 0 else cycle
    return f"{cycle} averages, {pending}{' → save and end' if is_long else ''}"


def _short_overhead(elche: ElcheState | None) -> str:
    known = None if elche is None else finite(elche.overhead)
    return "" if known is None else f"overhead {percent(known)}"


def _tone(part: float | None, *, is_pending: bool) -> Tone:
    if not is_pending or part is None or part < WARN_PART:
        return Tone.INFO if is_pending else Tone.OK
    return Tone.BAD if part >= BAD_PART else Tone.WARN


def _last(reduce: ReduceState) -> tuple[str, Tone]:
    if reduce.last_outcome is None:
        return ABSENT, Tone.DIM
    tone = {"committed": Tone.OK, "failed": Tone.BAD}.get(reduce.last_outcome, Tone.WARN)
    return says(reduce.last_outcome, 16), tone


def _awaited(document: StateDocument) -> str:
    late = unacknowledged(document)
    if not late:
        return ""
    return fit(f"waits for {listed([place_of(one.rank, one.host) for one in late], 46)}", 60)
