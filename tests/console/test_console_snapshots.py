"""Every screen and every designed state, as a picture.

After an intended change of looks run

    pytest tests/console/test_console_snapshots.py --snapshot-update

with the Python that the file is written for, and look at the pictures that changed.
"""

import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
from console_support import (
    FakeClock,
    FakeFeed,
    FakePlayback,
    link,
    moved,
    opened,
    scene,
    settled,
)
from textual.pilot import Pilot

from flodl_console.app import ConsoleApp
from flodl_console.demo.scenarios import open_scenario
from flodl_console.feed.source import Feed
from flodl_console.run_form import FormReview
from flodl_console.settings import ConsoleSettings, ThemeName
from flodl_console.view.records import LinkState, SourceKind

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.version_info[:2] != (3, 11), reason="snapshots are written by one Python only"
    ),
]

SIZES = ((80, 24), (120, 36), (200, 50))
LOOKS = {
    "light": ConsoleSettings(theme=ThemeName.LIGHT),
    "colourless": ConsoleSettings(is_colourless=True),
}
STALE_S = 12.0


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is fed, which keys are pressed, how far the clock is moved then."""

    feed: Callable[[], Feed | None]
    keys: tuple[str, ...] = ()
    later_s: float = 0.0


def shows(scenario: str, *keys: str, ranks: int = 4) -> Scene:
    """A scenario at the moment that shows what it is about."""
    at_s = open_scenario(scenario, ranks=ranks).showcase_s
    return Scene(feed=lambda: FakeFeed(scene(scenario, at_s=at_s, ranks=ranks)), keys=keys)


def disconnected() -> Feed:
    lost = link(LinkState.DISCONNECTED, "no answer within 3 s", retry_in_s=4.0)
    return FakeFeed((*scene("training"), lost))


def replayed() -> Feed:
    records = (opened(SourceKind.REPLAY), *scene("training")[1:], moved(620.0, is_paused=True))
    return FakePlayback(records)


SCENES = {
    "window-waiting": shows("waiting", "1"),
    "window-staging": shows("staging", "1"),
    "window-refused": shows("refused", "1"),
    "training": shows("training", "2"),
    "training-late": shows("late", "2", "i", ranks=8),
    "training-lost": shows("lost", "2", ranks=64),
    "training-stalled": shows("stalled", "2"),
    "training-saving": shows("saving", "2"),
    "rank": shows("late", "2", "i", "enter"),
    "rank-lost": shows("lost", "2", "down", "enter"),
    "topology": shows("lost", "4", ranks=12),
    "events": shows("night", "5"),
    "help": shows("training", "2", "question_mark"),
    "confirm-start": shows("staging", "1", "s"),
    "confirm-stop": shows("training", "2", "x"),
    "palette": shows("training", "2", "a"),
    "form": Scene(feed=lambda: None),
    "loading": Scene(feed=lambda: FakeFeed((opened(),)), keys=("2",)),
    "empty": shows("empty", "1", ranks=0),
    "empty-training": shows("empty", "2", ranks=0),
    "stale": Scene(feed=lambda: FakeFeed(scene("training")), keys=("2",), later_s=STALE_S),
    "disconnected": Scene(feed=disconnected, keys=("2",)),
    "held": Scene(feed=disconnected, keys=("2", "space"), later_s=STALE_S),
    "replay": Scene(feed=replayed, keys=("2",)),
    "finished": shows("done", "2"),
    "failed": shows("failed", "2"),
    "failed-window": shows("failed", "1"),
}
LOOKED_AT = (
    "window-refused",
    "training-late",
    "rank",
    "topology",
    "events",
    "help",
    "confirm-stop",
    "form",
    "loading",
    "empty",
    "disconnected",
    "finished",
    "failed",
)
"""Drawn in the light theme and without colour too."""


async def no_launch(review: FormReview) -> None:
    raise AssertionError("nothing is launched here")


def prepared(
    shown: Scene, settings: ConsoleSettings
) -> tuple[ConsoleApp, Callable[[Pilot[int]], Awaitable[None]]]:
    """Return the app, and what is done with it before the picture is taken."""
    clock = FakeClock()
    app = ConsoleApp(settings, feed=shown.feed(), clock=clock, launch=no_launch)

    async def act(pilot: Pilot[int]) -> None:
        await settled(pilot)
        for key in shown.keys:
            await pilot.press(key)
            await settled(pilot)
        if shown.later_s:
            clock.advance(shown.later_s)
            app._tick()
            await settled(pilot)

    return app, act


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
@pytest.mark.parametrize("name", SCENES)
def test_a_screen_looks_as_it_did(name: str, size: tuple[int, int], snap_compare) -> None:
    app, act = prepared(SCENES[name], ConsoleSettings())
    assert snap_compare(app, terminal_size=size, run_before=act)


@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_screen_looks_as_it_did_in_other_colours(name: str, look: str, snap_compare) -> None:
    app, act = prepared(SCENES[name], LOOKS[look])
    assert snap_compare(app, terminal_size=(80, 24), run_before=act)


@pytest.mark.parametrize("theme", [ThemeName.CONTRAST, ThemeName.SAFE])
def test_the_other_themes_look_as_they_did(theme: ThemeName, snap_compare) -> None:
    app, act = prepared(SCENES["training-late"], ConsoleSettings(theme=theme))
    assert snap_compare(app, terminal_size=(120, 36), run_before=act)


def test_the_ascii_look_is_as_it_was(snap_compare) -> None:
    app, act = prepared(SCENES["training-late"], ConsoleSettings(is_ascii=True))
    assert snap_compare(app, terminal_size=(120, 36), run_before=act)


@pytest.mark.parametrize(
    "size", [(59, 24), (80, 15), (20, 5)], ids=lambda size: f"{size[0]}x{size[1]}"
)
def test_a_terminal_that_is_too_small_says_so(size: tuple[int, int], snap_compare) -> None:
    app, act = prepared(SCENES["training"], ConsoleSettings())
    assert snap_compare(app, terminal_size=size, run_before=act)
