"""How a run ended, as lines: what it means, why, what was kept, what to do.

What it is: a panel and a width in, lines of at most that width out.
What it is not: any wording; `view.ending` has the words.
Who drives it: the screen of the window, once the run is over.
"""

from collections.abc import Iterator

from flodl_console.renderables.wrapping import beside, wrapped
from flodl_console.view.ending import EndPanel
from flodl_console.view.texts import pad
from flodl_console.view.tones import Line, Phrase, Tone

LABEL_CELLS = 9


def end_lines(panel: EndPanel, *, width: int) -> tuple[Line, ...]:
    """Return the whole diagnosis, top down.

    Args:
        panel: of a run that is over.
        width: cells of the lines, at least 40.
    """
    return tuple(_all_lines(panel, width))


def _all_lines(panel: EndPanel, width: int) -> Iterator[Line]:
    yield (Phrase(f"{panel.glyph} {panel.title}", panel.tone),)
    yield from _labelled("why", panel.reason, width, tone=panel.tone)
    yield from _labelled(panel.cause_label, panel.cause, width, tone=Tone.WARN)
    for detail in panel.details:
        yield from _labelled("", detail, width, tone=Tone.INFO)
    for number, advice in enumerate(panel.advice):
        yield from _labelled("next" if number == 0 else "", advice, width, tone=Tone.ACCENT)
    yield ()
    for label, value in panel.facts:
        yield from _labelled(label, value, width, tone=Tone.INFO)


def _labelled(label: str, text: str, width: int, *, tone: Tone) -> Iterator[Line]:
    """Yield a text beside its label, on as many lines as it needs; nothing if it is empty."""
    if wrapped(text, width):
        yield from beside((Phrase(pad(label, LABEL_CELLS), Tone.DIM),), text, width, tone=tone)
