"""Any terminal, any number of ranks: nothing breaks, nothing is cut through a number."""

import itertools
import re
import time

import pytest
from console_support import FakeFeed, console, document_of, scene, screen_text, settled

from flodl_console.app import ConsoleApp
from flodl_console.screens.training import TrainingScreen
from flodl_console.settings import MIN_HEIGHT_CELLS, MIN_WIDTH_CELLS
from flodl_console.view.ranks import COLUMNS, rank_table
from flodl_console.view.texts import cell_width

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

WIDTHS = (20, 39, 59, 60, 66, 73, 80, 81, 94, 100, 109, 110, 120, 139, 140, 171, 200, 239, 240)
HEIGHTS = (5, 9, 15, 16, 17, 19, 22, 24, 27, 29, 30, 33, 36, 44, 45, 50, 61, 70)
CUT_NUMBER = re.compile(r"[0-9]…")
RESIZES = 50
RESIZES_S = 2.0
SETTLED_S = 0.3
"""Of the processor, so that what else the machine does is not counted."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def sizes(offset: int) -> list[tuple[int, int]]:
    """Every width once and every height once, in pairs that differ with the offset."""
    pairs = itertools.islice(
        zip(itertools.cycle(WIDTHS), itertools.cycle(HEIGHTS[offset:] + HEIGHTS[:offset])),
        len(WIDTHS),
    )
    return list(pairs)


def is_too_small(width: int, height: int) -> bool:
    return width < MIN_WIDTH_CELLS or height < MIN_HEIGHT_CELLS


@pytest.mark.parametrize("ranks", [0, 1, 8, 64])
@pytest.mark.parametrize("mode", ["window", "training", "rank", "topology", "events"])
async def test_no_size_breaks_a_screen_or_cuts_a_number(mode: str, ranks: int) -> None:
    feed = FakeFeed(scene("lost", at_s=171.0, ranks=ranks))
    async with console(feed, size=(80, 24)) as pilot:
        app = pilot.app
        assert isinstance(app, ConsoleApp)
        app.action_show(mode)
        for width, height in sizes(ranks % 7 + len(mode)):
            await pilot.resize_terminal(width, height)
            await settled(pilot)
            lines = screen_text(pilot).splitlines()
            assert len(lines) <= height
            assert all(cell_width(line) <= width for line in lines), (width, height)
            cut = [line for line in lines if CUT_NUMBER.search(line)]
            assert not cut, (width, height, cut)
            if is_too_small(width, height):
                assert "too small" in screen_text(pilot), (width, height)


@pytest.mark.parametrize("width", [60, 80, 100, 140, 240])
async def test_a_column_of_the_rank_table_is_shown_whole_or_not_at_all(width: int) -> None:
    records = scene("lost", at_s=171.0, ranks=8)
    async with console(FakeFeed(records), size=(width, 40)) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, TrainingScreen)
        shown = screen.table.columns_shown
        table = rank_table(screen.view, screen.table.choice)
        text = screen_text(pilot)
        for row in table.rows:
            line = next(line for line in text.splitlines() if f" {row.rank} {row.host}" in line)
            for column, cell in zip(COLUMNS, row.cells, strict=True):
                if column.key in shown and column.key not in {"note", "host"}:
                    assert cell.text.strip() in line, (width, column.key)


async def test_fifty_resizes_in_two_seconds_settle_in_three_hundred_milliseconds() -> None:
    async with console(FakeFeed(scene("training", ranks=64)), size=(80, 24)) as pilot:
        began = time.monotonic()
        for number, (width, height) in enumerate(
            itertools.islice(itertools.cycle(sizes(3)), RESIZES)
        ):
            await pilot.resize_terminal(width, height)
            left = began + (number + 1) * RESIZES_S / RESIZES - time.monotonic()
            await pilot.pause(max(0.0, left))
        await pilot.resize_terminal(120, 36)
        spent_s = time.process_time()
        await settled(pilot)
        assert time.process_time() - spent_s < SETTLED_S
        assert "Averaging" in screen_text(pilot)


async def test_the_essentials_fit_into_80_by_24() -> None:
    records = scene("lost", at_s=171.0, ranks=8)
    document = document_of(records)
    async with console(FakeFeed(records), size=(80, 24)) as pilot:
        lines = screen_text(pilot).splitlines()
        assert "silent" in lines[1]
        assert document.run.name in lines[2]
        assert "loss" in lines[3]
        shown = [
            rank.rank
            for rank in document.ranks
            if any(f" {rank.rank} {rank.host}" in line for line in lines)
        ]
        assert shown == list(range(8))
        assert any("cycle" in line for line in lines)
        assert any("ElChe" in line for line in lines)
