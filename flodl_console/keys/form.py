"""Actions of the form for a new run.

What it is: a table.
What it is not: what an action does; the screen has the methods.
Who drives it: `registry`.
"""

from typing import Final

from flodl_console.actions import ConsoleAction, Group, Scope

FORM_ACTIONS: Final = (
    ConsoleAction(
        id="form-next",
        keys=("down",),
        title="Next field",
        tooltip="Move to the next field.",
        scope=Scope.FORM,
        group=Group.MOVE,
        call="app.focus_next",
        works_while_typing=True,
    ),
    ConsoleAction(
        id="form-previous",
        keys=("up",),
        title="Field before",
        tooltip="Move to the field before.",
        scope=Scope.FORM,
        group=Group.MOVE,
        call="app.focus_previous",
        works_while_typing=True,
    ),
    ConsoleAction(
        id="form-launch",
        keys=("enter",),
        title="Launch",
        tooltip="On Launch: start a run, as a process of its own, and show it. Else: next field.",
        scope=Scope.FORM,
        group=Group.RUN,
        call="screen.launch",
        priority=85,
        works_while_typing=True,
    ),
)
