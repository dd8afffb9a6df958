"""Actions of boxes that ask: confirm, choose, type a time.

What it is: a table.
What it is not: what an action does; the dialogs have the methods.
Who drives it: `registry`.
"""

from typing import Final

from flodl_console.actions import ConsoleAction, Group, Scope

DIALOG_ACTIONS: Final = (
    ConsoleAction(
        id="dialog-close",
        keys=("escape",),
        title="No, close",
        tooltip="Close the box; nothing is done.",
        scope=Scope.DIALOG,
        group=Group.MOVE,
        call="screen.decline",
        priority=90,
        works_while_typing=True,
    ),
    ConsoleAction(
        id="dialog-accept",
        keys=("enter",),
        title="Take the marked answer",
        tooltip="Take the answer that is marked; the first one marked is No.",
        scope=Scope.DIALOG,
        group=Group.MOVE,
        call="screen.accept",
        priority=80,
        works_while_typing=True,
    ),
    ConsoleAction(
        id="dialog-next",
        keys=("tab", "right", "down"),
        title="Next answer",
        tooltip="Mark the next answer.",
        scope=Scope.DIALOG,
        group=Group.MOVE,
        call="screen.mark(1)",
        priority=70,
        works_while_typing=True,
    ),
    ConsoleAction(
        id="dialog-previous",
        keys=("shift+tab", "left", "up"),
        title="Answer before",
        tooltip="Mark the answer before.",
        scope=Scope.DIALOG,
        group=Group.MOVE,
        call="screen.mark(-1)",
        works_while_typing=True,
    ),
)
