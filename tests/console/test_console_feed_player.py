"""Playing a record: speed, pause, step, seek, the end, and records that cannot be read."""

from dataclasses import dataclass, field
from pathlib import Path

import anyio
import pytest
from console_feeds import (
    FakeClock,
    documents_of,
    events_of,
    reading,
    resets_of,
    take,
    until,
    windows_of,
)

from flodl_console.demo.scenarios import open_scenario
from flodl_console.feed.clock import RealClock
from flodl_console.feed.demo import DemoFeed
from flodl_console.feed.playhead import Playhead
from flodl_console.feed.replay import ReplayFeed
from flodl_console.view.records import (
    DocumentArrived,
    LinkChanged,
    LinkState,
    PlaybackMoved,
    PlaybackReset,
    WindowsArrived,
)
from flodl_core.errors import FlodlError
from flodl_core.telemetry.records import EventPage, WindowPage

pytestmark = pytest.mark.anyio


@dataclass
class Tape:
    """A record by hand: one document at each time, no windows or events."""

    at_s: list
    length_s: float
    missing: tuple = ()
    broken_at_s: float = float("inf")
    read_s: list = field(default_factory=list)

    def times(self):
        return self.at_s

    def document_at(self, position_s):
        if position_s >= self.broken_at_s:
            raise FlodlError("line 7 is torn")
        self.read_s.append(position_s)
        if position_s == 3.0:
            self.missing = ("there is no record of blue",)
        return open_scenario("waiting").document_at(position_s)

    def windows_until(self, position_s, *, since=0):
        return WindowPage(oldest_seq=0, newest_seq=0)

    def events_until(self, position_s, *, since=0):
        return EventPage(oldest_seq=0, newest_seq=0)


def playing(tape, clock=None, **given):
    return ReplayFeed(Path("tape"), clock=clock or FakeClock(), open_run=lambda _: tape, **given)


def demo(start_s, *, is_paused=False, clock=None, scenario="training"):
    return DemoFeed(scenario, start_s=start_s, is_paused=is_paused, clock=clock or FakeClock())


async def moves(records, count):
    seen = []
    for _ in range(count):
        seen += await until(records, PlaybackMoved)
    return seen


def positions(seen):
    return [record.position_s for record in seen if isinstance(record, PlaybackMoved)]


async def test_it_plays_as_fast_as_it_happened():
    clock = FakeClock()
    async with reading(demo(100.0, clock=clock)) as records:
        seen = await moves(records, 4)
    assert positions(seen) == [100.0, 100.5, 101.0, 101.5]
    assert clock.waits_s == [0.5, 0.5, 0.5]
    assert [d.run.uptime_s for d in documents_of(seen)] == [100.0, 100.5, 101.0, 101.5]


async def test_at_four_times_the_speed_it_waits_a_quarter():
    clock = FakeClock()
    feed = demo(100.0, clock=clock)
    feed.set_speed(4.0)
    async with reading(feed) as records:
        seen = await moves(records, 4)
    assert clock.waits_s[-1] == 0.125
    assert {r.speed for r in seen[-3:] if isinstance(r, PlaybackMoved)} == {4.0}


async def test_it_shows_at_most_twenty_documents_a_second():
    clock = FakeClock()
    feed = demo(100.0, clock=clock)
    feed.set_speed(64.0)
    async with reading(feed) as records:
        await moves(records, 2)
        seen = await moves(records, 3)
    assert clock.waits_s[-3:] == [0.05, 0.05, 0.05]
    steps = [b - a for a, b in zip(positions(seen), positions(seen)[1:], strict=False)]
    assert steps == pytest.approx([3.2, 3.2])
    assert len(documents_of(seen)) == 3


async def test_speeds_have_bounds():
    head = Playhead([0.0], 10.0, begin_s=0.0)
    head.set_speed(1000.0)
    fastest = head.speed
    head.set_speed(0.0)
    assert (fastest, head.speed) == (64.0, 0.25)


async def test_paused_it_stands_until_it_is_let_go():
    clock = FakeClock()
    feed = demo(100.0, is_paused=True, clock=clock)
    async with reading(feed) as records:
        seen = await moves(records, 1)
        feed.set_paused(is_paused=False)
        seen += await moves(records, 3)
        feed.set_paused(is_paused=True)
        held = await moves(records, 1)
    assert positions(seen) == [100.0, 100.0, 100.5, 101.0]
    assert positions(held) == [101.0]
    assert held[-1].is_paused
    assert documents_of(held) == []


