"""What the tests of feeds share: a clock that obeys, a server that misbehaves on demand."""

import json
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

import anyio

from flodl_console.view.records import (
    DocumentArrived,
    EventsArrived,
    PlaybackReset,
    WindowsArrived,
)
from flodl_core.telemetry.state import publish


class FakeClock:
    """Time that passes only where a feed waits; a ceiling is reached when `cut` says so."""

    def __init__(self):
        self.at_s = 1000.0
        self.waits_s = []
        self._limits = []

    def now(self):
        return self.at_s

    async def wait(self, event, limit_s):
        await anyio.lowlevel.checkpoint()
        if limit_s is None:
            await event.wait()
        elif not event.is_set():
            self.waits_s.append(limit_s)
            self.at_s += limit_s

    @contextmanager
    def limit(self, limit_s):
        with anyio.CancelScope() as scope:
            self._limits.append((scope, limit_s))
            try:
                yield
            finally:
                self._limits.remove((scope, limit_s))
        if scope.cancelled_caught:
            self.at_s += limit_s
            raise TimeoutError

    def cut(self):
        """Have every ceiling passed that is counted down now."""
        for scope, _ in self._limits:
            scope.cancel()


@asynccontextmanager
async def reading(feed):
    """A feed's records, closed in the end, and the feed with them."""
    records = feed.records()
    async with aclosing(records):
        yield records
    await feed.aclose()


async def take(records, count, *, limit_s=5.0):
    """The next so many records."""
    with anyio.fail_after(limit_s):
        return [await anext(records) for _ in range(count)]


async def until(records, kind, *, limit_s=5.0, **wanted):
    """Records up to the first of a kind that has the wanted attributes."""
    seen = []
    with anyio.fail_after(limit_s):
        async for record in records:
            seen.append(record)
            if isinstance(record, kind) and all(
                getattr(record, name) == value for name, value in wanted.items()
            ):
                return seen
    raise AssertionError(f"no {kind.__name__} with {wanted} in {len(seen)} records")


def windows_of(records):
    return [row for r in records if isinstance(r, WindowsArrived) for row in r.page.records]


def events_of(records):
    return [row for r in records if isinstance(r, EventsArrived) for row in r.page.records]


def documents_of(records):
    return [record.document for record in records if isinstance(record, DocumentArrived)]


def resets_of(records):
    return [record for record in records if isinstance(record, PlaybackReset)]


@dataclass
class RunServer:
    """Answers like a run's port, from a recording; `override` takes a path's answer over."""

    run: object
    at_s: float
    override: dict = field(default_factory=dict)
    requests: list = field(default_factory=list)
    headers: list = field(default_factory=list)
    port: int = 0

    def answer(self, method, path, query):
        if method == "POST":
            return json_answer(200, {"stopping": True, "what_follows": "it will end"})
        since, limit = int(query.get("since", 0)), int(query.get("limit", 500))
        if path == "/state.json":
            return answer(200, publish(self.run.document_at(self.at_s)))
        if path in ("/history", "/events"):
            read = self.run.windows_until if path == "/history" else self.run.events_until
            page = read(self.at_s, since=since)
            page = page.model_copy(update={"records": page.records[:limit]})
            return answer(200, page.model_dump_json().encode())
        return json_answer(404, {"error": "no such path"})

    async def serve(self, stream):
        async with stream:
            try:
                head = b""
                while b"\r\n\r\n" not in head:
                    head += await stream.receive()
                method, target, _ = head.decode().split(" ", 2)
                parts = urlsplit(target)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                self.requests.append((method, parts.path, query))
                self.headers.append(head.decode().lower())
                take_over = self.override.get(parts.path)
                if take_over is not None:
                    await take_over(stream)
                    return
                await stream.send(self.answer(method, parts.path, query))
            except (anyio.BrokenResourceError, anyio.EndOfStream, anyio.ClosedResourceError):
                return


@asynccontextmanager
async def serving(run, *, at_s=None, port=0):
    """A server on loopback, as long as the block lasts."""
    server = RunServer(run, run.showcase_s if at_s is None else at_s)
    listener = await anyio.create_tcp_listener(
        local_host="127.0.0.1", local_port=port, reuse_port=False
    )
    server.port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, server.serve)
        try:
            yield server
        finally:
            tasks.cancel_scope.cancel()


def answer(status, body, *, length=None):
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(body) if length is None else length}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


def json_answer(status, body):
    return answer(status, json.dumps(body).encode())


def always(data):
    """An override: these bytes, then the end."""

    async def send(stream):
        await stream.send(data)

    return send


def silent(clock):
    """An override: nothing, for ever; the asker's ceiling passes."""

    async def keep(stream):
        clock.cut()
        await anyio.sleep_forever()

    return keep


def dripping(clock, data):
    """An override: a byte at a time, until the asker's ceiling passes."""

    async def send(stream):
        for index in range(len(data)):
            await stream.send(data[index : index + 1])
            with anyio.move_on_after(0.001):
                await anyio.Event().wait()
        clock.cut()
        await anyio.sleep_forever()

    return send
