"""One rank as lines: its state, its two signals, its facts, its past, its events.

What it is: a panel and a width in, lines of at most that width out.
What it is not: any wording; `view.rank_detail` has the words.
Who drives it: the Rank screen.
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Final

from flodl_console.renderables.bars import bar, sparkline
from flodl_console.renderables.event_lines import event_lines
from flodl_console.renderables.wrapping import wrapped
from flodl_console.view.rank_detail import DetailGroup, RankDetail, RankTrend, SignalGauge
from flodl_console.view.texts import cell_width, fit, fit_line, pad
from flodl_console.view.tones import Glyph, Line, Phrase, Tone
from flodl_console.view.waits import WaitRow

LABEL_CELLS: Final = 13
BAR_CELLS: Final = 12
AGE_CELLS: Final = 14
LAST_CELLS: Final = 12
SPAN_CELLS: Final = 24
TWO_COLUMNS_FROM: Final = 74
MIN_SPARK_CELLS: Final = 16
MAX_SPARK_CELLS: Final = 120
_EMPTY: Final[Line] = ()


def rank_lines(detail: RankDetail, *, width: int, has_plots: bool) -> tuple[Line, ...]:
    """Return all that is known of a rank, the most urgent first.

    Args:
        detail: of this moment.
        width: cells of the lines, at least 40.
        has_plots: whether its past is drawn beside the lines, so that it need not be here.
    """
    return tuple(_all_lines(detail, width, has_plots=has_plots))


def _all_lines(detail: RankDetail, width: int, *, has_plots: bool) -> Iterator[Line]:
    yield fit_line(
        (
            Phrase(f"{detail.glyph} {detail.title}", Tone.ACCENT),
            Phrase(f"  {detail.state}", detail.tone),
            Phrase(f"  {detail.meaning}", Tone.DIM),
        ),
        width,
    )
    for part in wrapped(detail.note, width):
        yield (Phrase(part, detail.tone),)
    if not detail.is_found:
        return
    for gauge in (detail.heartbeat, detail.progress):
        yield from _signal(gauge, width)
    yield from _waits(detail.waits, width)
    yield _EMPTY
    yield from _groups(detail.groups, width)
    if not has_plots:
        yield _EMPTY
        yield (Phrase("The last windows", Tone.ACCENT),)
        for trend in detail.trends:
            yield _trend(trend, width)
    yield _EMPTY
    yield (Phrase("Events of this rank", Tone.ACCENT),)
    if not detail.events:
        yield (Phrase("none is known", Tone.DIM),)
    yield from event_lines(detail.events, width=width)


def _signal(gauge: SignalGauge, width: int) -> Iterator[Line]:
    """Yield the age as a bar; what happens at the ceiling stands beside it or below."""
    tone = Tone.DIM if gauge.fraction is None else gauge.tone
    line = (
        Phrase(pad(gauge.label, LABEL_CELLS), Tone.DIM),
        Phrase(bar(gauge.fraction or 0.0, BAR_CELLS), tone),
        Phrase(f"  {pad(gauge.text, AGE_CELLS)}", gauge.tone),
    )
    outcome = Phrase(gauge.outcome, Tone.DIM)
    used = LABEL_CELLS + BAR_CELLS + 2 + AGE_CELLS
    if used + cell_width(gauge.outcome) <= width:
        yield (*line, outcome)
    else:
        yield fit_line(line, width)
        yield fit_line((Phrase(" " * LABEL_CELLS), outcome), width)


def _waits(waits: Sequence[WaitRow], width: int) -> Iterator[Line]:
    for wait in waits:
        text = f"{Glyph.WARN} waits {wait.age} in {wait.phase} → {wait.outcome}"
        for part in wrapped(text, width):
            yield (Phrase(part, wait.tone),)


def _groups(groups: Sequence[DetailGroup], width: int) -> Iterator[Line]:
    """Yield the first group beside the others where there is room, else one below the other."""
    if width < TWO_COLUMNS_FROM or len(groups) < 2:
        yield from _stacked(groups, width)
        return
    half = (width - 2) // 2
    left = list(_group(groups[0], half))
    right = list(_stacked(groups[1:], width - half - 2))
    for one, other in zip_longest(left, right, fillvalue=_EMPTY):
        used = sum(cell_width(phrase.text) for phrase in one)
        yield (*one, Phrase(" " * (half + 2 - used)), *other)


def _stacked(groups: Sequence[DetailGroup], width: int) -> Iterator[Line]:
    for place, group in enumerate(groups):
        if place:
            yield _EMPTY
        yield from _group(group, width)


def _group(group: DetailGroup, width: int) -> Iterator[Line]:
    yield (Phrase(group.title, Tone.ACCENT),)
    for row in group.rows:
        text = fit(row.text, max(1, width - LABEL_CELLS))
        yield (Phrase(pad(row.label, LABEL_CELLS), Tone.DIM), Phrase(text, row.tone))


def _trend(trend: RankTrend, width: int) -> Line:
    label = Phrase(pad(trend.label, LABEL_CELLS), Tone.DIM)
    last = Phrase(pad(trend.last, LAST_CELLS))
    room = width - LABEL_CELLS - LAST_CELLS
    has_span = room - SPAN_CELLS >= MIN_SPARK_CELLS
    spark = min(MAX_SPARK_CELLS, room - SPAN_CELLS if has_span else room)
    span = f"  {fit(trend.span, SPAN_CELLS - 2)}" if has_span else ""
    return (label, last, Phrase(sparkline(trend.values, spark), Tone.OK), Phrase(span, Tone.DIM))