async def test_a_step_forward_pauses_and_shows_the_next_document():
    feed = demo(100.0)
    async with reading(feed) as records:
        await moves(records, 1)
        feed.step(3)
        seen = await moves(records, 1)
    assert positions(seen) == [101.5]
    assert seen[-1].is_paused
    assert resets_of(seen) == []
    assert [d.run.uptime_s for d in documents_of(seen)] == [101.5]


async def test_a_step_back_makes_what_was_known_void():
    feed = demo(100.0, is_paused=True)
    async with reading(feed) as records:
        await moves(records, 1)
        feed.step(-1)
        seen = await moves(records, 1)
    assert isinstance(seen[0], PlaybackReset)
    assert positions(seen) == [99.5]
    run = open_scenario("training")
    assert [row.seq for row in windows_of(seen)] == list(
        range(1, run.windows_until(99.5).newest_seq + 1)
    )
    assert [d.run.uptime_s for d in documents_of(seen)] == [99.5]


async def test_steps_stop_at_both_ends():
    feed = demo(1.0, is_paused=True, scenario="waiting")
    async with reading(feed) as records:
        await moves(records, 1)
        feed.step(-99)
        first = await moves(records, 1)
        feed.step(99_999)
        last = await moves(records, 1)
    assert positions(first) + positions(last) == [0.0, 240.0]


async def test_a_seek_says_reset_then_pages_then_the_document():
    feed = demo(700.0, is_paused=True)
    run = open_scenario("training")
    async with reading(feed) as records:
        await moves(records, 1)
        feed.seek(300.0)
        seen = await moves(records, 1)
    kinds = [type(record).__name__ for record in seen]
    assert kinds == [
        "PlaybackReset",
        "WindowsArrived",
        "EventsArrived",
        "DocumentArrived",
        "PlaybackMoved",
    ]
    assert windows_of(seen)[-1].seq == run.windows_until(300.0).newest_seq
    assert events_of(seen)[-1].seq == run.events_until(300.0).newest_seq
    assert seen[-1].is_paused


@pytest.mark.parametrize(("asked_s", "got_s"), [(-5.0, 0.0), (1e9, 1800.0)])
async def test_a_seek_outside_is_clamped(asked_s, got_s):
    feed = demo(100.0, is_paused=True)
    async with reading(feed) as records:
        await moves(records, 1)
        feed.seek(asked_s)
        seen = await moves(records, 1)
    assert positions(seen) == [got_s]


async def test_playing_on_after_a_seek_repeats_no_window():
    feed = demo(100.0)
    async with reading(feed) as records:
        await moves(records, 2)
        feed.seek(200.0)
        seen = await until(records, PlaybackReset)
        seen = await moves(records, 12)
    numbers = [row.seq for row in windows_of(seen)]
    assert numbers == list(range(1, numbers[-1] + 1))


@pytest.mark.slow
async def test_many_windows_come_in_pages_of_five_hundred():
    feed = demo(5000.0, is_paused=True, scenario="night")
    async with reading(feed) as records:
        seen = await moves(records, 1)
    pages = [len(record.page.records) for record in seen if isinstance(record, WindowsArrived)]
    assert len(pages) > 2
    assert set(pages[:-1]) == {500}


async def test_the_end_pauses_and_going_on_begins_anew():
    feed = demo(239.0, scenario="waiting")
    async with reading(feed) as records:
        seen = await until(records, PlaybackMoved, is_paused=True)
        feed.set_paused(is_paused=False)
        again = await moves(records, 2)
    assert positions(seen) == [239.0, 239.5, 240.0]
    assert isinstance(again[0], PlaybackReset)
    assert positions(again) == [0.0, 0.5]


async def test_several_orders_at_once_are_followed_in_their_order():
    feed = demo(100.0, is_paused=True)
    async with reading(feed) as records:
        await moves(records, 1)
        feed.seek(50.0)
        feed.step(2)
        feed.set_speed(8.0)
        seen = await moves(records, 1)
    assert (seen[-1].position_s, seen[-1].speed) == (51.0, 8.0)


