"""Every key on every screen is pressed; none of them breaks anything or asks a run unasked."""

import pytest
from console_support import (
    FakeClock,
    FakeFeed,
    FakePlayback,
    console,
    moved,
    opened,
    scene,
    screen_text,
    settled,
)
from textual.widgets import Input

from flodl_console.actions import Scope
from flodl_console.app import ConsoleApp
from flodl_console.registry import actions_in, everywhere
from flodl_console.view.records import SourceKind

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

MODES = ("window", "training", "rank", "topology", "events")
LEAVING = {"q", "ctrl+c"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def keys_on(scope: Scope) -> list[str]:
    actions = (*actions_in(scope), *everywhere(scope))
    return sorted({key for action in actions for key in action.keys} - LEAVING)


def own_keys(scope: Scope) -> list[str]:
    return sorted({key for action in actions_in(scope) for key in action.keys})


@pytest.mark.parametrize(
    ("mode", "scenario"),
    [
        ("window", "staging"),
        ("training", "lost"),
        ("rank", "training"),
        ("topology", "waiting"),
        ("events", "refused"),
    ],
)
async def test_every_key_on_every_screen_is_taken(mode: str, scenario: str, tmp_path) -> None:
    clock, feed = FakeClock(), FakeFeed(scene(scenario))
    async with console(feed, clock=clock, directory=tmp_path) as pilot:
        app = pilot.app
        assert isinstance(app, ConsoleApp)
        for key in keys_on(Scope(mode)):
            app.action_show(mode)
            await settled(pilot)
            await pilot.press(key)
            await settled(pilot)
            clock.advance(1.0)
            while len(app.screen_stack) > 1:
                await pilot.press("escape")
                await settled(pilot)
            if isinstance(app.screen.focused, Input):
                await pilot.press("escape")
            assert app.is_running
        asked = {name for name, _ in feed.asked}
        assert asked <= {"checkpoint"}, "the others ask a person first"


@pytest.mark.parametrize("mode", MODES)
async def test_every_key_on_a_screen_without_a_document_is_taken(mode: str, tmp_path) -> None:
    clock, feed = FakeClock(), FakeFeed([opened()])
    async with console(feed, clock=clock, directory=tmp_path) as pilot:
        app = pilot.app
        assert isinstance(app, ConsoleApp)
        keys = keys_on(Scope(mode)) if mode == "window" else own_keys(Scope(mode))
        for key in keys:
            app.action_show(mode)
            await pilot.press(key)
            await settled(pilot)
            clock.advance(1.0)
            while len(app.screen_stack) > 1:
                await pilot.press("escape")
                await settled(pilot)
            if isinstance(app.screen.focused, Input):
                await pilot.press("escape")
        assert feed.asked == []


@pytest.mark.parametrize("key", sorted(LEAVING))
@pytest.mark.parametrize("mode", MODES)
async def test_the_keys_that_leave_leave_every_screen(mode: str, key: str) -> None:
    async with console(FakeFeed(scene("training"))) as pilot:
        app = pilot.app
        assert isinstance(app, ConsoleApp)
        left: list[str] = []
        app.before_leaving = lambda: left.append(mode)
        app.action_show(mode)
        await settled(pilot)
        await pilot.press(key)
        await settled(pilot)
        assert left == [mode]
        assert app.return_code == 0


@pytest.mark.parametrize(
    ("key", "move"),
    [
        ("space", ("paused", 1.0)),
        ("n", ("step", 1)),
        ("b", ("step", -1)),
        ("N", ("seek", 120.0)),
        ("B", ("seek", 0.0)),
        ("f", ("speed", 2.0)),
        ("F", ("speed", 0.5)),
    ],
)
async def test_keys_move_a_playback(key: str, move: tuple[str, float]) -> None:
    feed = FakePlayback([*scene("training"), moved(60.0)])
    feed.opening = [opened(SourceKind.REPLAY)]
    async with console(feed) as pilot:
        await pilot.press(key)
        await settled(pilot)
        assert feed.moves == [move]


async def test_help_lists_every_key_of_its_screen() -> None:
    async with console(FakeFeed(scene("training")), size=(140, 130)) as pilot:
        app = pilot.app
        assert isinstance(app, ConsoleApp)
        for mode in MODES:
            app.action_show(mode)
            await settled(pilot)
            await pilot.press("question_mark")
            await settled(pilot)
            shown = screen_text(pilot)
            for action in (*actions_in(Scope(mode)), *everywhere(Scope(mode))):
                assert action.title in shown
                assert action.key_shown in shown
                assert action.tooltip[:60] in shown
            await pilot.press("q")
            await settled(pilot)
