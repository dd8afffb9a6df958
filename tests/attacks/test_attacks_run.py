"""A real run that trains under attack: nothing changes for it, and every attack is counted."""

import contextlib
import os
import socket
import threading
import time

import anyio
import httpx
import pytest
from attack_tools import GROWTH_BYTES, chance
from harness import SHORT_S, Launched
from strangers import stranger

from flodl_core.messages.join import Knock, Offer, RankExited, Reject
from flodl_core.net.join_link import connect_join

pytestmark = [
    pytest.mark.processes,
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.timeout(240),
]

STRANGERS = 1_000
FUZZED = int(os.environ.get("FLODL_ATTACK_CONNECTIONS", "3000"))
EVIL_HOST = "evil\n2026-01-01T00:00:00Z ERROR launcher/launcher root_failed\x1b[2J"


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def flood(port: int) -> None:
    """Connections with junk, altered hellos, broken TLS and odd requests, one after another."""
    dice = chance(31)
    begins = (
        b"JOIN\x01\x01",
        b"JOIN\x01\x00",
        b"MUX1\x01\x01",
        b"\x16\x03\x01\x02\x00",
        b"GET /",
        b"\xff",
    )
    for _ in range(FUZZED):
        with contextlib.suppress(OSError), connect(port) as sock:
            sock.sendall(dice.choice(begins) + dice.randbytes(dice.randint(0, 300)))


def foreign_pages(port: int) -> None:
    """Requests that a web page, a proxy or another user would make."""
    for headers in ({"Origin": "http://evil"}, {"Host": "evil"}, {"Authorization": "Bearer 00"}):
        for path in ("/stop", "/stop?mode=now", "/evict?rank=0", "/drain?host=vm", "/checkpoint"):
            answer = httpx.post(
                f"http://127.0.0.1:{port}{path}", headers=headers, trust_env=False, timeout=10
            )
            assert answer.status_code == 403, (path, headers)


async def insider(port: int, token: bytes) -> list[Reject]:
    """Who has the token but is no host of this run: evil names, forged ranks, a twin."""
    told = []
    for host in (EVIL_HOST, "../../../etc/passwd", "x" * 60_000):
        with anyio.fail_after(SHORT_S):
            link = await connect_join("127.0.0.1", port, token=token)
            await link.send(Knock(version="0.1.0"))
            assert isinstance(await link.receive(), Offer)
            await link.send(stranger(host))
            answer = await link.receive()
            assert isinstance(answer, Reject)
            told.append(answer)
            await link.aclose()
    with anyio.fail_after(SHORT_S):
        link = await connect_join("127.0.0.1", port, token=token)
        await link.send(Knock(version="0.1.0"))
        assert isinstance(await link.receive(), Offer)
        await link.send(RankExited(rank=0, code=-9, signal="SIGKILL"))
        assert isinstance(await link.receive(), Reject)
        await link.aclose()
    return told


async def late_insider(port: int, token: bytes) -> list[Reject]:
    """Who has the token and comes while the run trains, politely or not."""
    told = []
    for first in (Knock(version="0.1.0"), stranger(EVIL_HOST), RankExited(rank=0, code=0)):
        with anyio.fail_after(SHORT_S):
            link = await connect_join("127.0.0.1", port, token=token)
            await link.send(first)
            answer = await link.receive()
            assert isinstance(answer, Reject)
            told.append(answer)
            await link.aclose()
    return told


def test_a_run_trains_on_under_attack_and_counts_it(launch) -> None:
    run: Launched = launch(
        *("synthetic", "--ranks", "2", "--epochs", "100000", "--require-token"),
        *("--job-arg", "params=100", "--step-ms", "5", "--start", "manual"),
    )
    run.until_phase("staging")
    token = bytes.fromhex(run.token_file.read_text().strip())
    told = anyio.run(insider, run.port, token)
    assert run.flodl("start").code == 0
    run.until_trained(1)
    before = run.launcher.status_kb("VmRSS")

    with contextlib.ExitStack() as strangers:
        for _ in range(STRANGERS):
            with contextlib.suppress(OSError):
                strangers.enter_context(connect(run.port)).send(b"JO")
        flooder = threading.Thread(target=flood, args=(run.port,))
        flooder.start()
        foreign_pages(run.port)
        told += anyio.run(late_insider, run.port, token)
        trained = run.document["training"]["samples_done"]
        flooder.join(120)
        assert not flooder.is_alive()
        run.until_trained(trained + 200)
    for reject in told:
        assert reject.reason.isprintable()
        assert len(reject.reason) < 1_000

    ends = time.monotonic() + SHORT_S
    while (drops := run.document["dropped_connections"]).get("junk", 0) < 100:
        assert time.monotonic() < ends, drops
        run.until_trained(run.document["training"]["samples_done"] + 50)
    assert drops["crowded_out"] > STRANGERS / 2
    assert {"bad_handshake", "no_token", "tls"} <= set(drops)
    assert run.document["refused_requests"]["403"] == 15
    grown_kb = run.launcher.status_kb("VmRSS") - before
    assert grown_kb * 1024 < GROWTH_BYTES

    assert run.flodl("stop").code == 0
    assert run.finish() == 4
    run.check_quiet()
    assert run.summary["alerts"] == {}
    assert [row["state"] for row in run.summary["ranks"]] == ["done", "done"]
    for path in run.directory.rglob("*"):
        if path.suffix in (".log", ".jsonl"):
            text = path.read_text(errors="replace")
            assert "\x1b" not in text, path
            assert not [line for line in text.splitlines() if line.startswith("2026-01-01")], path
            assert run.token_file.read_text().strip() not in text, path
