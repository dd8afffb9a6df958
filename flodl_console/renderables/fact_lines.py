"""Panels of facts as lines: where the averaging stands, who does how many batches.

What it is: panels and a width in, lines of at most that width out.
What it is not: any wording; `view.cycle` and `view.elche` have the words.
Who drives it: the Training screen.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from flodl_console.renderables.bars import bar
from flodl_console.renderables.wrapping import wrapped
from flodl_console.view.cycle import CyclePanel
from flodl_console.view.elche import CountRow, ElchePanel
from flodl_console.view.texts import cell_width, fit, pad
from flodl_console.view.tones import Glyph, Line, Phrase, Tone

LABEL_CELLS: Final = 12
TITLE_OF_CYCLE: Final = "Averaging"
TITLE_OF_ELCHE: Final = "ElChe: who does how many batches"
MAX_COUNT_ROWS: Final = 16
_NUMBER_CELLS: Final = 5


def cycle_lines(panel: CyclePanel, *, width: int) -> tuple[Line, ...]:
    """Return where the averaging stands: as many lines whether one is pending or not."""
    room = max(2, width - LABEL_CELLS)
    gauge = Phrase(bar(panel.gauge or 0.0, room), Tone.DIM if panel.gauge is None else panel.tone)
    head = (Phrase(TITLE_OF_CYCLE, Tone.ACCENT),)
    waited = (Phrase(pad("waited", LABEL_CELLS), Tone.DIM), gauge)
    return (head, waited, *facts(panel.lines, width=width))


def elche_lines(panel: ElchePanel, *, width: int, height: int) -> tuple[Line, ...]:
    """Return who does how many batches, and why.

    Args:
        panel: of this moment.
        width: cells of the lines.
        height: lines that there is room for; counts as bars are shown if they all fit.
    """
    lines: list[Line] = [(Phrase(TITLE_OF_ELCHE, Tone.ACCENT),)]
    lines.extend(facts(panel.lines, width=width))
    lines.extend(
        (Phrase(part, Tone.DIM),) for part in _cut(panel.reason, width, height - len(lines))
    )
    rows = panel.counts
    if rows and len(rows) <= min(MAX_COUNT_ROWS, height - len(lines)):
        lines.extend(_counts(rows, width))
    return tuple(lines)


def facts(rows: Sequence[tuple[str, Phrase]], *, width: int) -> Iterator[Line]:
    """Yield labels with their values; a value is cut rather than wrapped."""
    for label, value in rows:
        room = width - LABEL_CELLS
        yield (
            Phrase(pad(label, LABEL_CELLS), Tone.DIM),
            Phrase(fit(value.text, room), value.tone),
        )


def _cut(text: str, width: int, lines: int) -> list[str]:
    """Return a text in at most so many lines; the last one says if there was more."""
    parts = wrapped(text, width)
    if len(parts) <= lines:
        return parts
    return [*parts[: lines - 1], fit(" ".join(parts[lines - 1 :]), width)] if lines > 0 else []


def _counts(rows: Sequence[CountRow], width: int) -> Iterator[Line]:
    for row in rows:
        glyph = Glyph.ANCHOR if row.is_anchor else Glyph.NONE
        name = pad(f"rank {row.rank} {row.host}", min(18, width // 3))
        count = pad(f"{row.count}", _NUMBER_CELLS, is_right=True)
        room = width - cell_width(name) - _NUMBER_CELLS - 3
        yield (
            Phrase(f"{glyph} ", Tone.ACCENT),
            Phrase(f"{name}{count} ", Tone.DIM if row.count == 0 else Tone.INFO),
            Phrase(bar(row.fraction, max(2, room)), Tone.DIM),
        )
