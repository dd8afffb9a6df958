"""The ElChe panel: who does how many batches, and why.

What it is: the cadence's phase, anchor, counts and guard, with the reason it gives itself.
What it is not: the counts' history as a plot; `view.plots` makes that.
Who drives it: the Training screen.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flodl_console.view.cycle import overhead_of
from flodl_console.view.facts import MAX_HOST_CELLS, place_of
from flodl_console.view.formats import ABSENT, count, percent, plural
from flodl_console.view.model import ConsoleView
from flodl_console.view.texts import fit, joined, listed, says
from flodl_console.view.tones import Line, Phrase, Tone
from flodl_core.telemetry.state import ElcheState, StateDocument

SUMMARY_CELLS = 78
MAX_COUNT_CHARS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class CountRow:
    """The batches of one rank between two averages."""

    rank: int
    host: str
    """At most 24 cells."""
    count: int
    """0 for a rank that is gone."""
    fraction: float
    """Of the largest count, 0 to 1."""
    is_anchor: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ElchePanel:
    """Who does how many batches, and why."""

    is_known: bool
    """False before the world has formed."""
    is_applicable: bool
    """False in Sync, where everybody does one batch between two averages."""
    phase: str
    """`probe: measuring`, at most 40 cells."""
    phase_tone: Tone
    anchor: str
    """`10 batches of rank 2 (blue)`, at most 48 cells."""
    counts: tuple[CountRow, ...]
    """By rank."""
    counts_text: str
    """`60 60 5 5`, at most 60 cells, the rest counted."""
    window_batches: int
    """Sum of the counts."""
    overhead: str
    """`3.1 % of the window, target 5 %`, at most 40 cells."""
    growth: str
    """Whether windows may grow, in words, at most 60 cells."""
    guard: str
    """`level: stable`, at most 40 cells."""
    guard_tone: Tone
    reason: str
    """One sentence: why the counts are what they are, at most 240 cells."""
    lines: tuple[tuple[str, Phrase], ...]
    """Label and value of each fact, labels at most 12 cells; the reason is not among them."""
    summary: Line
    """All of it in one line of at most 78 cells."""


_PHASES = {
    "probe": ("probe: measuring who is how fast", Tone.INFO),
    "warmup": ("warmup: first windows by speed", Tone.INFO),
    "stable": ("stable: counts follow the speeds", Tone.OK),
    "mature": ("mature: long measured", Tone.OK),
    "inapplicable": ("not in this mode", Tone.DIM),
}


def elche_panel(view: ConsoleView) -> ElchePanel:
    """Return the ElChe panel; its designed empty state before the world has formed."""
    document = view.document
    if document is None or document.elche is None:
        return _UNKNOWN
    elche = document.elche
    is_applicable = elche.phase != "inapplicable"
    phase, phase_tone = _PHASES.get(elche.phase, (says(elche.phase, 40), Tone.INFO))
    counts_text = _counts_text(elche.batch_counts, 60)
    anchor = _anchor(document, elche) if is_applicable else "every rank does 1 batch"
    overhead, overhead_tone = overhead_of(elche)
    growth = _growth(elche, is_applicable=is_applicable)
    guard, guard_tone = _guard(elche)
    lines = (
        ("phase", Phrase(phase, phase_tone)),
        ("anchor", Phrase(anchor, Tone.INFO)),
        ("counts", Phrase(counts_text, Tone.INFO)),
        ("overhead", Phrase(overhead, overhead_tone)),
        ("growth", Phrase(growth, Tone.INFO)),
        ("guard", Phrase(guard, guard_tone)),
    )
    return ElchePanel(
        is_known=True,
        is_applicable=is_applicable,
        phase=phase,
        phase_tone=phase_tone,
        anchor=anchor,
        counts=_count_rows(document, elche),
        counts_text=counts_text,
        window_batches=sum(elche.batch_counts),
        overhead=overhead,
        growth=growth,
        guard=guard,
        guard_tone=guard_tone,
        reason=says(elche.reason, 240),
        lines=lines,
        summary=_summary(elche, guard_tone, is_applicable=is_applicable),
    )


_UNKNOWN = ElchePanel(
    is_known=False,
    is_applicable=False,
    phase=ABSENT,
    phase_tone=Tone.DIM,
    anchor=ABSENT,
    counts=(),
    counts_text=ABSENT,
    window_batches=0,
    overhead=ABSENT,
    growth=ABSENT,
    guard=ABSENT,
    guard_tone=Tone.DIM,
    reason="",
    lines=(("phase", Phrase("no world yet: nothing is measured", Tone.DIM)),),
    summary=(Phrase("no cadence yet: the world has not formed", Tone.DIM),),
)


def _anchor(document: StateDocument, elche: ElcheState) -> str:
    batches = plural(elche.anchor, "batch", many="batches")
    if elche.anchor_rank is None:
        return batches
    hosts = {rank.rank: rank.host for rank in document.ranks}
    return fit(f"{batches} of {place_of(elche.anchor_rank, hosts.get(elche.anchor_rank))}", 48)


def _counts_text(counts: Sequence[int], width: int) -> str:
    if not counts:
        return ABSENT
    return listed([count(one, width=MAX_COUNT_CHARS) for one in counts], width, separator=" ")


def _count_rows(document: StateDocument, elche: ElcheState) -> tuple[CountRow, ...]:
    hosts = {rank.rank: rank.host for rank in document.ranks}
    largest = max((*elche.batch_counts, 1))
    return tuple(
        CountRow(
            rank=rank,
            host=says(hosts.get(rank, ""), MAX_HOST_CELLS),
            count=batches,
            fraction=max(0, batches) / largest,
            is_anchor=rank == elche.anchor_rank,
        )
        for rank, batches in enumerate(elche.batch_counts)
    )


def _growth(elche: ElcheState, *, is_applicable: bool) -> str:
    if not is_applicable:
        return "windows do not grow in Sync"
    if elche.window_cap_binding:
        return "off: the window has all batches of the epoch"
    return "on: the window may grow" if elche.growth_enabled else "off: the window keeps its length"


def _guard(elche: ElcheState) -> tuple[str, Tone]:
    guard = says(elche.guard, 16)
    if elche.last_verdict is None:
        return guard, Tone.DIM
    verdict = _verdict(elche)
    return f"{guard}: {verdict}", Tone.OK if verdict == "stable" else Tone.WARN


def _verdict(elche: ElcheState) -> str:
    """Return the verdict without its reason, which the sentence of the cadence tells too."""
    return says((elche.last_verdict or "").split(":")[0], 22)


def _summary(elche: ElcheState, guard_tone: Tone, *, is_applicable: bool) -> Line:
    if not is_applicable:
        return (Phrase("sync: every rank does 1 batch between two averages", Tone.INFO),)
    anchor = f"anchor {count(elche.anchor)}"
    if elche.anchor_rank is not None:
        anchor += f" of rank {elche.anchor_rank}"
    guard = f"guard {_verdict(elche)}" if elche.last_verdict else ""
    return joined(
        [
            (1, Phrase(f"ElChe {says(elche.phase, 12)}", Tone.INFO)),
            (2, Phrase(f"counts {_counts_text(elche.batch_counts, 32)}", Tone.INFO)),
            (4, Phrase(anchor, Tone.INFO)),
            (5, Phrase(f"overhead {percent(elche.overhead)}", overhead_of(elche)[1])),
            (6 if guard_tone is Tone.OK else 3, Phrase(guard, guard_tone)),
        ],
        SUMMARY_CELLS,
    )
