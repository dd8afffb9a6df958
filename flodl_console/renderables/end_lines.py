"""How a run ended, as lines: what it means, why, what was kept, what to do.

What it is: a panel and a room in, lines that fit into it out.
What it is not: any wording of the diagnosis; `view.ending` has it.
Who drives it: the screens of the window and of training, once the run is over.
"""

from collections.abc import Iterator

from flodl_console.renderables.wrapping import beside, wrapped
from flodl_console.view.ending import EndPanel
from flodl_console.view.texts import cell_width, pad
from flodl_console.view.tones import Line, Phrase, Tone

MIN_LABEL_CELLS = 9


def end_lines(panel: EndPanel, *, width: int, height: int | None = None) -> tuple[Line, ...]:
    """Return the whole diagnosis, top down.

    Args:
        panel: of a run that is over.
        width: cells of the lines, at least 40.
        height: lines there is room for; what does not fit is said in the last one. None
            for as many as it takes.
    """
    lines = tuple(_all_lines(panel, width))
    if height is None or len(lines) <= height:
        return lines
    kept = lines[: max(0, height - 1)]
    return (*kept, (Phrase(f"… {len(lines) - len(kept)} more lines on screen 1, End", Tone.DIM),))


def _all_lines(panel: EndPanel, width: int) -> Iterator[Line]:
    labels = (panel.cause_label, *(label for label, _ in panel.facts))
    cells = max(MIN_LABEL_CELLS, *(cell_width(label) + 1 for label in labels))

    def labelled(label: str, text: str, tone: Tone) -> Iterator[Line]:
        """Yield a text beside its label, on as many lines as it needs; nothing if it is empty."""
        if wrapped(text, width):
            yield from beside((Phrase(pad(label, cells), Tone.DIM),), text, width, tone=tone)

    yield (Phrase(f"{panel.glyph} {panel.title}", panel.tone),)
    yield from labelled("why", panel.reason, panel.tone)
    yield from labelled(panel.cause_label, panel.cause, Tone.WARN)
    for detail in panel.details:
        yield from labelled("", detail, Tone.INFO)
    for number, advice in enumerate(panel.advice):
        yield from labelled("next" if number == 0 else "", advice, Tone.ACCENT)
    yield ()
    for label, value in panel.facts:
        yield from labelled(label, value, Tone.INFO)
