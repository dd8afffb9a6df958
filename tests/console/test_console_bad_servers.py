"""Whatever a server does, the screen lives, says so, takes keys, and leaves within a second."""

import time
from collections.abc import Awaitable, Callable

import anyio
import pytest
from anyio.abc import ByteStream
from console_feeds import answer, serving
from console_support import console, screen_text, settled
from textual.pilot import Pilot

from flodl_console.app import ConsoleApp
from flodl_console.demo.scenarios import open_scenario
from flodl_console.feed.live import LiveFeed
from flodl_core.net.clock import now
from flodl_core.telemetry.state import publish

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

Override = Callable[[ByteStream], Awaitable[None]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def frozen(stream: ByteStream) -> None:
    """Take the question and never answer."""
    await anyio.sleep_forever()


async def slow(stream: ByteStream) -> None:
    """Answer with a byte a second."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{"
    while True:
        await stream.send(head[:1] or b" ")
        head = head[1:]
        with anyio.move_on_after(1.0):
            await anyio.sleep_forever()


async def broken(stream: ByteStream) -> None:
    await stream.send(answer(200, b'{"schema_version": 1, "run": '))


async def huge(stream: ByteStream) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Length: 99000000\r\n\r\n")
    while True:
        await stream.send(b" " * 65_536)


async def dead(stream: ByteStream) -> None:
    await stream.aclose()


async def other_program(stream: ByteStream) -> None:
    await stream.send(answer(200, b"<html>It works!</html>"))


async def older(stream: ByteStream) -> None:
    """An older run: a document with fewer fields."""
    document = open_scenario("training", seed=0, ranks=4).document_at(300.0)
    assert document is not None
    await stream.send(answer(200, publish(document.model_copy(update={"join": None}))))


async def newer(stream: ByteStream) -> None:
    """A document of a schema that we do not know."""
    document = open_scenario("training", seed=0, ranks=4).document_at(300.0)
    assert document is not None
    await stream.send(answer(200, publish(document.model_copy(update={"schema_version": 99}))))


async def keys_work(pilot: Pilot[int]) -> None:
    assert isinstance(pilot.app, ConsoleApp)
    for key, mode in (("5", "events"), ("4", "topology"), ("2", "training"), ("1", "window")):
        await pilot.press(key)
        await settled(pilot)
        assert pilot.app.current_mode == mode
    await pilot.press("question_mark")
    await settled(pilot)
    assert "Keys of the screen Window" in screen_text(pilot)
    await pilot.press("escape")
    await settled(pilot)


async def said(pilot: Pilot[int], *words: str, limit_s: float = 8.0) -> None:
    """Wait until one of some words stands in the first two lines."""
    ends_at = time.monotonic() + limit_s
    while not any(word in " ".join(screen_text(pilot).splitlines()[:2]) for word in words):
        assert time.monotonic() < ends_at, screen_text(pilot)
        await pilot.pause(0.05)


async def leaves_soon(pilot: Pilot[int]) -> float:
    started_at = time.monotonic()
    await pilot.press("q")
    return started_at


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        (frozen, ("disconnected", "loading")),
        (slow, ("disconnected", "loading")),
        (broken, ("disconnected",)),
        (huge, ("disconnected",)),
        (dead, ("disconnected",)),
        (other_program, ("disconnected",)),
        (newer, ("disconnected",)),
        (older, ("live",)),
    ],
)
async def test_from_the_first_answer_on(trouble: Override, words: tuple[str, ...]) -> None:
    run = open_scenario("training", seed=0, ranks=4)
    async with serving(run, at_s=300.0) as server:
        server.override["/state.json"] = trouble
        feed = LiveFeed("127.0.0.1", server.port)
        async with console(feed, clock=now) as pilot:
            await said(pilot, *words)
            await keys_work(pilot)
            started_at = await leaves_soon(pilot)
        assert time.monotonic() - started_at < 1.0


@pytest.mark.parametrize("trouble", [frozen, slow, broken, huge, dead, newer])
async def test_after_it_had_answered_what_was_known_stays(trouble: Override) -> None:
    run = open_scenario("training", seed=0, ranks=4)
    async with serving(run, at_s=300.0) as server:
        feed = LiveFeed("127.0.0.1", server.port)
        async with console(feed, clock=now) as pilot:
            await said(pilot, "live")
            server.override["/state.json"] = trouble
            await said(pilot, "stale", "disconnected")
            await keys_work(pilot)
            await pilot.press("2")
            await settled(pilot)
            assert "rank" in screen_text(pilot)
            started_at = await leaves_soon(pilot)
        assert time.monotonic() - started_at < 1.0
