"""The Window screen: every line within its width, whole numbers, the run's own words."""

from dataclasses import replace

import pytest
from console_support import (
    FakeFeed,
    arrived,
    console,
    document_of,
    opened,
    scene,
    screen_text,
    settled,
)
from hypothesis import given
from hypothesis import strategies as st

from flodl_console.renderables.end_lines import end_lines
from flodl_console.renderables.window_lines import window_lines
from flodl_console.renderables.wrapping import beside, line_cells, wrapped
from flodl_console.view.actions import ActionId, offer
from flodl_console.view.ending import end_panel
from flodl_console.view.fold import fold
from flodl_console.view.model import ConsoleView, initial
from flodl_console.view.tones import Phrase, Tone, text_of
from flodl_console.view.window import window_panel

WIDTHS = (57, 77, 117, 197)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def view_of(scenario: str, *, at_s: float | None = None, ranks: int = 4) -> ConsoleView:
    view = initial()
    for record in scene(scenario, at_s=at_s, ranks=ranks):
        view = fold(view, record)
    return view


def drawn(scenario: str, width: int, *, ranks: int = 4) -> list[str]:
    view = view_of(scenario, ranks=ranks)
    panel = window_panel(view)
    assert panel is not None
    lines = window_lines(panel, start=offer(view, ActionId.START), width=width)
    return [text_of(line) for line in lines]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scenario", ["waiting", "staging", "refused", "empty", "training"])
def test_no_line_is_wider_than_the_screen(scenario: str, width: int) -> None:
    for line in drawn(scenario, width):
        assert line_cells((Phrase(line),)) <= width


@pytest.mark.parametrize("width", WIDTHS)
def test_a_refusal_stands_whole_with_its_fix_at_every_width(width: int) -> None:
    words = " ".join(" ".join(drawn("refused", width)).split())
    assert "dataset signature mismatch: the run has 60000 samples, this host 50000" in words
    assert "fix: give this host the run's data, in the same order" in words


@pytest.mark.parametrize("width", WIDTHS)
def test_the_join_line_is_never_cut(width: int) -> None:
    words = " ".join(" ".join(drawn("waiting", width)).split())
    assert "flodl join 10.0.0.5:1337 --token-file token" in words


def test_the_quorum_bar_fills_with_the_ranks_that_are_in() -> None:
    line = next(line for line in drawn("waiting", 77) if line.startswith("ranks"))
    bar = line.removeprefix("ranks").split()[0]
    assert len(bar) == 40
    assert bar.count("█") == 26, "two thirds of the 39 beside the mark"
    assert bar[-1] == "│", "the quorum is at the right end"


def test_a_window_without_hosts_says_so() -> None:
    assert any("no host has joined yet" in line for line in drawn("empty", 77))


def test_narrow_rosters_keep_ranks_host_and_devices() -> None:
    head = next(line for line in drawn("waiting", 57) if "host" in line and "ranks" in line)
    assert {"ranks", "host", "devices"} <= set(head.split())
    assert "cards" not in head


def test_wide_rosters_show_cards_versions_and_addresses() -> None:
    head = next(line for line in drawn("waiting", 117) if "host" in line and "ranks" in line)
    wanted = {"ranks", "host", "devices", "cards", "torch", "nccl", "address", "joined"}
    assert wanted == set(head.split())


def test_the_start_line_is_the_key_or_the_reason() -> None:
    start = next(line for line in drawn("staging", 77) if line.startswith("start"))
    assert start.split()[1] == "s"
    refused = next(line for line in drawn("waiting", 77) if line.startswith("start"))
    assert refused == "start    ✗  quorum not met: 2/3, 1 more must join"


@pytest.mark.parametrize("width", WIDTHS)
def test_the_end_stands_whole_at_every_width(width: int) -> None:
    panel = end_panel(view_of("failed", at_s=100_000.0))
    lines = [text_of(line) for line in end_lines(panel, width=width)]
    assert all(line_cells((Phrase(line),)) <= width for line in lines)
    words = " ".join(" ".join(lines).split())
    assert panel.title in words
    assert panel.reason in words
    assert all(advice.split("/")[0] in words for advice in panel.advice)


@pytest.mark.parametrize("height", [1, 4, 9])
def test_an_end_that_does_not_fit_says_how_much_is_left_out_and_where_it_stands(
    height: int,
) -> None:
    panel = end_panel(view_of("failed", at_s=100_000.0))
    whole = end_lines(panel, width=60)
    assert end_lines(panel, width=60, height=len(whole)) == whole
    *kept, last = end_lines(panel, width=60, height=height)
    assert tuple(kept) == whole[: height - 1]
    assert text_of(last) == f"… {len(whole) - height + 1} more lines on screen 1, End"


def test_a_long_name_of_a_metric_stands_apart_from_its_value() -> None:
    panel = replace(end_panel(view_of("failed", at_s=1e5)), facts=(("nats/char", "1.336"),))
    assert text_of(end_lines(panel, width=60)[-1]) == "nats/char 1.336"


@given(
    st.text(alphabet=st.characters(codec="utf-8", categories=("L", "N", "P", "Zs")), max_size=200),
    st.integers(2, 90),
)
def test_wrapping_keeps_every_word_and_never_exceeds_the_width(text: str, width: int) -> None:
    lines = wrapped(text, width)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
    assert all(line_cells((Phrase(line),)) <= width for line in lines)


def test_a_text_beside_a_label_stays_to_the_right_of_it() -> None:
    lines = list(beside((Phrase("why      ", Tone.DIM),), "one two three", 14, tone=Tone.BAD))
    assert [text_of(line) for line in lines] == ["why      one", "         two", "         three"]


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_long_window_scrolls_by_lines() -> None:
    async with console(FakeFeed(scene("refused")), size=(80, 20)) as pilot:
        before = screen_text(pilot)
        await pilot.press("down", "down", "j")
        await settled(pilot)
        after = screen_text(pilot).splitlines()
        assert after[1] == before.splitlines()[4]
        await pilot.press("up", "k", "up")
        await settled(pilot)
        assert screen_text(pilot) == before


@pytest.mark.anyio
@pytest.mark.slow
async def test_another_width_is_drawn_anew() -> None:
    async with console(FakeFeed(scene("waiting")), size=(80, 30)) as pilot:
        assert "cards" not in screen_text(pilot)
        await pilot.resize_terminal(130, 30)
        await settled(pilot)
        assert "cards" in screen_text(pilot)


@pytest.mark.anyio
@pytest.mark.slow
async def test_copy_takes_the_join_line_without_the_token() -> None:
    async with console(FakeFeed(scene("waiting"))) as pilot:
        await pilot.press("y")
        await settled(pilot)
        assert pilot.app.clipboard == "flodl join 10.0.0.5:1337 --token-file token"


@pytest.mark.anyio
@pytest.mark.slow
async def test_before_the_first_document_there_is_nothing_to_copy() -> None:
    async with console(FakeFeed([opened()])) as pilot:
        await pilot.press("y")
        await settled(pilot)
        assert "there is nothing to copy here" in screen_text(pilot)


@pytest.mark.anyio
@pytest.mark.slow
async def test_a_host_that_joins_appears() -> None:
    records = scene("waiting")
    document = document_of(records)
    feed = FakeFeed(records)
    async with console(feed) as pilot:
        green = document.members[0].model_copy(update={"host": "green", "ranks": (2,)})
        feed.say(arrived(document.model_copy(update={"members": (*document.members, green)})))
        await settled(pilot)
        assert "green" in screen_text(pilot)
