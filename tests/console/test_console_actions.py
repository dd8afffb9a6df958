"""The registry is the only source of keys: unique, typeable, explained, and all in help."""

import importlib
import inspect
import pkgutil
import re

import pytest
from textual.actions import parse
from textual.binding import Binding
from textual.dom import DOMNode

import flodl_console.screens
import flodl_console.widgets
from flodl_console.actions import ConsoleAction, Scope, bindings_of, shown_key
from flodl_console.app import ConsoleApp
from flodl_console.registry import (
    ALL_ACTIONS,
    action_called,
    actions_in,
    everywhere,
    key_bar_actions,
)
from flodl_console.screens.console_screen import ConsoleScreen
from flodl_console.screens.dialog import Dialog
from flodl_console.screens.help import HelpScreen

EVERY_TERMINAL = re.compile(
    r"[a-zA-Z0-9]|up|down|left|right|enter|escape|tab|shift\+tab|space|question_mark|slash"
    r"|pageup|pagedown|home|end|ctrl\+c|plus|minus"
)
TYPED_KEYS = {"pageup", "pagedown", "home", "end", "shift+tab", "ctrl+c"}
"""Keys that a few keyboards lack: each has a twin, or another road."""
TWINLESS = {"shift+tab"}

BY_ID = {action.id: action for action in ALL_ACTIONS}
BINDING_IDS = {
    f"{action.id}-{number}" if number else action.id
    for action in ALL_ACTIONS
    for number in range(len(action.keys))
}
SCREENS = {screen.SCOPE: screen for screen in ConsoleApp.MODES.values()}


def our_classes() -> list[type[DOMNode]]:
    found: list[type[DOMNode]] = [ConsoleApp]
    for package in (flodl_console.screens, flodl_console.widgets):
        for info in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(info.name)
            found += [
                cls
                for _, cls in inspect.getmembers(module, inspect.isclass)
                if issubclass(cls, DOMNode) and cls.__module__ == info.name
            ]
    return found


def test_ids_are_unique() -> None:
    assert len(BY_ID) == len(ALL_ACTIONS)


@pytest.mark.parametrize("action", ALL_ACTIONS, ids=lambda action: action.id)
def test_keys_are_those_that_every_terminal_delivers(action: ConsoleAction) -> None:
    for key in action.keys:
        assert EVERY_TERMINAL.fullmatch(key), key
    if action.keys[0] in TYPED_KEYS - TWINLESS:
        assert set(action.keys) - TYPED_KEYS, "a keyboard may lack this key"


@pytest.mark.parametrize("action", ALL_ACTIONS, ids=lambda action: action.id)
def test_each_action_says_in_a_sentence_what_it_does(action: ConsoleAction) -> None:
    assert action.tooltip.endswith(".")
    assert len(action.tooltip) <= 100
    assert 0 < len(action.title) <= 22


@pytest.mark.parametrize("scope", list(Scope), ids=str)
def test_a_key_means_one_thing_on_a_screen(scope: Scope) -> None:
    seen: dict[str, str] = {}
    own = actions_in(scope)
    shell = () if scope is Scope.SHELL else everywhere(scope)
    for action in own:
        for key in action.keys:
            assert key not in seen, f"{key}: {seen.get(key)} and {action.id}"
            seen[key] = action.id
    for action in shell:
        for key in action.keys:
            clash = seen.get(key)
            assert clash is None or scope is Scope.FORM, f"{key}: {clash} and {action.id}"


@pytest.mark.parametrize("action", ALL_ACTIONS, ids=lambda action: action.id)
def test_each_action_has_a_method_that_takes_its_arguments(action: ConsoleAction) -> None:
    namespace, name, parameters = parse(action.call)
    if namespace == "app":
        owners: list[type[object]] = [ConsoleApp]
    elif action.scope is Scope.DIALOG:
        owners = [Dialog]
    elif action.scope is Scope.HELP:
        owners = [HelpScreen]
    else:
        owners = [screen for screen in our_classes() if getattr(screen, "SCOPE", 0) is action.scope]
    assert owners
    for owner in owners:
        method = getattr(owner, f"action_{name}")
        inspect.signature(method).bind(None, *parameters)
    assert action_called(namespace, name, parameters) is not None


def test_every_binding_of_ours_has_a_tooltip_and_stands_in_the_registry() -> None:
    for cls in our_classes():
        for base in cls.__mro__:
            if not base.__module__.startswith("flodl_console"):
                continue
            for binding in base.__dict__.get("BINDINGS", ()):
                assert isinstance(binding, Binding)
                assert binding.tooltip
                assert binding.id in BINDING_IDS


def test_no_screen_inherits_a_binding_that_stands_in_no_help() -> None:
    for cls in our_classes():
        if not issubclass(cls, ConsoleApp | ConsoleScreen | Dialog | HelpScreen):
            continue
        for key, bindings in cls._merge_bindings().key_to_bindings.items():
            for binding in bindings:
                assert binding.id in BINDING_IDS, f"{cls.__name__}: {key}"


def test_no_widget_that_takes_the_focus_brings_keys_that_stand_in_no_help() -> None:
    for cls in our_classes():
        if not getattr(cls, "can_focus", False):
            continue
        for key, bindings in cls._merge_bindings().key_to_bindings.items():
            for binding in bindings:
                assert binding.id in BINDING_IDS, f"{cls.__name__}: {key}"


def test_each_key_of_an_action_is_a_binding_with_its_tooltip() -> None:
    detach = BY_ID["detach"]
    first, second = bindings_of([detach])
    assert isinstance(first, Binding)
    assert isinstance(second, Binding)
    assert (first.key, second.key) == ("q", "ctrl+c")
    assert (first.id, second.id) == ("detach", "detach-1")
    assert first.tooltip == second.tooltip == detach.tooltip
    assert (first.priority, second.priority) == (False, True)


def test_keys_are_shown_as_on_a_keyboard() -> None:
    assert [shown_key(key) for key in ("question_mark", "escape", "up", "x", "X")] == [
        "?",
        "Esc",
        "↑",
        "x",
        "X",
    ]


@pytest.mark.parametrize("scope", list(SCREENS), ids=str)
def test_the_key_bar_begins_with_help_or_the_screens_own_and_offers_the_way_out(
    scope: Scope,
) -> None:
    offered = [action.id for action in key_bar_actions(scope)]
    assert "detach" in offered
    assert "help" in offered
    assert offered == sorted(offered, key=lambda name: -BY_ID[name].priority)


def test_what_ends_or_changes_a_run_is_marked_as_dangerous() -> None:
    dangerous = {action.id for action in ALL_ACTIONS if action.is_dangerous}
    assert dangerous == {"start", "stop", "stop-now", "drain", "evict"}


def test_boxes_have_no_keys_of_the_shell() -> None:
    assert everywhere(Scope.DIALOG) == ()
    assert everywhere(Scope.HELP) == ()
