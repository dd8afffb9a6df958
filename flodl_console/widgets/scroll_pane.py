"""A part of a screen that is longer than it is high, and scrolls by whole lines.

What it is: a scrolling container without focus and without keys of its own.
What it is not: Textual's `VerticalScroll`, whose keys stand in no help.
Who drives it: screens call `scroll_lines` and `scroll_pages`.
"""

from textual.containers import ScrollableContainer


class ScrollPane(ScrollableContainer, can_focus=False, inherit_bindings=False):
    """Scrolls what is in it, at once."""

    DEFAULT_CSS = """
    ScrollPane { width: 1fr; height: 1fr; layout: vertical; overflow: hidden auto; }
    """

    def scroll_lines(self, lines: int) -> None:
        """Move by so many lines, down if positive."""
        self.scroll_relative(y=lines, animate=False, immediate=True)

    def scroll_pages(self, pages: int) -> None:
        """Move by so many heights of the pane, less a line that stays in sight."""
        self.scroll_lines(pages * max(1, self.size.height - 1))
