"""Actions of the Topology screen.

What it is: a table.
What it is not: what an action does; the screen has the methods.
Who drives it: `registry`.
"""

from typing import Final

from flodl_console.actions import ConsoleAction, Group, Scope

TOPOLOGY_ACTIONS: Final[tuple[ConsoleAction, ...]] = (
    ConsoleAction(
        id="topology-up",
        keys=("up", "k"),
        title="Up",
        tooltip="Choose the line above.",
        scope=Scope.TOPOLOGY,
        group=Group.MOVE,
        call="screen.move(-1)",
    ),
    ConsoleAction(
        id="topology-down",
        keys=("down", "j"),
        title="Down",
        tooltip="Choose the line below.",
        scope=Scope.TOPOLOGY,
        group=Group.MOVE,
        call="screen.move(1)",
    ),
    ConsoleAction(
        id="topology-page-up",
        keys=("pageup", "u"),
        title="Page up",
        tooltip="Choose the line a page above.",
        scope=Scope.TOPOLOGY,
        group=Group.MOVE,
        call="screen.move_page(-1)",
    ),
    ConsoleAction(
        id="topology-page-down",
        keys=("pagedown", "m"),
        title="Page down",
        tooltip="Choose the line a page below.",
        scope=Scope.TOPOLOGY,
        group=Group.MOVE,
        call="screen.move_page(1)",
    ),
    ConsoleAction(
        id="topology-first",
        keys=("home", "h"),
        title="First",
        tooltip="Choose the first line.",
        scope=Scope.TOPOLOGY,
        group=Group.MOVE,
        call="screen.move_to_end(-1)",
    ),
    ConsoleAction(
        id="topology-last",
        keys=("end", "l"),
        title="Last",
        tooltip="Choose the last line.",
        scope=Scope.TOPOLOGY,
        group=Group.MOVE,
        call="screen.move_to_end(1)",
    ),
    ConsoleAction(
        id="topology-open",
        keys=("enter",),
        title="Rank",
        tooltip="Show all that is known of the chosen rank.",
        scope=Scope.TOPOLOGY,
        group=Group.SCREENS,
        call="screen.open_rank",
        priority=46,
    ),
)
