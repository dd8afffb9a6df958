"""Actions of the help.

What it is: a table.
What it is not: what an action does; the screen has the methods.
Who drives it: `registry`.
"""

from typing import Final

from flodl_console.actions import ConsoleAction, Group, Scope

HELP_ACTIONS: Final = (
    ConsoleAction(
        id="help-close",
        keys=("escape", "question_mark", "q"),
        title="Close help",
        tooltip="Go back to the screen.",
        scope=Scope.HELP,
        group=Group.MOVE,
        call="screen.close",
        priority=90,
    ),
    ConsoleAction(
        id="help-up",
        keys=("up", "k"),
        title="Up",
        tooltip="Scroll up by a line.",
        scope=Scope.HELP,
        group=Group.MOVE,
        call="screen.scroll_lines(-1)",
        priority=60,
    ),
    ConsoleAction(
        id="help-down",
        keys=("down", "j"),
        title="Down",
        tooltip="Scroll down by a line.",
        scope=Scope.HELP,
        group=Group.MOVE,
        call="screen.scroll_lines(1)",
        priority=61,
    ),
    ConsoleAction(
        id="help-page-up",
        keys=("pageup", "u"),
        title="Page up",
        tooltip="Scroll up by a page.",
        scope=Scope.HELP,
        group=Group.MOVE,
        call="screen.scroll_pages(-1)",
    ),
    ConsoleAction(
        id="help-page-down",
        keys=("pagedown", "space"),
        title="Page down",
        tooltip="Scroll down by a page.",
        scope=Scope.HELP,
        group=Group.MOVE,
        call="screen.scroll_pages(1)",
        priority=50,
    ),
)
