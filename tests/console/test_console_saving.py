"""Files and copies: what is written is what is known, and a token is never on the screen."""

import csv
import io
import json
import math

import pytest
from console_support import (
    FakeClock,
    FakeFeed,
    arrived,
    console,
    document_of,
    opened,
    scene,
    screen_text,
    settled,
)

from flodl_console.settings import ConsoleSettings

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

TOKEN = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def export(pilot, clock, place: int) -> None:
    await pilot.press("w")
    clock.advance(1.0)
    await pilot.press(*["down"] * place, "enter")
    for _ in range(100):
        await settled(pilot)
        if "written:" in screen_text(pilot):
            return


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        (0, "ranks.csv"),
        (1, "ranks.json"),
        (2, "windows.csv"),
        (3, "windows.json"),
        (4, "screen.svg"),
    ],
)
async def test_each_kind_is_written_and_its_path_is_told(place: int, kind: str, tmp_path) -> None:
    clock = FakeClock()
    async with console(FakeFeed(scene("training")), clock=clock, directory=tmp_path) as pilot:
        await export(pilot, clock, place)
        (path,) = tmp_path.iterdir()
        assert path.name.endswith(f"-{kind}")
        assert "written:" in screen_text(pilot)
        text = path.read_text()
        if kind == "ranks.csv":
            rows = list(csv.DictReader(io.StringIO(text)))
            assert [row["rank"] for row in rows] == ["0", "1", "2", "3"]
        elif kind.endswith("json"):
            assert json.loads(text)
        elif kind == "screen.svg":
            assert text.startswith("<svg")
            assert "training" in text


async def test_a_directory_that_cannot_be_written_is_told(tmp_path) -> None:
    clock = FakeClock()
    gone = tmp_path / "gone"
    async with console(FakeFeed(scene("training")), clock=clock, directory=gone) as pilot:
        await export(pilot, clock, 0)
        words = " ".join(screen_text(pilot).split())
        assert f"not written: No such file or directory: {gone};" in words.replace("- ", "-")


async def test_a_file_that_does_not_fit_leaves_nothing_behind(tmp_path) -> None:
    clock, records = FakeClock(), scene("training")
    run = document_of(records).run
    name = f"flodl-{run.id}-{int(run.uptime_s)}s-ranks.csv"
    (tmp_path / f".{name}.partial").symlink_to("/dev/full")
    async with console(FakeFeed(records), clock=clock, directory=tmp_path) as pilot:
        await export(pilot, clock, 0)
        assert "not written: No space left on device" in screen_text(pilot)
        assert list(tmp_path.iterdir()) == []


async def test_before_the_first_document_nothing_is_written(tmp_path) -> None:
    clock = FakeClock()
    async with console(FakeFeed([opened()]), clock=clock, directory=tmp_path) as pilot:
        await pilot.press("w")
        clock.advance(1.0)
        await pilot.press("enter")
        await settled(pilot)
        assert "there is nothing to write yet" in screen_text(pilot)
        assert list(tmp_path.iterdir()) == []


def run_in(path, *, is_read_only: bool = False):
    """A live run whose directory is here, with its token."""
    records = scene("waiting")
    document = document_of(records)
    run = document.run.model_copy(update={"run_dir": str(path)})
    told = document.model_copy(update={"run": run})
    return FakeFeed([opened(is_read_only=is_read_only), *records[1:-1], arrived(told)])


async def test_the_token_is_copied_only_when_asked_for_and_never_shown(tmp_path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o600)
    async with console(run_in(tmp_path)) as pilot:
        await pilot.press("y")
        await settled(pilot)
        assert TOKEN not in pilot.app.clipboard
        await pilot.press("Y")
        await settled(pilot)
        assert pilot.app.clipboard == TOKEN
        assert TOKEN not in screen_text(pilot)
        assert TOKEN not in pilot.app.export_screenshot()


async def test_a_token_that_others_may_read_is_not_copied(tmp_path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    token.chmod(0o644)
    async with console(run_in(tmp_path)) as pilot:
        await pilot.press("Y")
        await settled(pilot)
        assert pilot.app.clipboard == ""
        assert "▲" in screen_text(pilot)


async def test_the_token_of_a_file_that_was_named_is_copied(tmp_path) -> None:
    path = tmp_path / "elsewhere"
    path.write_text(TOKEN)
    settings = ConsoleSettings(token_file=path)
    async with console(FakeFeed(scene("waiting")), settings=settings) as pilot:
        await pilot.press("Y")
        await settled(pilot)
        assert pilot.app.clipboard == TOKEN


async def test_without_the_token_the_option_that_names_it_is_told() -> None:
    async with console(FakeFeed(scene("waiting"))) as pilot:
        await pilot.press("Y")
        await settled(pilot)
        assert pilot.app.clipboard == ""
        assert "--token-file" in screen_text(pilot)


async def test_a_read_only_console_copies_no_token(tmp_path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    async with console(run_in(tmp_path, is_read_only=True)) as pilot:
        await pilot.press("Y")
        await settled(pilot)
        assert pilot.app.clipboard == ""


async def test_the_token_by_which_the_run_was_found_is_copied_wherever_it_came_from(
    tmp_path,
) -> None:
    """From FLODL_TOKEN or a settings file, of a run whose directory is not on this machine."""
    feed = run_in(tmp_path / "elsewhere")
    feed.join_token = TOKEN
    async with console(feed) as pilot:
        await pilot.press("Y")
        await settled(pilot)
        assert pilot.app.clipboard == TOKEN
        assert TOKEN not in screen_text(pilot)


async def test_a_read_only_console_copies_not_even_the_token_that_it_uses(tmp_path) -> None:
    feed = run_in(tmp_path, is_read_only=True)
    feed.join_token = TOKEN
    async with console(feed) as pilot:
        await pilot.press("Y")
        await settled(pilot)
        assert pilot.app.clipboard == ""


@pytest.mark.parametrize("uptime_s", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize(("place", "kind"), [(0, "ranks.csv"), (1, "ranks.json")])
async def test_a_run_of_no_age_is_written_all_the_same(
    place: int, kind: str, uptime_s: float, tmp_path
) -> None:
    records = scene("training")
    document = document_of(records)
    run = document.run.model_copy(update={"uptime_s": uptime_s})
    told = arrived(document.model_copy(update={"run": run}))
    clock = FakeClock()
    async with console(FakeFeed((*records[:-1], told)), clock=clock, directory=tmp_path) as pilot:
        await export(pilot, clock, place)
        (path,) = tmp_path.iterdir()
        assert path.name == f"flodl-{run.id}-0s-{kind}"
        if kind.endswith("json"):
            assert json.loads(path.read_text())["uptime_s"] is None
