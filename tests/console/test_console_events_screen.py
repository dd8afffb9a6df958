"""The Events screen: the cursor follows its event, filters narrow, the root cause leads on."""

import pytest
from console_support import FakeFeed, console, opened, scene, screen_text, settled
from textual.pilot import Pilot

from flodl_console.app import ConsoleApp
from flodl_console.renderables.event_lines import MAX_DETAIL_LINES, event_detail, event_lines
from flodl_console.renderables.wrapping import line_cells
from flodl_console.screens.events import EventsScreen
from flodl_console.view.events import EventRow
from flodl_console.view.records import EventsArrived
from flodl_console.view.tones import Glyph, Tone, text_of
from flodl_core.telemetry.records import EventKind, EventPage, EventRecord


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def event(seq: int, **fields: object) -> EventRecord:
    known: dict[str, object] = {
        "seq": seq,
        "at": f"2026-01-01T00:{seq // 60:02d}:{seq % 60:02d}Z",
        "uptime_s": float(seq),
        "kind": EventKind.LIFECYCLE,
        "severity": "info",
        "name": "epoch_ended",
        "text": f"thing number {seq} happened",
    }
    return EventRecord.model_validate({**known, **fields})


def page(*events: EventRecord) -> EventsArrived:
    newest = events[-1].seq if events else 0
    return EventsArrived(
        page=EventPage(oldest_seq=1, newest_seq=newest, records=events), at_s=1000.0
    )


def lost_host(first: int) -> tuple[EventRecord, ...]:
    cause = event(
        first,
        kind=EventKind.ALERT,
        severity="critical",
        name="host_lost",
        host="blue",
        text="blue is gone",
        fix="look at blue",
    )
    ranks = (
        event(
            first + 1 + rank,
            kind=EventKind.ALERT,
            severity="critical",
            name="rank_lost",
            rank=rank,
            host="blue",
            text=f"rank {rank} is lost",
            cause_seq=first,
        )
        for rank in range(2)
    )
    return (cause, *ranks)


