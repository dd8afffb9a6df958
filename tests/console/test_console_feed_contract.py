"""What holds for every feed: live, replay and demo."""

from contextlib import asynccontextmanager

import anyio
import pytest
from console_feeds import (
    FakeClock,
    documents_of,
    events_of,
    reading,
    serving,
    take,
    until,
    windows_of,
)

from flodl_console.demo.scenarios import open_scenario
from flodl_console.feed.demo import DemoFeed
from flodl_console.feed.live import LiveFeed
from flodl_console.feed.replay import ReplayFeed
from flodl_console.view.records import (
    ClockTicked,
    DocumentArrived,
    EventsArrived,
    LinkChanged,
    LinkState,
    PagesChanged,
    PlaybackMoved,
    PlaybackReset,
    SourceKind,
    SourceOpened,
    WindowsArrived,
)
from flodl_core.telemetry.journal import Journal
from flodl_core.telemetry.recorder import RunRecorder

pytestmark = pytest.mark.anyio

NOW = "2026-01-01T00:00:00.000Z"
BEGIN_S, END_S = 16.0, 40.0
KINDS = (
    SourceOpened,
    DocumentArrived,
    WindowsArrived,
    EventsArrived,
    PagesChanged,
    LinkChanged,
    PlaybackMoved,
    PlaybackReset,
    ClockTicked,
)


@pytest.fixture
def anyio_backend():
    """The HTTP client leaves generators that trio does not forgive; the console runs here."""
    return "asyncio"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The run directory of a real record: 24 s of the scenario training."""
    run_dir = tmp_path_factory.mktemp("run")
    run = open_scenario("training")
    recorder = RunRecorder(Journal(run_dir / "records", utc_iso=lambda: NOW))
    windows = events = 0
    for at_s in (at_s for at_s in run.times() if BEGIN_S <= at_s <= END_S):
        for row in run.windows_until(at_s, since=windows).records:
            recorder.take_window(row)
            windows = row.seq
        for row in run.events_until(at_s, since=events).records:
            recorder.take_event(row)
            events = row.seq
        recorder.take_document(run.document_at(at_s))
        recorder.write()
    recorder.close()
    return run_dir


@asynccontextmanager
async def live_feed(recorded):
    async with serving(open_scenario("training"), at_s=BEGIN_S) as server:
        feed = LiveFeed("127.0.0.1", server.port, clock=FakeClock())

        async def grow():
            while True:
                server.at_s = min(server.at_s + 0.5, END_S)
                await anyio.lowlevel.checkpoint()
                with anyio.move_on_after(0.002):
                    await anyio.Event().wait()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(grow)
            yield feed
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def replay_feed(recorded):
    yield ReplayFeed(recorded, clock=FakeClock())


@asynccontextmanager
async def demo_feed(recorded):
    yield DemoFeed("training", start_s=BEGIN_S, clock=FakeClock())


FEEDS = {"live": live_feed, "replay": replay_feed, "demo": demo_feed}


@pytest.fixture(params=FEEDS)
def opened(request, recorded):
    """A block that yields the feed; its name says which kind it is."""
    block = FEEDS[request.param](recorded)
    block.kind = SourceKind(request.param)
    return block


async def test_it_opens_then_loads_then_is_there(opened):
    kind = opened.kind
    async with opened as feed, reading(feed) as records:
        first, second = await take(records, 2)
        seen = await until(records, DocumentArrived)
    assert isinstance(first, SourceOpened)
    assert first.kind is kind
    assert first.label
    assert (second.state, bool(second.detail)) == (LinkState.LOADING, True)
    links = [record.state for record in seen if isinstance(record, LinkChanged)]
    assert links == [LinkState.LIVE]


async def test_it_says_nothing_but_the_known_records(opened):
    async with opened as feed, reading(feed) as records:
        assert {type(record) for record in await take(records, 40)} <= set(KINDS)


async def test_documents_windows_and_events_come_in_order_and_once(opened):
    async with opened as feed, reading(feed) as records:
        seen = []
        while len(documents_of(seen)) < 12:
            seen += await until(records, DocumentArrived)
    uptimes = [document.run.uptime_s for document in documents_of(seen)]
    assert uptimes == sorted(uptimes)
    for rows in (windows_of(seen), events_of(seen)):
        numbers = [row.seq for row in rows]
        assert numbers == list(range(1, len(numbers) + 1))
        assert numbers


async def test_what_arrives_is_what_the_run_published(opened):
    run = open_scenario("training")
    async with opened as feed, reading(feed) as records:
        document = documents_of(await until(records, DocumentArrived))[0]
    truth = run.document_at(document.run.uptime_s)
    assert document.run == truth.run
    assert [rank.batch_count for rank in document.ranks] == [
        rank.batch_count for rank in truth.ranks
    ]
    assert document.elche.batch_counts == truth.elche.batch_counts


async def test_instants_never_go_back(opened):
    async with opened as feed, reading(feed) as records:
        instants = [r.at_s for r in await take(records, 40) if hasattr(r, "at_s")]
    assert instants == sorted(instants)


async def test_an_unknown_action_is_refused_in_words(opened):
    async with opened as feed:
        outcome = await feed.ask("dance")
        await feed.aclose()
    assert not outcome.is_accepted
    assert outcome.text


async def test_it_ends_at_once_when_it_is_no_longer_wanted(opened):
    async with opened as feed:
        records = feed.records()
        await take(records, 5)
        with anyio.fail_after(1.0):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drain, records)
                await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            await records.aclose()
            await feed.aclose()
            await feed.aclose()


async def drain(records):
    async for _ in records:
        pass
