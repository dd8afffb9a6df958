"""An action of the console: the one source of its key, footer, help and palette entry.

What it is: a frozen record, and the bindings that are made of records.
What it is not: what an action does; the app and screens have a method `action_<call>`.
Who drives it: `keys` lists the actions, `registry` collects them.

Keys are those that every terminal delivers: letters, digits, arrows, Enter, Escape, Tab,
Space, `?` and `/`; Ctrl+C beside them, for those who reach for it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from textual.binding import Binding, BindingType


class Scope(StrEnum):
    """Where an action can be called."""

    SHELL = "shell"
    """On every screen but dialogs."""
    WINDOW = "window"
    TRAINING = "training"
    RANK = "rank"
    TOPOLOGY = "topology"
    EVENTS = "events"
    FORM = "form"
    HELP = "help"
    DIALOG = "dialog"


class Group(StrEnum):
    """Under which heading help lists an action."""

    SCREENS = "Screens"
    RUN = "Run"
    PLAYBACK = "Playback"
    VIEW = "View"
    MOVE = "Move"
    CONSOLE = "Console"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleAction:
    """One thing that a key does."""

    id: str
    """Unique; words joined by hyphens."""
    keys: tuple[str, ...]
    """Textual's names of keys; the first one is shown."""
    title: str
    """One or two words, for the key bar and the palette."""
    tooltip: str
    """One sentence: what it does and what follows."""
    scope: Scope
    group: Group
    call: str
    """The method `action_…` of the app (`app.…`) or of the screen (`screen.…`)."""
    priority: int = 0
    """Place in the key bar: higher comes first; 0 is not shown there."""
    is_dangerous: bool = False
    """Whether a box asks before anything is done."""
    works_while_typing: bool = False
    """Whether it is called while an input has the focus."""

    @property
    def key_shown(self) -> str:
        """The first key as it is printed on a keyboard."""
        return shown_key(self.keys[0])


_SHOWN: Final = {
    "question_mark": "?",
    "slash": "/",
    "enter": "Enter",
    "escape": "Esc",
    "tab": "Tab",
    "shift+tab": "Shift+Tab",
    "space": "Space",
    "up": "↑",
    "down": "↓",
    "left": "←",
    "right": "→",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "home": "Home",
    "end": "End",
    "ctrl+c": "Ctrl+C",
}


def shown_key(key: str) -> str:
    """Return a key as it is printed on a keyboard."""
    return _SHOWN.get(key, key)


def bindings_of(actions: Iterable[ConsoleAction]) -> list[BindingType]:
    """Return the bindings of some actions, one a key; each has an id and a tooltip."""
    return [
        Binding(
            key,
            action.call,
            action.title,
            show=action.priority > 0,
            key_display=shown_key(key),
            priority=key == "ctrl+c",
            tooltip=action.tooltip,
            id=action.id if number == 0 else f"{action.id}-{number}",
        )
        for action in actions
        for number, key in enumerate(action.keys)
    ]
