"""All actions of the console, in the order of the help.

What it is: the lists of `keys` put together, by scope and by call.
What it is not: what an action does.
Who drives it: app and screens take their bindings from here; key bar, help and palette
list what is here, and so does the page of keys in the documentation.
"""

from typing import Final

from textual.actions import parse
from textual.binding import BindingType

from flodl_console.actions import ConsoleAction, Scope, bindings_of
from flodl_console.keys.dialogs import DIALOG_ACTIONS
from flodl_console.keys.events import EVENTS_ACTIONS
from flodl_console.keys.form import FORM_ACTIONS
from flodl_console.keys.help import HELP_ACTIONS
from flodl_console.keys.rank import RANK_ACTIONS
from flodl_console.keys.shell import SHELL_ACTIONS
from flodl_console.keys.topology import TOPOLOGY_ACTIONS
from flodl_console.keys.training import TRAINING_ACTIONS
from flodl_console.keys.window import WINDOW_ACTIONS

ALL_ACTIONS: Final[tuple[ConsoleAction, ...]] = (
    *SHELL_ACTIONS,
    *WINDOW_ACTIONS,
    *TRAINING_ACTIONS,
    *RANK_ACTIONS,
    *TOPOLOGY_ACTIONS,
    *EVENTS_ACTIONS,
    *FORM_ACTIONS,
    *HELP_ACTIONS,
    *DIALOG_ACTIONS,
)

_WITHOUT_RUN: Final = frozenset(
    {"help", "theme", "next-field", "previous-field", "leave-field", "detach"}
)

_BY_CALL: Final = {parse(action.call): action for action in reversed(ALL_ACTIONS)}


def action_called(
    namespace: str, name: str, parameters: tuple[object, ...]
) -> ConsoleAction | None:
    """Return the action that a call stands for; None for one of Textual's own.

    Args:
        namespace: `app` or `screen`.
        name: of the method, without `action_`.
        parameters: of the call.
    """
    return _BY_CALL.get((namespace, name, parameters))


def actions_in(scope: Scope) -> tuple[ConsoleAction, ...]:
    """Return the actions of one scope."""
    return tuple(action for action in ALL_ACTIONS if action.scope is scope)


def bindings_in(scope: Scope) -> list[BindingType]:
    """Return the bindings of one scope."""
    return bindings_of(actions_in(scope))


def everywhere(scope: Scope) -> tuple[ConsoleAction, ...]:
    """Return the shell's actions that act on a screen: none in a box, few without a run."""
    if scope in {Scope.DIALOG, Scope.HELP}:
        return ()
    shell = actions_in(Scope.SHELL)
    return tuple(one for one in shell if not needs_run(one)) if scope is Scope.FORM else shell


def needs_run(action: ConsoleAction) -> bool:
    """Return whether an action means nothing before there is a run."""
    return action.scope is Scope.SHELL and action.id not in _WITHOUT_RUN


def key_bar_actions(scope: Scope) -> tuple[ConsoleAction, ...]:
    """Return what a screen's key bar offers, the most important first."""
    offered = [*actions_in(scope), *everywhere(scope)]
    return tuple(
        sorted(
            (action for action in offered if action.priority > 0),
            key=lambda action: -action.priority,
        )
    )
