"""Strangers at the port: noise, silence and floods, while a window is open and while it trains."""

import contextlib
import os
import random
import socket
import threading
import time
from collections.abc import Iterator

import anyio
import pytest
from aftermath import logged
from harness import SHORT_S, Document, Launched
from strangers import stranger

from flodl_core.messages.join import Knock, Offer, Reject
from flodl_core.net.join_link import JoinLink, connect_join

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(240)]

FLOOD = 5_000
SILENT = 60
GROWTH_BYTES = 64 * 10**6
ANSWER_S = 5.0
"""For one answer in a flood, on a machine whose cores all processes of the run share."""

GARBAGE = (
    b"",
    b"JO",
    b"JOIN" + bytes(200),
    b"MUX1" + b"\xff" * 200,
    b"\x16\x03\x01\x02\x00" + b"\x01" * 64,
    b"GET / HTTP/1.1\r\nno colon here\r\n\r\n",
    b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n\r\n",
    b"POST /start HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
    b"GET /nowhere HTTP/1.0\r\n\r\n",
)


def flood(port: int, count: int, chance: random.Random) -> None:
    """Open so many connections, one after another, and leave each with a piece of junk."""
    for number in range(count):
        kind = number % (len(GARBAGE) + 3)
        junk = GARBAGE[kind] if kind < len(GARBAGE) else chance.randbytes(64)
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection(("127.0.0.1", port), timeout=10) as sock,
        ):
            sock.sendall(junk)


@contextlib.contextmanager
def silent_strangers(port: int, count: int) -> Iterator[None]:
    """Connections that never say anything."""
    with contextlib.ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        yield


def flood_and_read(run: Launched, chance: random.Random) -> Document:
    """Flood the port from one thread while the state is read in this one; returns the last."""
    flooder = threading.Thread(target=flood, args=(run.port, FLOOD, chance))
    flooder.start()
    reads, slowest_s = 0, 0.0
    while True:
        is_last = not flooder.is_alive()
        began = time.monotonic()
        document = run.fetch_state()
        slowest_s = max(slowest_s, time.monotonic() - began)
        reads += 1
        if is_last:
            break
    flooder.join()
    assert reads > 3
    assert slowest_s < ANSWER_S
    return document


async def say_nonsense(port: int) -> None:
    """Agree on keys as a host may, and then break every rule."""

    async def link() -> JoinLink:
        return await connect_join("127.0.0.1", port, token=None)

    with anyio.fail_after(SHORT_S):
        first = await link()
        await first.send(stranger("early"))
        answer = await first.receive()
        assert isinstance(answer, Reject)
        assert "must be a Knock" in answer.reason
        await first.aclose()

        second = await link()
        await second.send(Knock(version="0.0.1"))
        assert isinstance(await second.receive(), Offer)
        await second.send(Knock(version="0.0.1"))
        answer = await second.receive()
        assert isinstance(answer, Reject)
        await second.aclose()

        third = await link()
        await third.send(Knock(version="0.0.1"))
        await third.aclose()


async def ask_in(port: int, host: str) -> Reject:
    """Ask to be let in as a host that has another data set; returns the refusal."""
    with anyio.fail_after(SHORT_S):
        link = await connect_join("127.0.0.1", port, token=None)
        await link.send(Knock(version="0.0.1"))
        assert isinstance(await link.receive(), Offer)
        await link.send(stranger(host))
        answer = await link.receive()
        assert isinstance(answer, Reject)
        await link.aclose()
        return answer


async def knock_late(port: int) -> Reject:
    """Knock at a run whose window is closed; returns the answer, which comes before any Offer."""
    with anyio.fail_after(SHORT_S):
        link = await connect_join("127.0.0.1", port, token=None)
        await link.send(Knock(version="0.0.1"))
        answer = await link.receive()
        assert isinstance(answer, Reject)
        await link.aclose()
        return answer


def old_version_status(port: int) -> tuple[int, int]:
    """What the port answers to a hello of wire version 0: its version and its status."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(b"JOIN" + bytes((0, 0)) + os.urandom(64))
        reply = sock.recv(98, socket.MSG_WAITALL)
    return reply[0], reply[1]


@pytest.mark.long
def test_strangers_change_nothing_for_window_or_run(launch) -> None:
    run = launch(
        *("synthetic", "--ranks", "2", "--start", "manual", "--epochs", "100000"),
        *("--job-arg", "params=100", "--step-ms", "5"),
    )
    run.until_phase("staging")
    chance = random.Random(5)
    before = run.launcher.status_kb("VmRSS")
    descriptors = run.launcher.open_descriptors()

    with silent_strangers(run.port, SILENT):
        document = flood_and_read(run, chance)
        assert (document["phase"], document["joined_ranks"]) == ("staging", 2)
        assert old_version_status(run.port) == (1, 2)
        anyio.run(say_nonsense, run.port)
        refusal = anyio.run(ask_in, run.port, "green")
        assert "dataset" in refusal.reason
        assert refusal.fix
        assert not refusal.transient

        started = run.flodl("start")
        assert started.code == 0, started
        run.until_trained(1)

        trained = flood_and_read(run, chance)["training"]["samples_done"]
        run.until_trained(trained + 1)
        late = anyio.run(knock_late, run.port)
        assert late.reason == "the join window is closed: training"
        assert late.transient, "the next run may have a window"
        grown_kb = run.launcher.status_kb("VmRSS") - before

    assert grown_kb * 1024 < GROWTH_BYTES
    assert run.launcher.open_descriptors() < descriptors + 30
    assert run.flodl("stop").code == 0
    assert run.finish() == 4
    run.check_quiet()
    assert run.summary["alerts"] == {}
    assert [row["state"] for row in run.summary["ranks"]] == ["done", "done"]
    assert len(logged(run.directory, "launcher", "connection_dropped")) < 200
    assert run.document["refusals"] == 2, "the stranger, and who came late"
