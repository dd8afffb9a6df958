"""When curves are drawn anew: seldom while they grow, at once where they show another past.

What it is: the decision, over the view that was drawn last and the one that is there now.
What it is not: a drawing, or the choice of what is drawn.
Who drives it: the plot grid and the Rank screen, with each view.
"""

from flodl_console.view.model import ConsoleView
from flodl_core.telemetry.state import StateDocument


class Redrawing:
    """Remembers what was drawn, and whether the past that it shows is still being read."""

    def __init__(self) -> None:
        """Begin with nothing drawn."""
        self._drawn: ConsoleView | None = None
        self._is_filling = True
        self._document_before: StateDocument | None = None

    def forget(self) -> None:
        """Have the next view drawn, whatever it is."""
        self._drawn = None

    def note(self, view: ConsoleView) -> None:
        """Take note that a view was drawn."""
        self._drawn = view

    def is_due(self, view: ConsoleView, *, pause_s: float) -> bool:
        """Return whether a view is to be drawn.

        Args:
            view: of this moment.
            pause_s: how long a drawing stands while the past only grows.
        """
        drawn = self._drawn
        if drawn is not None and _is_other_past(drawn, view):
            self._is_filling, self._document_before = True, view.document
            return True
        is_filling = self._is_filling
        self._is_filling = is_filling and not self._is_read(view)
        if drawn is None or not drawn.windows:
            return True
        is_old = not 0.0 <= view.now_s - drawn.now_s < pause_s
        return view.windows is not drawn.windows and (is_filling or is_old)

    def _is_read(self, view: ConsoleView) -> bool:
        """Whether nothing is missing of what a document tells that came with this past."""
        document = view.document
        if document is None or document is self._document_before:
            return False
        return _last_seq(view) >= document.newest_window_seq


def _is_other_past(known: ConsoleView, view: ConsoleView) -> bool:
    """Whether a view does not only go on where another one stood."""
    is_shorter = len(view.windows) < len(known.windows) or _last_seq(view) < _last_seq(known)
    return is_shorter or view.label != known.label


def _last_seq(view: ConsoleView) -> int:
    return view.windows[-1].seq if view.windows else 0
