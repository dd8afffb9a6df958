"""The console's application: one feed, one view, screens in front of it.

What it is: the shell. A worker reads the feed and posts records, a handler folds them
into the view, the screen in front gets the newest one; keys come from the registry.
What it is not: any drawing, or what an operator's keys do to a run; `operating` has that.
Who drives it: `running.run_console`, for `flodl console`; tests, through a pilot.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, TypeVar

import rich
from rich.traceback import Traceback
from textual import events, on
from textual.app import App
from textual.filter import LineFilter
from textual.widgets import Input
from textual.worker import Worker

from flodl_console.actions import Scope
from flodl_console.commands import ConsoleCommands
from flodl_console.feed.source import Feed
from flodl_console.line_filters import chosen_filters
from flodl_console.messages import Noticed, RankChosen, RecordArrived
from flodl_console.operating import Operating
from flodl_console.playing import Playing
from flodl_console.registry import action_called, bindings_in, needs_run
from flodl_console.saving import Saving
from flodl_console.screens.console_screen import ConsoleScreen, acts_now
from flodl_console.screens.dialog import Dialog
from flodl_console.screens.events import EventsScreen
from flodl_console.screens.form import FormScreen, Launch
from flodl_console.screens.help import HelpScreen
from flodl_console.screens.rank import RankScreen
from flodl_console.screens.topology import TopologyScreen
from flodl_console.screens.training import TrainingScreen
from flodl_console.screens.window import WindowScreen
from flodl_console.settings import MIN_HEIGHT_CELLS, MIN_WIDTH_CELLS, ConsoleSettings
from flodl_console.themes import themes
from flodl_console.view.actions import ActionId, offers
from flodl_console.view.fold import fold
from flodl_console.view.link import link_banner
from flodl_console.view.model import initial
from flodl_console.view.records import ClockTicked
from flodl_core.ids import ClusterPhase
from flodl_core.net.clock import now

AnswerT = TypeVar("AnswerT")

TICK_S: Final = 1.0
"""How often ages grow on the screen while nothing else arrives."""
FORM: Final = "form"


def _nothing() -> None:
    """Do nothing."""


class ConsoleApp(App[int], inherit_bindings=False):
    """The console.

    Attributes:
        settings: as given.
        feed: where the data comes from; None while the form is shown.
        latest: the newest view, also while the picture is held.
        view: what is on screen.
        chosen: the rank that was chosen last; None if none was.
        before_leaving: called when the person leaves, before anything is taken down.
    """

    TITLE = "flodl"
    CSS_PATH = "styles/console.tcss"
    ENABLE_COMMAND_PALETTE = False
    COMMANDS: ClassVar = {ConsoleCommands}
    BINDINGS = bindings_in(Scope.SHELL)
    DEFAULT_MODE = "window"
    MODES: ClassVar = {
        "window": WindowScreen,
        "training": TrainingScreen,
        "rank": RankScreen,
        "topology": TopologyScreen,
        "events": EventsScreen,
    }
    HORIZONTAL_BREAKPOINTS = [  # noqa: RUF012 - no class variable where Textual declares it
        (0, "-too-narrow"),
        (MIN_WIDTH_CELLS, "-narrow"),
        (100, "-medium"),
        (140, "-wide"),
    ]
    VERTICAL_BREAKPOINTS = [  # noqa: RUF012 - likewise
        (0, "-too-flat"),
        (MIN_HEIGHT_CELLS, "-short"),
        (30, "-tall"),
        (45, "-high"),
    ]

    def __init__(
        self,
        settings: ConsoleSettings,
        *,
        feed: Feed | None,
        launch: Launch | None = None,
        clock: Callable[[], float] = now,
        directory: Path | None = None,
    ) -> None:
        """Make the console; nothing is read before it runs.

        Args:
            settings: the command line.
            feed: where the data comes from; None shows the form for a new run.
            launch: starts a run for the form; needed where there is no feed.
            clock: monotonic, in seconds.
            directory: where exported files go; the current one if None.
        """
        super().__init__()
        self.settings = settings
        self.feed = feed
        self.clock = clock
        self.latest = initial()
        self.view = initial()
        self.chosen: int | None = None
        self.before_leaving: Callable[[], None] = _nothing
        self._running_loop: asyncio.AbstractEventLoop | None = None
        self.animation_level = "none"
        self.use_command_palette = True
        self._filters_of_ours = chosen_filters(
            is_colourless=settings.is_colourless or self.no_color, is_ascii=settings.is_ascii
        )
        self._is_held = False
        self._is_leaving = False
        self._has_chosen_screen = False
        self._reader: Worker[None] | None = None
        self._operating = Operating(self)
        self._playing = Playing(self)
        self._saving = Saving(
            self,
            copy=self.copy_to_clipboard,
            draw_svg=self.export_screenshot,
            directory=directory or Path.cwd(),
            token_file=settings.token_file,
        )
        if launch is not None:
            self.add_mode(FORM, partial(FormScreen, settings, launch=launch))
        for theme in themes():
            self.register_theme(theme)
        self.theme = settings.theme

    def on_mount(self) -> None:
        """Begin to read, or show the form."""
        self._running_loop = asyncio.get_running_loop()
        self.set_interval(TICK_S, self._tick)
        if self.feed is None:
            self.switch_mode(FORM)
        else:
            self.attach(self.feed)

    def attach(self, feed: Feed) -> None:
        """Read a feed in the place of the one before, if there was one."""
        if self._reader is not None:
            self._reader.cancel()
        self.feed = feed
        self._has_chosen_screen = self._is_held = False
        self._reader = self.run_worker(self._read(feed), group="feed", exit_on_error=True)
        if self.current_mode == FORM:
            self.switch_mode("window")

    async def _read(self, feed: Feed) -> None:
        """Post what a feed says until it is cancelled."""
        try:
            async for record in feed.records():
                self.post_message(RecordArrived(record))
        finally:
            await feed.aclose()

    def _tick(self) -> None:
        if self.clock() - self.latest.now_s >= TICK_S / 2:
            self.post_message(RecordArrived(ClockTicked(at_s=self.clock())))

    @on(RecordArrived)
    def take_record(self, message: RecordArrived) -> None:
        """Fold a record in and show what came of it; too late once the console is closing."""
        if self.is_running:
            self.latest = fold(self.latest, message.record)
            self.show_latest()

    def show_latest(self) -> None:
        """Put the newest view on the screen in front, unless a person holds an older one there."""
        if not self._is_held:
            self.view = self.latest
            self._follow_phase()
        self.push_view()

    @on(ConsoleScreen.Shown)
    def push_view(self) -> None:
        """Give the view to the screens of the stack in front; the form has none, nor has the end.

        Of a held picture only what the screen draws stands: boxes, offers and the banner
        go by the newest view.
        """
        if self.feed is None or not self.is_running:
            return
        banner = link_banner(self.latest, held=self.view if self._is_held else None)
        for screen in self.screen_stack:
            if isinstance(screen, ConsoleScreen) and screen.is_mounted:
                screen.rank = self.chosen
                screen.offers = tuple(
                    offers(self.latest, rank=screen.chosen_rank, host=screen.chosen_host).values()
                )
                screen.view = self.view
                screen.banner = banner
            elif isinstance(screen, Dialog):
                screen.take_view(self.latest)

    def _follow_phase(self) -> None:
        """Show the screen that fits the phase, until a person has chosen one."""
        document = self.view.document
        if document is None or self._has_chosen_screen or len(self.screen_stack) > 1:
            return
        wanted = "training" if document.phase is ClusterPhase.TRAINING else "window"
        if self.current_mode != wanted:
            self.switch_mode(wanted)

    # What the parts of the shell need.

    @property
    def front(self) -> ConsoleScreen | None:
        """The screen in front, below any box."""
        for screen in reversed(self.screen_stack):
            if isinstance(screen, ConsoleScreen):
                return screen
        return None

    @property
    def chosen_rank(self) -> int | None:
        """The rank that the cursor of the screen in front is on."""
        return None if self.front is None else self.front.chosen_rank

    @property
    def chosen_host(self) -> str | None:
        """The host that the cursor of the screen in front is on."""
        return None if self.front is None else self.front.chosen_host

    def notice(self, text: str, *, is_problem: bool = False) -> None:
        """Say something to the person in front of the screen."""
        if self.front is not None:
            self.front.notice(text, is_problem=is_problem)

    def ask_person(self, dialog: Dialog[AnswerT], then: Callable[[AnswerT | None], None]) -> None:
        """Show a box and call `then` with its answer."""
        self.push_screen(dialog, then)

    def in_background(self, work: Coroutine[None, None, None]) -> None:
        """Run work that waits."""
        self.run_worker(work, group="work")

    @on(FormScreen.Launched)
    def take_feed(self, message: FormScreen.Launched) -> None:
        """Show the run that the form started."""
        self.attach(message.feed)

    @on(Noticed)
    def take_notice(self, message: Noticed) -> None:
        """Say what a widget or a box has to say."""
        self.notice(message.text, is_problem=message.is_problem)

    @on(RankChosen)
    def take_rank(self, message: RankChosen) -> None:
        """Show one rank."""
        self.chosen = message.rank
        self.action_show("rank")
        self.push_view()

    # Textual's own questions.

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Keep the cursor of every field still, the palette's too: nothing here blinks."""
        if isinstance(event.widget, Input):
            event.widget.cursor_blink = False

    def _fatal_error(self) -> None:
        """Print the traceback of a bug without local variables: one may be a token."""
        self.panic(Traceback(show_locals=False, width=None, suppress=[rich]))

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's filters and ours."""
        return [*super().get_line_filters(), *self._filters_of_ours]

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key acts now: none while leaving, few while there is no run."""
        called = action_called("app", action, parameters)
        if self._is_leaving or (self.feed is None and called is not None and needs_run(called)):
            return False
        return acts_now(self.screen, called)

    # The actions of the registry's shell scope.

    def action_show(self, mode: str) -> None:
        """Show a screen, and stay there whatever the phase does."""
        self._has_chosen_screen = True
        self.switch_mode(mode)

    def action_help(self) -> None:
        """Show the keys of the screen in front."""
        if self.front is not None:
            self.push_screen(HelpScreen(self.front.SCOPE))

    def action_start(self) -> None:
        """Close the join window."""
        self._operating.ask(ActionId.START)

    def action_stop(self) -> None:
        """End the run with a save."""
        self._operating.ask(ActionId.STOP_SAVE)

    def action_stop_now(self) -> None:
        """End the run at once."""
        self._operating.ask(ActionId.STOP_NOW)

    def action_checkpoint(self) -> None:
        """Have the run save."""
        self._operating.ask(ActionId.CHECKPOINT)

    def action_drain(self) -> None:
        """Have a host leave."""
        self._operating.drain()

    def action_evict(self) -> None:
        """Put a rank out."""
        self._operating.evict()

    def action_pause(self) -> None:
        """Hold the playback, or the picture of a live run; or go on."""
        if self._playing.toggle_pause():
            return
        self._is_held = not self._is_held
        if self._is_held:
            self.notice("the picture is held; Space goes on. The run is not touched")
        else:
            self.notice("the picture goes on")
        self.show_latest()

    def action_step(self, records: int) -> None:
        """Move the playback by a document."""
        self._playing.step(records)

    def action_jump(self, by_s: int) -> None:
        """Move the playback by seconds."""
        self._playing.jump(by_s)

    def action_seek(self) -> None:
        """Ask for a time of the playback."""
        self._playing.seek()

    def action_speed(self, factor: float) -> None:
        """Play faster or slower."""
        self._playing.change_speed(factor)

    def action_copy(self) -> None:
        """Copy what is chosen on the screen in front."""
        self._saving.copy_text("" if self.front is None else self.front.text_to_copy())

    def action_copy_token(self) -> None:
        """Copy the run's join token, which is shown nowhere."""
        self._saving.copy_token()

    def action_export(self) -> None:
        """Ask what to write to a file."""
        self._saving.export()

    def action_next_theme(self) -> None:
        """Take the next theme."""
        names = [theme.name for theme in themes()]
        self.theme = names[(names.index(self.theme) + 1) % len(names)]
        self.notice(f"theme: {self.theme}")

    def action_leave_field(self) -> None:
        """Leave the field in which one types."""
        self.screen.set_focus(None)
        if self.front is not None:
            self.front.field_left()

    def action_detach(self) -> None:
        """Leave the console; the run goes on."""
        self._is_leaving = True
        self.before_leaving()
        self.exit(0)

    def leave(self, code: int) -> None:
        """Leave with an exit code; may be called from a signal handler."""
        if self._running_loop is not None:
            self._running_loop.call_soon_threadsafe(lambda: self.exit(code, code))
