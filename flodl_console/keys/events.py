"""Actions of the Events screen.

What it is: a table.
What it is not: what an action does; the screen has the methods.
Who drives it: `registry`.
"""

from typing import Final

from flodl_console.actions import ConsoleAction, Group, Scope

EVENTS_ACTIONS: Final = (
    ConsoleAction(
        id="events-up",
        keys=("up", "k"),
        title="Up",
        tooltip="Choose the event above.",
        scope=Scope.EVENTS,
        group=Group.MOVE,
        call="screen.move(-1)",
    ),
    ConsoleAction(
        id="events-down",
        keys=("down", "j"),
        title="Down",
        tooltip="Choose the event below.",
        scope=Scope.EVENTS,
        group=Group.MOVE,
        call="screen.move(1)",
    ),
    ConsoleAction(
        id="events-page-up",
        keys=("pageup", "u"),
        title="Page up",
        tooltip="Choose the event a page above.",
        scope=Scope.EVENTS,
        group=Group.MOVE,
        call="screen.move_page(-1)",
    ),
    ConsoleAction(
        id="events-page-down",
        keys=("pagedown", "m"),
        title="Page down",
        tooltip="Choose the event a page below.",
        scope=Scope.EVENTS,
        group=Group.MOVE,
        call="screen.move_page(1)",
    ),
    ConsoleAction(
        id="events-newest",
        keys=("end", "l"),
        title="Newest",
        tooltip="Choose the newest event and follow what comes.",
        scope=Scope.EVENTS,
        group=Group.MOVE,
        call="screen.newest",
        priority=15,
    ),
    ConsoleAction(
        id="events-oldest",
        keys=("home", "h"),
        title="Oldest",
        tooltip="Choose the oldest event that is known.",
        scope=Scope.EVENTS,
        group=Group.MOVE,
        call="screen.oldest",
    ),
    ConsoleAction(
        id="events-search",
        keys=("slash",),
        title="Search",
        tooltip="Show only events that contain a text.",
        scope=Scope.EVENTS,
        group=Group.VIEW,
        call="screen.search",
        priority=45,
    ),
    ConsoleAction(
        id="events-kind",
        keys=("i",),
        title="Kind",
        tooltip="Show events of all kinds, or of the next kind only.",
        scope=Scope.EVENTS,
        group=Group.VIEW,
        call="screen.next_kind",
        priority=35,
    ),
    ConsoleAction(
        id="events-severity",
        keys=("v",),
        title="Severity",
        tooltip="Show all events, warnings and worse, or only critical ones.",
        scope=Scope.EVENTS,
        group=Group.VIEW,
        call="screen.next_severity",
        priority=34,
    ),
    ConsoleAction(
        id="events-fold",
        keys=("o",),
        title="Fold",
        tooltip="Fold what followed from an event under it, or show all in order of time.",
        scope=Scope.EVENTS,
        group=Group.VIEW,
        call="screen.toggle_fold",
        priority=33,
    ),
    ConsoleAction(
        id="events-jump",
        keys=("enter",),
        title="Go to rank",
        tooltip="Show the rank that the chosen event is about.",
        scope=Scope.EVENTS,
        group=Group.SCREENS,
        call="screen.jump",
        priority=36,
    ),
)
