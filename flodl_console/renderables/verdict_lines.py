"""The verdict in the room there is: long where it fits, else short, else on two lines.

What it is: a verdict and a width in, one or two lines out; what an operator must know
first is not cut.
What it is not: its words; `view.waits` has those.
Who drives it: the Training and Topology screens.
"""

from flodl_console.renderables.wrapping import wrapped
from flodl_console.view.texts import cell_width
from flodl_console.view.tones import Line, Phrase
from flodl_console.view.waits import RunVerdict


def verdict_lines(verdict: RunVerdict, *, width: int) -> tuple[Line, ...]:
    """Return the verdict as one line, or two where one is too narrow.

    Args:
        verdict: of this moment.
        width: cells of a line, at least 40.
    """
    head = f"{verdict.glyph} "
    if cell_width(head + verdict.text) <= width:
        return ((Phrase(head + verdict.text, verdict.tone),),)
    parts = wrapped(verdict.short, width - cell_width(head))
    indent = " " * cell_width(head)
    return tuple(
        (Phrase((indent if number else head) + part, verdict.tone),)
        for number, part in enumerate(parts[:2])
    )
