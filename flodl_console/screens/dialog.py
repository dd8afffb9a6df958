"""A box in front of a screen that asks something and gives one answer back.

What it is: the frame of all boxes: deaf at first, Escape means no, the first answer is
marked, and a view that voids the question closes it with a reason.
What it is not: the question; subclasses hold the words.
Who drives it: the app pushes it; `operating` and others take the answer.
"""

from collections.abc import Callable
from typing import ClassVar, Final, Generic, TypeVar

from textual import events, getters, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input

from flodl_console.actions import Scope
from flodl_console.registry import action_called, bindings_in, key_bar_actions
from flodl_console.screens.console_screen import acts_now
from flodl_console.view.model import ConsoleView
from flodl_console.widgets.answers import Answers
from flodl_console.widgets.key_bar import KeyBar, KeyEntry
from flodl_console.widgets.too_small import TooSmall

AnswerT = TypeVar("AnswerT")

DEAF_S: Final = 0.3
"""How long a new box takes no key, so that a key meant for the screen below is lost."""


class Dialog(ModalScreen[AnswerT], Generic[AnswerT], inherit_bindings=False):
    """A box with a title, lines, answers, and perhaps a field."""

    SCOPE: ClassVar[Scope] = Scope.DIALOG
    BINDINGS = bindings_in(Scope.DIALOG)
    AUTO_FOCUS = ""

    answers = getters.query_one(Answers)

    def __init__(self, *, clock: Callable[[], float]) -> None:
        """Open a box.

        Args:
            clock: monotonic, in seconds; the box is deaf for DEAF_S from now on.
        """
        super().__init__()
        self._clock = clock
        self._opened_at_s = clock()

    def compose(self) -> ComposeResult:
        """Put the subclass's content into a box."""
        with Vertical(classes="box"):
            yield from self.compose_box()
            yield Answers()
        yield KeyBar()
        yield TooSmall()

    def compose_box(self) -> ComposeResult:
        """Yield what stands above the answers."""
        raise NotImplementedError

    def take_view(self, view: ConsoleView) -> None:
        """Look at a new view; a box whose question is void closes itself."""

    def action_accept(self) -> None:
        """Give the marked answer back."""
        raise NotImplementedError

    def action_decline(self) -> None:
        """Give no answer back."""
        raise NotImplementedError

    def action_mark(self, step: int) -> None:
        """Mark another answer; round at the ends."""
        self.answers.marked = (self.answers.marked + step) % len(self.answers.answers)

    @property
    def is_deaf(self) -> bool:
        """Whether keys are lost, because the box has only just come."""
        return self._clock() - self._opened_at_s < DEAF_S

    def on_mount(self) -> None:
        """Show the keys."""
        self.query_one(KeyBar).entries = tuple(
            KeyEntry(key=action.key_shown, title=action.title)
            for action in key_bar_actions(Scope.DIALOG)
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key acts."""
        return not self.is_deaf and acts_now(self, action_called("screen", action, parameters))

    def on_key(self, event: events.Key) -> None:
        """Give the first character that is heard to the field, and with it the focus."""
        fields = self.query(Input)
        if self.is_deaf or not fields or self.focused is not None:
            return
        if event.is_printable and event.character is not None:
            event.stop()
            fields.first().focus()
            fields.first().insert_text_at_cursor(event.character)

    @on(Input.Submitted)
    def take_enter(self) -> None:
        """Take Enter in the field as Enter in the box."""
        self.action_accept()