def row(**fields: object) -> EventRow:
    known: dict[str, object] = {
        "seq": 1,
        "time": "14:03:07",
        "age": "2 h 07 m",
        "kind": EventKind.ALERT,
        "severity": "critical",
        "tone": Tone.BAD,
        "glyph": Glyph.BAD,
        "where": "rank 3 on blue",
        "text": "a long sentence " * 12,
        "fix": "do this and that " * 8,
        "who": "",
        "count": 3,
        "depth": 1,
        "consequences": 0,
        "is_folded": False,
        "fold_text": "",
        "rank": 3,
        "host": "blue",
    }
    return EventRow(**{**known, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_a_row_fits_its_width_and_ends_with_its_count(width: int) -> None:
    (line,) = event_lines([row()], width=width)
    assert line_cells(line) <= width
    assert text_of(line).endswith("×3")
    assert "14:03:07" in text_of(line)


PLACES = (("run", "one"), ("rank 1 on red", "two"))


def test_the_column_of_places_is_as_wide_as_its_longest() -> None:
    rows = [row(where=where, text=text, depth=0) for where, text in PLACES]
    for width in (80, 120):
        first, second = (text_of(line) for line in event_lines(rows, width=width))
        assert first.index("one") == second.index("two")
        assert "rank 1 on red  two" in second


@pytest.mark.parametrize("width", [60, 80, 200])
def test_the_detail_fits_and_is_bounded(width: int) -> None:
    lines = event_detail(row(), width=width)
    assert len(lines) <= MAX_DETAIL_LINES
    assert all(line_cells(line) <= width for line in lines)


def test_the_detail_names_who_asked_for_it() -> None:
    who = "operator at 10.0.0.9"
    first, *_ = event_detail(row(who=who, severity="info", kind=EventKind.OPERATOR), width=100)
    assert text_of(first).endswith(f"· {who}")


pilots = [pytest.mark.anyio, pytest.mark.slow]


def screen_of(pilot: Pilot[int]) -> EventsScreen:
    assert isinstance(pilot.app, ConsoleApp)
    screen = pilot.app.front
    assert isinstance(screen, EventsScreen)
    return screen


def listed(pilot: Pilot[int]) -> list[str]:
    return [text_of(line).strip() for line in screen_of(pilot).rows.lines]


def feed_of(*events: EventRecord) -> FakeFeed:
    return FakeFeed([opened(), scene("training")[-1], page(*events)])


async def shown(pilot: Pilot[int], *keys: str) -> None:
    await pilot.press("5", *keys)
    await settled(pilot)


class TestTheList:
    pytestmark = pilots

    async def test_the_newest_event_stands_first_and_is_chosen(self) -> None:
        async with console(feed_of(*(event(n) for n in range(1, 6)))) as pilot:
            await shown(pilot)
            assert [line[-22:] for line in listed(pilot)] == [
                f"hing number {n} happened"[-22:] for n in (5, 4, 3, 2, 1)
            ]
            assert screen_of(pilot).rows.marked == 0

    async def test_the_chosen_newest_follows_what_comes(self) -> None:
        feed = feed_of(event(1))
        async with console(feed) as pilot:
            await shown(pilot)
            feed.say(page(event(2)))
            await settled(pilot)
            assert screen_of(pilot).rows.marked == 0
            assert "number 2" in screen_of(pilot).text_to_copy()

    async def test_the_cursor_follows_its_event_when_others_come(self) -> None:
        feed = feed_of(*(event(n) for n in range(1, 6)))
        async with console(feed) as pilot:
            await shown(pilot, "down", "down")
            assert "number 3" in screen_of(pilot).text_to_copy()
            feed.say(page(event(6), event(7)))
            await settled(pilot)
            assert "number 3" in screen_of(pilot).text_to_copy()
            assert screen_of(pilot).rows.marked == 4

    async def test_the_cursor_stays_in_sight_through_thousands(self) -> None:
        async with console(feed_of(*(event(n) for n in range(1, 501)))) as pilot:
            await shown(pilot, "end", "home")
            assert "number 1 " in screen_of(pilot).text_to_copy() + " "
            marked = screen_of(pilot).rows.marked
            assert marked is not None
            assert "number 1 happened" in listed(pilot)[marked]
            await pilot.press("u", "m", "pageup", "pagedown", "h")
            await settled(pilot)
            assert "number 1 happened" in screen_of(pilot).text_to_copy()
            await pilot.press("l")
            await settled(pilot)
            assert "number 500 happened" in screen_of(pilot).text_to_copy()

    async def test_consequences_are_folded_under_their_cause_until_asked_for(self) -> None:
        async with console(feed_of(event(1), *lost_host(2))) as pilot:
            await shown(pilot)
            assert len(listed(pilot)) == 2
            assert "blue is gone" in listed(pilot)[0]
            await pilot.press("o")
            await settled(pilot)
            assert len(listed(pilot)) == 4
            assert "blue is gone" in listed(pilot)[0]
            assert "rank 0 is lost" in " ".join(listed(pilot)[1:3])

    async def test_the_kind_key_walks_the_kinds_and_comes_round(self) -> None:
        async with console(feed_of(event(1), *lost_host(2))) as pilot:
            await shown(pilot)
            counts = []
            for _ in range(len(EventKind) + 1):
                await pilot.press("i")
                await settled(pilot)
                counts.append("blue is gone" in screen_text(pilot))
            assert counts == [kind is EventKind.ALERT for kind in EventKind] + [True]

    async def test_the_severity_key_leaves_out_what_is_less_grave(self) -> None:
        async with console(feed_of(event(1), event(2, severity="warn"), *lost_host(3))) as pilot:
            await shown(pilot)
            lengths = [len(listed(pilot))]
            for _ in range(3):
                await pilot.press("v")
                await settled(pilot)
                lengths.append(len(listed(pilot)))
            assert lengths == [3, 2, 1, 3]

    async def test_a_search_narrows_while_one_types_and_stays_after_enter(self) -> None:
        async with console(feed_of(*(event(n) for n in range(1, 31)))) as pilot:
            await shown(pilot, "slash", *"number", "space", "7")
            assert len(listed(pilot)) == 3, "7, 17 and 27"
            await pilot.press("enter", "down")
            await settled(pilot)
            assert screen_of(pilot).search.value == "number 7"
            assert screen_of(pilot).focused is None

    async def test_escape_drops_the_search(self) -> None:
        async with console(feed_of(*(event(n) for n in range(1, 4)))) as pilot:
            await shown(pilot, "slash", "z", "z")
            assert "thing number" not in screen_text(pilot)
            await pilot.press("escape")
            await settled(pilot)
            assert len(listed(pilot)) == 3
            assert not screen_of(pilot).search.display

    async def test_enter_goes_to_the_rank_of_the_event(self) -> None:
        async with console(feed_of(event(1), event(2, rank=3, text="rank 3 is slow"))) as pilot:
            await shown(pilot, "enter")
            assert pilot.app.current_mode == "rank"
            assert "rank 3" in screen_text(pilot)

    async def test_an_event_about_no_rank_leads_nowhere_and_says_so(self) -> None:
        async with console(feed_of(event(1))) as pilot:
            await shown(pilot, "enter")
            assert pilot.app.current_mode == "events"
            assert "about no single rank" in screen_text(pilot)

    async def test_without_events_there_is_a_word_instead_of_rows(self) -> None:
        async with console(FakeFeed([opened()])) as pilot:
            await shown(pilot, "down", "up", "home", "y")
            assert screen_of(pilot).rows.marked is None
            assert listed(pilot)[0]

    async def test_copy_takes_the_chosen_event_with_its_fix(self) -> None:
        async with console(feed_of(*lost_host(1))) as pilot:
            await shown(pilot, "y")
            assert pilot.app.clipboard == "00:00:01 critical blue: blue is gone Fix: look at blue"
