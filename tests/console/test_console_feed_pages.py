"""The past of a live run, over roads that are slow: it comes in pieces, and the run stays live."""

import anyio
import pytest
from console_feeds import (
    FakeClock,
    always,
    answer,
    documents_of,
    events_of,
    json_answer,
    reading,
    serving,
    silent,
    until,
    windows_of,
)

from flodl_console.demo.scenarios import open_scenario
from flodl_console.feed.live import LiveFeed
from flodl_console.view.records import DocumentArrived, LinkChanged, LinkState, PagesChanged

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    """The HTTP client leaves generators that trio does not forgive; the console runs here."""
    return "asyncio"


@pytest.fixture(scope="module")
def training():
    return open_scenario("training")


def live(server, clock):
    return LiveFeed("127.0.0.1", server.port, clock=clock)


def links_of(records):
    return [record.state for record in records if isinstance(record, LinkChanged)]


def limits_of(server, path):
    return [int(query["limit"]) for _, asked, query in server.requests if asked == path]


def paths_of(server):
    return [path for _, path, _ in server.requests]


def slow_above(server, clock, records):
    """An override: only pages of at most so many records come in time."""

    async def send(stream):
        method, path, query = server.requests[-1]
        if int(query["limit"]) > records:
            clock.cut()
            await anyio.sleep_forever()
        await stream.send(server.answer(method, path, query))

    return send


def in_pieces(server, clock, records, *, took_s):
    """An override: so many records at most, each page after some time."""

    async def send(stream):
        method, path, query = server.requests[-1]
        clock.at_s += took_s
        await stream.send(server.answer(method, path, query | {"limit": str(records)}))

    return send


async def read(records, documents):
    seen = []
    for _ in range(documents):
        seen += await until(records, DocumentArrived)
    return seen


async def test_a_page_that_is_too_slow_is_asked_for_in_halves_and_the_run_stays_live(training):
    clock = FakeClock()
    async with serving(training) as server:
        server.override["/history"] = slow_above(server, clock, 60)
        async with reading(live(server, clock)) as records:
            seen = await read(records, 20)
    assert links_of(seen) == [LinkState.LOADING, LinkState.LIVE]
    assert limits_of(server, "/history")[:5] == [500, 250, 125, 62, 31]
    newest = training.windows_until(training.showcase_s).newest_seq
    assert [row.seq for row in windows_of(seen)] == list(range(1, newest + 1))
    assert not [record for record in seen if isinstance(record, PagesChanged)]


async def test_after_a_slow_page_the_document_comes_first_and_at_once(training):
    clock = FakeClock()
    async with serving(training) as server:
        server.override["/history"] = slow_above(server, clock, 60)
        async with reading(live(server, clock)) as records:
            await read(records, 4)
    assert paths_of(server)[:6] == [
        "/state.json",
        "/events",
        "/history",
        "/state.json",
        "/history",
        "/state.json",
    ]
    assert clock.waits_s == []


async def test_a_page_that_was_full_and_fast_is_followed_by_one_twice_as_long(training):
    clock = FakeClock()
    async with serving(training) as server:
        server.override["/history"] = slow_above(server, clock, 20)
        async with reading(live(server, clock)) as records:
            await read(records, 6)
            server.override.clear()
            await read(records, 2)
    limits = limits_of(server, "/history")
    assert limits[:6] == [500, 250, 125, 62, 31, 15]
    healed = limits[limits.index(15) :]
    assert healed[:4] == [15, 30, 60, 120]


async def test_an_answer_that_is_too_large_is_asked_for_in_halves_too(training):
    clock = FakeClock()
    async with serving(training) as server:
        server.override["/history"] = always(answer(200, b" " * 6_000_000))
        async with reading(live(server, clock)) as records:
            seen = await until(records, PagesChanged)
    assert limits_of(server, "/history") == [500, 250, 125, 62, 31, 15, 10]
    assert seen[-1].detail == f"the answer of 127.0.0.1:{server.port} is larger than 5 MB"


async def test_events_come_before_windows_and_although_no_window_ever_does(training):
    clock = FakeClock()
    async with serving(training) as server:
        server.override["/history"] = silent(clock)
        async with reading(live(server, clock)) as records:
            seen = await read(records, 20)
    assert len(events_of(seen)) == training.events_until(training.showcase_s).newest_seq
    assert paths_of(server)[:3] == ["/state.json", "/events", "/history"]
    assert windows_of(seen) == []
    assert links_of(seen) == [LinkState.LOADING, LinkState.LIVE]
    assert len(documents_of(seen)) == 20


async def test_why_the_past_cannot_be_read_is_told_once_and_when_it_can_be_again(training):
    clock = FakeClock()
    async with serving(training) as server:
        server.override["/history"] = always(json_answer(500, {"error": "x"}))
        async with reading(live(server, clock)) as records:
            seen = await read(records, 9)
            asked = paths_of(server).count("/history")
            server.override.clear()
            seen += await until(records, PagesChanged, detail="")
    told = [record.detail for record in seen if isinstance(record, PagesChanged)]
    assert told == [f"127.0.0.1:{server.port} answered with status 500", ""]
    assert asked == 4, "at 0, 0.5, 1.5 and 3.5 s"
    assert links_of(seen) == [LinkState.LOADING, LinkState.LIVE]


async def test_pages_that_lead_nowhere_are_told_and_are_no_endless_loop(training):
    page = training.windows_until(20.0)
    body = page.model_copy(update={"records": page.records[:1]}).model_dump_json().encode()
    async with serving(training) as server:
        server.override["/history"] = always(answer(200, body))
        async with reading(live(server, FakeClock())) as records:
            seen = await until(records, PagesChanged)
            seen += await read(records, 2)
    told = next(record for record in seen if isinstance(record, PagesChanged))
    assert told.detail == "a page of records after 1 ends at 1"
    assert links_of(seen) == [LinkState.LOADING, LinkState.LIVE]


async def test_a_long_past_is_read_in_rounds_between_documents(training):
    clock = FakeClock()
    async with serving(training) as server:
        server.override["/history"] = in_pieces(server, clock, 50, took_s=0.3)
        async with reading(live(server, clock)) as records:
            await read(records, 3)
    assert paths_of(server)[:8] == [
        "/state.json",
        "/events",
        "/history",
        "/history",
        "/state.json",
        "/history",
        "/history",
        "/state.json",
    ]
    assert clock.waits_s == []
