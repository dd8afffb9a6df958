"""The pictures of the console, made from scenarios of the demo: one command makes all.

    python -m flodl_console.screenshots [DIRECTORY]

What it is: which pictures there are, and their making. The same code makes the same SVG
on each machine; a PNG carries the digest of the SVG that it was made from.
What it is not: a part of the running console.
Who drives it: a person after a change of looks; a test compares the SVGs.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from textual.pilot import Pilot

from flodl_console.app import ConsoleApp
from flodl_console.demo.still import StillFeed, still_records
from flodl_console.settings import ConsoleSettings, ThemeName
from flodl_console.svg_pictures import digest_in, digest_of, drawn_svg, png_of

DIRECTORY: Final = Path(__file__).resolve().parents[1] / "screenshots"
NOW_S: Final = 1000.0
QUIET_ROUNDS: Final = 4
MAX_ROUNDS: Final = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One picture."""

    name: str
    """Of its files, without an ending."""
    scenario: str
    ranks: int = 4
    width: int = 120
    height: int = 36
    theme: ThemeName = ThemeName.DARK
    keys: tuple[str, ...] = ()
    """Pressed before the picture is taken."""
    caption: str
    """One sentence: what is seen."""


SHOTS: Final = (
    Shot(
        name="training",
        scenario="late",
        ranks=8,
        keys=("2", "i"),
        caption="Training: rank 1 is ten times as slow as before, and the first line says so.",
    ),
    Shot(
        name="training-80x24",
        scenario="lost",
        width=80,
        height=24,
        keys=("2", "i"),
        caption="The same screen in 80×24: a host is silent and will be lost.",
    ),
    Shot(
        name="window",
        scenario="staging",
        height=30,
        keys=("1",),
        caption="Window: the quorum is met, one host is missing, the operator may start.",
    ),
    Shot(
        name="window-refused",
        scenario="refused",
        height=36,
        keys=("1",),
        caption="Window: hosts that were turned away, each with the reason and what to do.",
    ),
    Shot(
        name="start",
        scenario="staging",
        width=100,
        height=30,
        keys=("1", "s"),
        caption="What a start would mean, in numbers; the first answer is No.",
    ),
    Shot(
        name="rank",
        scenario="late",
        ranks=8,
        keys=("2", "i", "enter"),
        caption="Rank: everything about one rank, and how it went.",
    ),
    Shot(
        name="topology",
        scenario="lost",
        ranks=12,
        height=30,
        keys=("4",),
        caption="Topology: who talks through whom, and how each of them is.",
    ),
    Shot(
        name="events",
        scenario="night",
        height=30,
        keys=("5",),
        caption="Events of a night: root causes first, what followed folded under them.",
    ),
    Shot(
        name="stalled",
        scenario="stalled",
        keys=("2", "i"),
        caption="An average that waits: for whom, how long, and what happens at the ceiling.",
    ),
    Shot(
        name="failed",
        scenario="failed",
        keys=("2",),
        caption="A run that failed: the diagnosis, and what to do.",
    ),
    Shot(
        name="many",
        scenario="training",
        ranks=64,
        width=200,
        height=50,
        keys=("2",),
        caption="64 ranks in a large terminal.",
    ),
    Shot(
        name="light",
        scenario="training",
        theme=ThemeName.LIGHT,
        keys=("2",),
        caption="The light theme.",
    ),
    Shot(
        name="contrast",
        scenario="training",
        theme=ThemeName.CONTRAST,
        keys=("2",),
        caption="The theme of high contrast.",
    ),
    Shot(
        name="safe",
        scenario="late",
        theme=ThemeName.SAFE,
        keys=("2",),
        caption="The theme for every kind of colour vision.",
    ),
    Shot(
        name="help",
        scenario="training",
        keys=("2", "question_mark"),
        caption="Help: every key of the screen and what it does.",
    ),
)


async def take(shot: Shot) -> str:
    """Return a picture as SVG.

    Raises:
        RuntimeError: the console does not come to rest.
    """
    feed = StillFeed(still_records(shot.scenario, ranks=shot.ranks, now_s=NOW_S))
    app = ConsoleApp(ConsoleSettings(theme=shot.theme), feed=feed, clock=lambda: NOW_S)
    async with app.run_test(size=(shot.width, shot.height)) as pilot:
        await _settle(pilot, feed)
        for key in shot.keys:
            await pilot.press(key)
            await _settle(pilot, feed)
        return drawn_svg(app.export_screenshot(title="flodl console"))


async def _settle(pilot: Pilot[int], feed: StillFeed) -> None:
    """Wait until everything that was said is drawn and nothing more happens."""
    quiet = 0
    for _ in range(MAX_ROUNDS):
        await pilot.pause(0)
        pumps = [pilot.app, *pilot.app.screen.walk_children(with_self=True)]
        is_quiet = feed.is_told and all(pump.message_queue_size == 0 for pump in pumps)
        quiet = quiet + 1 if is_quiet else 0
        if quiet >= QUIET_ROUNDS:
            return
    raise RuntimeError("the console does not come to rest")


def write(directory: Path, shots: Sequence[Shot] = SHOTS) -> list[Path]:
    """Make the pictures that changed; return the files that were written."""
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for shot in shots:
        svg = asyncio.run(take(shot))
        drawing, picture = directory / f"{shot.name}.svg", directory / f"{shot.name}.png"
        if not drawing.exists() or drawing.read_text(encoding="utf-8") != svg:
            drawing.write_text(svg, encoding="utf-8")
            written.append(drawing)
        if not picture.exists() or digest_in(picture.read_bytes()) != digest_of(svg):
            picture.write_bytes(png_of(svg))
            written.append(picture)
    return written


def main() -> None:
    """Make all pictures and say which changed."""
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY
    for path in write(directory):
        sys.stdout.write(f"{path}\n")


if __name__ == "__main__":
    main()
