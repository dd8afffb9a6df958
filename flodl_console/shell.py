"""What the parts of the shell need of the app, without being the app.

What it is: a protocol, so that what keys do can be tested with a fake.
What it is not: an interface for widgets or screens; those post messages.
Who drives it: `operating`, `playing` and `saving` call it; the app fulfils it.
"""

from collections.abc import Callable, Coroutine
from typing import Protocol, TypeVar

from flodl_console.feed.source import Feed
from flodl_console.screens.dialog import Dialog
from flodl_console.view.model import ConsoleView

AnswerT = TypeVar("AnswerT")


class Shell(Protocol):
    """The console as those see it who do what keys say."""

    @property
    def feed(self) -> Feed | None:
        """Where the data comes from; None before there is a run."""

    @property
    def latest(self) -> ConsoleView:
        """The newest view, also while the picture is held."""

    @property
    def chosen_rank(self) -> int | None:
        """The rank that the cursor of the screen in front is on."""

    @property
    def chosen_host(self) -> str | None:
        """The host that the cursor of the screen in front is on."""

    def clock(self) -> float:
        """Return the monotonic instant, in seconds."""

    def notice(self, text: str, *, is_problem: bool = False) -> None:
        """Say something to the person in front of the screen."""

    def ask_person(self, dialog: Dialog[AnswerT], then: Callable[[AnswerT | None], None]) -> None:
        """Show a box and call `then` with its answer."""

    def in_background(self, work: Coroutine[None, None, None]) -> None:
        """Run work that waits, as one of the app's own workers."""