async def test_a_long_gap_is_crossed_in_whole_seconds():
    clock = FakeClock()
    tape = Tape([0.0, 0.5, 4.0], 4.0)
    async with reading(playing(tape, clock)) as records:
        seen = await until(records, PlaybackMoved, is_paused=True)
    assert positions(seen) == [0.0, 0.5, 1.5, 2.5, 3.5, 4.0]
    assert tape.read_s == [0.0, 0.5, 4.0]


async def test_a_record_that_begins_late_is_played_from_there():
    async with reading(playing(Tape([7.0, 8.0], 8.0))) as records:
        seen = await moves(records, 1)
    assert positions(seen) == [7.0]
    assert len(documents_of(seen)) == 1


async def test_before_the_first_document_there_is_none():
    feed = playing(Tape([2.0, 3.0], 3.0), is_paused=True)
    async with reading(feed) as records:
        await moves(records, 1)
        feed.seek(1.0)
        seen = await moves(records, 1)
    assert documents_of(seen) == []


async def test_what_is_missing_of_a_record_is_named_when_it_is_found():
    tape = Tape([0.0, 3.0], 3.0, missing=("2 documents cannot be rebuilt",))
    async with reading(playing(tape)) as records:
        opened = await until(records, LinkChanged, state=LinkState.LIVE)
        seen = await until(records, LinkChanged, state=LinkState.LIVE)
    assert opened[-1].detail.endswith("; 2 documents cannot be rebuilt")
    assert seen[-1].detail.endswith("; there is no record of blue")


async def test_a_place_that_cannot_be_read_is_named_and_can_be_left():
    tape = Tape([0.0, 1.0, 2.0], 2.0, broken_at_s=1.0)
    feed = playing(tape)
    async with reading(feed) as records:
        seen = await until(records, LinkChanged, state=LinkState.DISCONNECTED)
        moved = await until(records, PlaybackMoved)
        feed.seek(0.0)
        back = await until(records, DocumentArrived)
    assert seen[-1].detail == "the record cannot be read here: line 7 is torn"
    assert moved[-1].is_paused
    assert len(documents_of(back)) == 1


@pytest.mark.parametrize("error", [FlodlError("no record there", fix="x"), OSError("gone")])
async def test_a_record_that_cannot_be_opened_is_named_and_nothing_follows(error):
    def refuse(_):
        raise error

    feed = ReplayFeed(Path("tape"), clock=FakeClock(), open_run=refuse)
    async with reading(feed) as records:
        seen = await take(records, 3)
        with pytest.raises(TimeoutError):
            await take(records, 1, limit_s=0.02)
    assert seen[-1].state is LinkState.ENDED
    assert seen[-1].detail.endswith(f"cannot be played: {str(error).splitlines()[0]}")


async def test_a_replay_takes_no_action():
    outcome = await playing(Tape([0.0], 0.0)).ask("stop")
    assert not outcome.is_accepted
    assert "replay" in outcome.text


async def test_a_demo_answers_every_action_and_remembers_it():
    feed = demo(100.0)
    for action in ("start", "stop", "checkpoint", "drain", "evict"):
        outcome = await feed.ask(action, host="blue")
        assert outcome.is_accepted
        assert outcome.text.startswith("demo: a run would")
    assert len(feed.asked) == 5
    assert not (await feed.ask("dance")).is_accepted


async def test_documents_of_one_instant_are_one_step():
    head = Playhead([1.0, 2.0, 2.0, 3.0], 3.0, begin_s=3.0)
    went = []
    for _ in range(3):
        head.step(-1)
        went.append(head.position_s)
    assert went == [2.0, 1.0, 1.0]


async def test_a_step_in_an_empty_record_only_pauses():
    head = Playhead([], 5.0, begin_s=0.0)
    head.step(1)
    assert (head.position_s, head.is_paused, head.take_jump()) == (0.0, True, False)


async def test_the_real_clock_waits_for_time_or_for_an_event():
    clock, event = RealClock(), anyio.Event()
    began_s = clock.now()
    await clock.wait(event, 0.01)
    assert clock.now() - began_s >= 0.009
    event.set()
    await clock.wait(event, None)
    with pytest.raises(TimeoutError), clock.limit(0.01):
        await anyio.Event().wait()
