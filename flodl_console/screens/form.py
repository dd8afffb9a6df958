"""The form for a new run: eight fields, judged while one types, and a launch.

What it is: what the command line would take, in front of a person.
What it is not: the launcher; a run is a process of its own and outlives the console.
Who drives it: the app shows it where no run was named.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rich.text import Text
from textual import getters, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Input, Static

from flodl_console.actions import ConsoleAction, Scope
from flodl_console.feed.source import Feed
from flodl_console.launch import PORT_WAIT_S
from flodl_console.registry import bindings_in
from flodl_console.run_form import FORM_FIELDS, FormReview, review_form
from flodl_console.screens.console_screen import ConsoleScreen
from flodl_console.settings import ConsoleSettings
from flodl_console.themes import tone_style
from flodl_console.view.model import ConsoleView
from flodl_console.view.texts import clean
from flodl_console.view.tones import Glyph, Tone
from flodl_console.widgets.form_row import FormRow
from flodl_console.widgets.launch_line import LaunchLine
from flodl_core.errors import FlodlError

MAX_TOLD_LINES = 9

Launch = Callable[[FormReview], Awaitable[Feed]]
"""Starts a run and returns a feed of it; raises FlodlError with the child's own words."""


class FormScreen(ConsoleScreen):
    """Asks what a run needs."""

    @dataclass
    class Launched(Message):
        """A run was started."""

        feed: Feed

    SCOPE = Scope.FORM
    BINDINGS = bindings_in(Scope.FORM)
    AUTO_FOCUS = "Input"

    launch_line = getters.query_one(LaunchLine)
    told = getters.query_one("#form-told", Static)

    def __init__(self, settings: ConsoleSettings, *, launch: Launch) -> None:
        """Ask, with what the command line gave already filled in.

        Args:
            settings: the command line.
            launch: starts a run.
        """
        super().__init__()
        self._settings = settings
        self._launch = launch
        self._flags = {
            name: value
            for name, value in settings.launch_flags.items()
            if name not in {asked.name for asked in FORM_FIELDS}
        }
        self._review = FormReview()
        self._is_launching = False

    def compose_content(self) -> ComposeResult:
        """Yield a row a field, the launch line, and what is to be said."""
        with Vertical(id="form"):
            yield Static(Text("A new run", "bold"), id="form-title")
            for asked in FORM_FIELDS:
                yield FormRow(
                    asked.name,
                    asked.label,
                    value=self._given(asked.name),
                    meaning=asked.meaning,
                    choices=asked.choices,
                )
            yield LaunchLine()
            yield Static(id="form-told")

    def on_mount(self) -> None:
        """Judge what is filled in already."""
        self._judge()

    def show_view(self, view: ConsoleView) -> None:
        """Take no notice: there is no run yet."""

    @on(Input.Changed)
    def judge(self) -> None:
        """Judge at every key."""
        self._judge()

    def on_descendant_focus(self) -> None:
        """Say what Enter does here."""
        self._show_keys()

    def key_title(self, action: ConsoleAction) -> str:
        """Return what Enter does: it launches on the launch line only."""
        is_next = action.id == "form-launch" and not isinstance(self.focused, LaunchLine)
        return "Next field" if is_next else action.title

    @on(Input.Submitted)
    def go_on(self) -> None:
        """Take Enter in a field as the way to the next one."""
        self.focus_next()

    def action_launch(self) -> None:
        """Start the run, if the launch line has the focus and all is well."""
        if not isinstance(self.focused, LaunchLine):
            self.focus_next()
        elif self._is_launching:
            self.notice("the run is being started", is_problem=True)
        elif not self._review.is_good:
            self._focus_complaint()
        else:
            self._is_launching = True
            self._tell(
                f"starting the run, at most {PORT_WAIT_S:g} s; it goes on if you leave (Ctrl+C)",
                Tone.INFO,
            )
            self.run_worker(self._start(self._review), group="launch")

    async def _start(self, review: FormReview) -> None:
        try:
            feed = await self._launch(review)
        except FlodlError as error:
            fix = f"\nfix: {error.fix}" if error.fix else ""
            self.notice_line.clear()
            self._tell(f"{Glyph.BAD} {error.happened}{fix}", Tone.BAD)
        else:
            self.post_message(self.Launched(feed))
        finally:
            self._is_launching = False

    def _judge(self) -> None:
        rows = list(self.query(FormRow))
        typed = {row.name or "": row.input.value for row in rows}
        review = review_form(typed, flags=self._flags, config_file=self._settings.config_file)
        for row in rows:
            row.complaint = review.complaints.get(row.name or "", "")
            row.hint = review.placeholders.get(row.name or "", row.hint)
        self._review = review
        self.launch_line.is_ready = review.is_good
        wrong = review.elsewhere or next(iter(review.complaints.values()), "")
        if review.is_good:
            self._tell("flodl " + " ".join(review.words), Tone.DIM)
        else:
            self._tell(f"{Glyph.BAD} {wrong}\nfix: {review.fix}", Tone.WARN)

    def _tell(self, words: str, tone: Tone) -> None:
        lines = [clean(line) for line in words.splitlines()][:MAX_TOLD_LINES]
        self.told.update(Text("\n".join(lines), tone_style(self.app.theme, tone)))

    def _focus_complaint(self) -> None:
        for row in self.query(FormRow):
            if row.complaint:
                row.input.focus()
                return

    def _given(self, name: str) -> str:
        if name == "job":
            return self._settings.job or ""
        value = self._settings.launch_flags.get(name)
        return "" if value is None else str(value)
