"""The box that asks for one of several: a host, a rank, a kind of file.

What it is: answers one below the other.
What it is not: a confirmation; what is chosen may still be asked about.
Who drives it: `operating` and `saving` push it and take the answer's id.
"""

from collections.abc import Callable, Sequence

from rich.text import Text
from textual import getters
from textual.app import ComposeResult
from textual.widgets import Static

from flodl_console.screens.dialog import Dialog
from flodl_console.widgets.answers import Answers


class ChoiceScreen(Dialog[str | None]):
    """Asks for one of some answers; None if none was taken."""

    answers = getters.query_one(Answers)

    def __init__(
        self, title: str, choices: Sequence[tuple[str, str]], *, clock: Callable[[], float]
    ) -> None:
        """Ask.

        Args:
            title: the question.
            choices: id and words of each answer.
            clock: monotonic, in seconds.
        """
        super().__init__(clock=clock)
        self._title = title
        self._choices = tuple(choices)

    def compose_box(self) -> ComposeResult:
        """Show the question."""
        yield Static(Text(self._title, "bold"), classes="title")

    def on_mount(self) -> None:
        """Mark the first."""
        self.answers.is_upright = True
        self.answers.answers = tuple(words for _, words in self._choices)

    def action_accept(self) -> None:
        """Close with the marked one."""
        self.dismiss(self._choices[self.answers.marked][0])

    def action_decline(self) -> None:
        """Close with none."""
        self.dismiss(None)
