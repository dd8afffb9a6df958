"""The box that asks before something is done to a run.

What it is: what will follow, in numbers; the answer No is marked first, and a dangerous
one wants a name typed.
What it is not: the decision whether it may be done; `view.actions` made the words.
Who drives it: `operating` pushes it and asks the run only after True.
"""

from collections.abc import Callable
from typing import Final

from rich.text import Text
from textual import getters, on
from textual.app import ComposeResult
from textual.widgets import Input, Static

from flodl_console.messages import Noticed
from flodl_console.screens.dialog import Dialog
from flodl_console.view.actions import ConfirmText, voided
from flodl_console.view.model import ConsoleView
from flodl_console.widgets.answers import Answers

_NO: Final = 0
_YES: Final = 1


class ConfirmScreen(Dialog[bool]):
    """Asks one question; True only for a clear yes."""

    answers = getters.query_one(Answers)

    def __init__(self, confirm: ConfirmText, *, clock: Callable[[], float]) -> None:
        """Ask a question.

        Args:
            confirm: the question with its consequences, and what it rests on.
            clock: monotonic, in seconds.
        """
        super().__init__(clock=clock)
        self.confirm = confirm

    def compose_box(self) -> ComposeResult:
        """Show the question, what follows, and the field if a name is wanted."""
        yield Static(Text(self.confirm.title, "bold"), classes="title")
        for line in self.confirm.lines:
            yield Static(Text(line))
        if self.confirm.typed_name:
            yield Static(Text(f"Type {self.confirm.typed_name} to do it:"), classes="ask")
            yield Input(select_on_focus=False, compact=True)

    def on_mount(self) -> None:
        """Mark No."""
        self.answers.answers = (self.confirm.no, self.confirm.yes)

    @on(Input.Changed)
    def compare(self, event: Input.Changed) -> None:
        """Mark Yes once the whole name stands there, and No otherwise."""
        self.answers.marked = _YES if self._is_named(event.value) else _NO

    def action_accept(self) -> None:
        """Close with the marked answer; a yes without the name says what is missing."""
        if self.answers.marked == _NO:
            self.dismiss(result=False)
        elif self._is_named():
            self.dismiss(result=True)
        else:
            self.post_message(
                Noticed(f"type {self.confirm.typed_name} first; nothing was done", is_problem=True)
            )

    def action_decline(self) -> None:
        """Close with No."""
        self.dismiss(result=False)

    def take_view(self, view: ConsoleView) -> None:
        """Close with No, and say why, where the question rests on what is no longer so."""
        reason = voided(self.confirm, view)
        if reason and self.is_current:
            self.post_message(Noticed(reason, is_problem=True))
            self.dismiss(result=False)

    def _is_named(self, typed: str | None = None) -> bool:
        wanted = self.confirm.typed_name
        if not wanted:
            return True
        given = self.query_one(Input).value if typed is None else typed
        return given.strip() == wanted
