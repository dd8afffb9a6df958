"""The box that asks for a text: where to in a playback.

What it is: a field, checked while one types.
What it is not: what is done with the text.
Who drives it: `playing` pushes it and takes the text.
"""

from collections.abc import Callable
from typing import Final

from rich.text import Text
from textual import getters, on
from textual.app import ComposeResult
from textual.widgets import Input, Static

from flodl_console.screens.dialog import Dialog
from flodl_console.widgets.answers import Answers

_TAKE: Final = 0


class PromptScreen(Dialog[str | None]):
    """Asks for a text; None if none was given."""

    answers = getters.query_one(Answers)
    complaint = getters.query_one(".complaint", Static)

    def __init__(
        self,
        title: str,
        *,
        hint: str,
        complain: Callable[[str], str],
        clock: Callable[[], float],
    ) -> None:
        """Ask.

        Args:
            title: the question.
            hint: what a good text looks like.
            complain: returns what is wrong with a text; empty if nothing.
            clock: monotonic, in seconds.
        """
        super().__init__(clock=clock)
        self._title, self._hint, self._complain = title, hint, complain

    def compose_box(self) -> ComposeResult:
        """Show the question, the field and what is wrong with it."""
        yield Static(Text(self._title, "bold"), classes="title")
        yield Static(Text(self._hint))
        yield Input(select_on_focus=False, compact=True)
        yield Static(classes="complaint")

    def on_mount(self) -> None:
        """Mark the answer that takes the text."""
        self.answers.answers = ("Go", "Cancel")

    @on(Input.Changed)
    def judge(self, event: Input.Changed) -> None:
        """Say at once what is wrong."""
        self.complaint.update(Text(self._complain(event.value)))

    def action_accept(self) -> None:
        """Close with the text, if nothing is wrong with it."""
        text = self.query_one(Input).value
        if self.answers.marked != _TAKE:
            self.dismiss(None)
        elif self._complain(text):
            self.complaint.update(Text(self._complain(text)))
        else:
            self.dismiss(text)

    def action_decline(self) -> None:
        """Close without a text."""
        self.dismiss(None)
