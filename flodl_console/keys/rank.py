"""Actions of the Rank screen.

What it is: a table.
What it is not: what an action does; the screen has the methods.
Who drives it: `registry`.
"""

from typing import Final

from flodl_console.actions import ConsoleAction, Group, Scope

RANK_ACTIONS: Final[tuple[ConsoleAction, ...]] = (
    ConsoleAction(
        id="rank-previous",
        keys=("left", "h"),
        title="Rank before",
        tooltip="Show the next lower rank.",
        scope=Scope.RANK,
        group=Group.MOVE,
        call="screen.go(-1)",
        priority=46,
    ),
    ConsoleAction(
        id="rank-next",
        keys=("right", "l"),
        title="Next rank",
        tooltip="Show the next higher rank.",
        scope=Scope.RANK,
        group=Group.MOVE,
        call="screen.go(1)",
        priority=45,
    ),
    ConsoleAction(
        id="rank-up",
        keys=("up", "k"),
        title="Up",
        tooltip="Scroll up by a line.",
        scope=Scope.RANK,
        group=Group.MOVE,
        call="screen.scroll_lines(-1)",
    ),
    ConsoleAction(
        id="rank-down",
        keys=("down", "j"),
        title="Down",
        tooltip="Scroll down by a line.",
        scope=Scope.RANK,
        group=Group.MOVE,
        call="screen.scroll_lines(1)",
    ),
)
