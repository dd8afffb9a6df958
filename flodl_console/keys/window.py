"""Actions of the Window screen.

What it is: a table.
What it is not: what an action does; the screen has the methods.
Who drives it: `registry`.
"""

from typing import Final

from flodl_console.actions import ConsoleAction, Group, Scope

WINDOW_ACTIONS: Final = (
    ConsoleAction(
        id="window-up",
        keys=("up", "k"),
        title="Up",
        tooltip="Scroll up by a line.",
        scope=Scope.WINDOW,
        group=Group.MOVE,
        call="screen.scroll_lines(-1)",
    ),
    ConsoleAction(
        id="window-down",
        keys=("down", "j"),
        title="Down",
        tooltip="Scroll down by a line.",
        scope=Scope.WINDOW,
        group=Group.MOVE,
        call="screen.scroll_lines(1)",
    ),
    ConsoleAction(
        id="copy-token",
        keys=("Y",),
        title="Copy token",
        tooltip="Copy the run's join token to the terminal's clipboard; it is never shown.",
        scope=Scope.WINDOW,
        group=Group.CONSOLE,
        call="app.copy_token",
    ),
)
