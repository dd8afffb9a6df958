"""Help: every key of the screen in front, from the registry.

What it is: keys, titles and tooltips by group.
What it is not: a text of its own; what the registry does not know stands nowhere.
Who drives it: the app pushes it; the next key closes or scrolls it.
"""

from rich.table import Table
from rich.text import Text
from textual import getters
from textual.app import ComposeResult
from textual.screen import ModalScreen
from textual.widgets import Static

from flodl_console.actions import ConsoleAction, Group, Scope, shown_key
from flodl_console.registry import (
    action_called,
    actions_in,
    bindings_in,
    everywhere,
    key_bar_actions,
)
from flodl_console.screens.console_screen import acts_now
from flodl_console.themes import tone_style
from flodl_console.view.tones import Tone
from flodl_console.widgets.key_bar import KeyBar, KeyEntry
from flodl_console.widgets.scroll_pane import ScrollPane
from flodl_console.widgets.too_small import TooSmall

KEYS_CELLS = 14
TITLE_CELLS = 15


class HelpScreen(ModalScreen[None], inherit_bindings=False):
    """Lists the actions of one scope and of the shell."""

    SCOPE = Scope.HELP
    BINDINGS = bindings_in(Scope.HELP)
    AUTO_FOCUS = ""

    pane = getters.query_one(ScrollPane)
    key_bar = getters.query_one(KeyBar)

    def __init__(self, scope: Scope) -> None:
        """Show help for the screen of a scope."""
        super().__init__()
        self._scope = scope

    def compose(self) -> ComposeResult:
        """Put one table a group into a pane that scrolls."""
        with ScrollPane():
            yield Static(Text(f"Keys of the screen {self._scope.value.capitalize()}"), id="title")
            offered = (*actions_in(self._scope), *everywhere(self._scope))
            for group in Group:
                actions = [action for action in offered if action.group is group]
                if actions:
                    yield Static(self._table(group, actions))
        yield KeyBar()
        yield TooSmall()

    def on_mount(self) -> None:
        """Show the keys of the help itself."""
        self.key_bar.entries = tuple(
            KeyEntry(key=action.key_shown, title=action.title)
            for action in key_bar_actions(Scope.HELP)
        )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return whether a key acts."""
        return acts_now(self, action_called("screen", action, parameters))

    def action_close(self) -> None:
        """Go back."""
        self.dismiss()

    def action_scroll_lines(self, lines: int) -> None:
        """Scroll by lines."""
        self.pane.scroll_lines(lines)

    def action_scroll_pages(self, pages: int) -> None:
        """Scroll by pages."""
        self.pane.scroll_pages(pages)

    def _table(self, group: Group, actions: list[ConsoleAction]) -> Table:
        theme = self.app.theme
        table = Table.grid(padding=(0, 1), expand=True)
        table.title = None
        table.add_column(width=KEYS_CELLS, no_wrap=True)
        table.add_column(width=TITLE_CELLS, no_wrap=True)
        table.add_column(ratio=1)
        table.add_row(Text(group.value, tone_style(theme, Tone.ACCENT)), "", "")
        for action in actions:
            keys = " ".join(shown_key(key) for key in action.keys)
            table.add_row(
                Text(f"  {keys}", tone_style(theme, Tone.INFO)),
                Text(action.title, tone_style(theme, Tone.INFO)),
                Text(_explained(action), tone_style(theme, Tone.DIM)),
            )
        return table


def _explained(action: ConsoleAction) -> str:
    return f"{action.tooltip} A box asks first." if action.is_dangerous else action.tooltip
