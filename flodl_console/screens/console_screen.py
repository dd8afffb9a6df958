"""What all screens share: first line, road to the run, notices, keys, and their one view.

What it is: the frame; a screen adds its content and takes the view.
What it is not: a reader of feeds; the app pushes the newest view to the screen in front.
Who drives it: the app; each screen module subclasses it.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from textual import getters
from textual.app import ComposeResult
from textual.message import Message
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Input

from flodl_console.actions import ConsoleAction, Scope
from flodl_console.keys.shell import SCREEN_ACTIONS
from flodl_console.registry import action_called, key_bar_actions
from flodl_console.view.actions import ActionId, ActionOffer
from flodl_console.view.facts import is_over
from flodl_console.view.header import NAME_CELLS
from flodl_console.view.link import LinkBanner
from flodl_console.view.model import ConsoleView, initial
from flodl_console.view.records import SourceKind
from flodl_console.view.texts import says
from flodl_console.view.tones import Glyph, Phrase
from flodl_console.widgets.key_bar import KeyBar, KeyEntry
from flodl_console.widgets.link_line import LinkLine
from flodl_console.widgets.masthead import Masthead, Tab
from flodl_console.widgets.notice_line import NoticeLine
from flodl_console.widgets.too_small import TooSmall

ResultT = TypeVar("ResultT")


class ConsoleScreen(Screen[None], inherit_bindings=False):
    """A screen of the console.

    A subclass sets `SCOPE`, takes `BINDINGS = bindings_in(SCOPE)`, yields its widgets in
    `compose_content`, and gives them their slices in `show_view`.
    """

    @dataclass
    class Shown(Message):
        """The screen came to the front and wants the newest view."""

    SCOPE: ClassVar[Scope]
    AUTO_FOCUS = ""

    masthead = getters.query_one(Masthead)
    link_line = getters.query_one(LinkLine)
    notice_line = getters.query_one(NoticeLine)
    key_bar = getters.query_one(KeyBar)

    view: reactive[ConsoleView] = reactive(initial, init=False, repaint=False)
    banner: reactive[LinkBanner | None] = reactive(None, init=False, repaint=False)
    offers: reactive[tuple[ActionOffer, ...]] = reactive((), init=False, repaint=False)
    rank: reactive[int | None] = reactive(None, init=False, repaint=False)
    """The rank that was chosen last, on any screen."""

    def compose(self) -> ComposeResult:
        """Put the frame around the screen's own content."""
        yield Masthead()
        yield LinkLine()
        yield from self.compose_content()
        yield NoticeLine()
        yield KeyBar()
        yield TooSmall()

    def compose_content(self) -> ComposeResult:
        """Yield the screen's own widgets, from top to bottom."""
        raise NotImplementedError

    def show_view(self, view: ConsoleView) -> None:
        """Give each widget its slice of a new view."""
        raise NotImplementedError

    @property
    def chosen_rank(self) -> int | None:
        """The rank that the cursor is on; None where there is no cursor."""
        return None

    @property
    def chosen_host(self) -> str | None:
        """The host that the cursor is on; None where there is no cursor."""
        return None

    def text_to_copy(self) -> str:
        """Return what the copy key puts on the clipboard; empty if there is nothing."""
        return ""

    def field_left(self) -> None:
        """Take note that Escape left the field in which one types."""

    def key_title(self, action: ConsoleAction) -> str:
        """Return what the key bar calls an action now."""
        return action.title

    def on_mount(self) -> None:
        """Draw the frame as soon as it is there."""
        self._show_tabs()
        self._show_keys()
        self.show_view(self.view)
        self.post_message(self.Shown())

    def on_screen_resume(self) -> None:
        """Ask for what came while another screen was in front."""
        self.post_message(self.Shown())

    def watch_view(self, view: ConsoleView) -> None:
        """Hand a new view on."""
        if not self.is_mounted:
            return
        run = None if view.document is None else view.document.run
        self.masthead.run_name = "" if run is None else says(run.name, NAME_CELLS)
        self._show_tabs()
        self.show_view(view)

    def watch_banner(self, banner: LinkBanner | None) -> None:
        """Show how the road to the run is."""
        if banner is None or not self.is_mounted:
            return
        is_looking = self.view.is_read_only and self.view.source is SourceKind.LIVE
        asked = ", read-only" if is_looking and banner.is_current else ""
        held = f"  {Glyph.PAUSED} {banner.held}" if banner.held else ""
        self.masthead.road = Phrase(f"{banner.glyph} {banner.word}{asked}{held}", banner.tone)
        self.link_line.is_whole = banner.is_whole
        self.link_line.long = Phrase("" if banner.is_quiet else banner.text, banner.tone)
        self.link_line.short = Phrase("" if banner.is_quiet else banner.short, banner.tone)

    def watch_offers(self) -> None:
        """Mark the keys that would be refused now."""
        if self.is_mounted:
            self._show_keys()

    def notice(self, text: str, *, is_problem: bool = False) -> None:
        """Say something for some seconds."""
        self.notice_line.say(text, is_problem=is_problem)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key acts: not while one types, and not on a screen that is hidden."""
        return acts_now(self, action_called("screen", action, parameters))

    def _show_tabs(self) -> None:
        document = self.view.document
        has_ended = document is not None and is_over(document)
        self.masthead.tabs = tuple(
            Tab(
                key=action.key_shown,
                title="End" if has_ended and action.id == "show-window" else action.title,
                is_active=action.call == f"app.show('{self.SCOPE}')",
            )
            for action in SCREEN_ACTIONS
            if action.call.startswith("app.show(")
        )

    def _show_keys(self) -> None:
        refused = {offer.action for offer in self.offers if not offer.is_enabled}
        entries = [
            KeyEntry(
                key=action.key_shown,
                title=self.key_title(action),
                is_enabled=_OFFER_OF.get(action.id) not in refused,
            )
            for action in key_bar_actions(self.SCOPE)
        ]
        self.key_bar.entries = tuple(sorted(entries, key=lambda entry: not entry.is_enabled))


_OFFER_OF = {
    "start": ActionId.START,
    "stop": ActionId.STOP_SAVE,
    "stop-now": ActionId.STOP_NOW,
    "checkpoint": ActionId.CHECKPOINT,
    "drain": ActionId.DRAIN,
    "evict": ActionId.EVICT,
}


def acts_now(screen: Screen[ResultT], action: ConsoleAction | None) -> bool:
    """Return whether an action may be called on a screen as it is.

    Args:
        screen: in front.
        action: None for one of Textual's own.
    """
    if action is None:
        return True
    if screen.has_class("-too-narrow") or screen.has_class("-too-flat"):
        return action.id in {"detach", "dialog-close"}
    return action.works_while_typing or not isinstance(screen.focused, Input)
