"""The port under attack: altered handshakes, replays, slow strangers by the thousand.

Each attack costs its own connection, raises its own counter, and an honest agent gets in
meanwhile.
"""

import contextlib
import os
import socket
from collections.abc import Iterator

import anyio
import anyio.lowlevel
import pytest
from attack_tools import KNOCK, Run, bounded_growth, chance, flips, joins, recorded_join
from net_pairs import TOKEN, RunningPort, ended, until

from flodl_core.net.tls_identity import make_identity
from flodl_core.wire.codec import encode
from flodl_core.wire.frame import FrameSealer
from flodl_core.wire.handshake import (
    CLIENT_HELLO_BYTES,
    SERVER_HELLO_BYTES,
    Channel,
    ClientHandshake,
)

pytestmark = [pytest.mark.anyio, pytest.mark.slow]

STRANGERS = 1_000
IDENTITY = make_identity()


@pytest.fixture
def anyio_backend() -> str:
    """Thousands of sockets say the same on either loop."""
    return "asyncio"


def handshake() -> ClientHandshake:
    return ClientHandshake(Channel.JOIN, TOKEN, nonce=os.urandom(32), private_key=os.urandom(32))


async def say_and_end(port: RunningPort, data: bytes) -> bytes:
    """Say something, end the direction, and return what came back."""
    with port.client(data) as sock:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        return await ended(sock)


async def test_a_hello_with_one_flipped_bit_at_every_position_gets_nobody_in() -> None:
    run = Run()
    async with run.port() as port:
        for _, hello in flips(handshake().hello(), seed=3):
            await say_and_end(port, hello + os.urandom(100))
        await until(lambda: not port.port.statistics().open_unproven)
        assert await joins(port.at)
        counted = port.dropped()
    assert sum(counted.values()) == CLIENT_HELLO_BYTES
    assert set(counted) <= {"junk", "early_end", "no_token", "bad_handshake"}
    assert counted["bad_handshake"] >= 64
    assert run.heard == [KNOCK]


async def test_a_hello_cut_at_every_position_is_an_early_end() -> None:
    run = Run()
    async with run.port() as port:
        hello = handshake().hello()
        for cut in range(CLIENT_HELLO_BYTES):
            assert await say_and_end(port, hello[:cut]) == b""
        await until(lambda: sum(port.dropped().values()) == CLIENT_HELLO_BYTES)
        assert port.dropped() == {"early_end": CLIENT_HELLO_BYTES}
    assert run.heard == []


async def test_a_first_frame_with_one_flipped_bit_at_every_position_proves_nothing() -> None:
    """The attacker sits in between and knows all but the token: it alters an honest stream."""
    run = Run()
    frame_bytes = len(FrameSealer(bytes(32)).seal(*encode(KNOCK)))
    async with run.port() as port:
        for at in range(frame_bytes):
            client = handshake()
            with port.client(client.hello()) as sock:
                reply = b""
                while len(reply) < SERVER_HELLO_BYTES:
                    await anyio.wait_readable(sock)
                    reply += sock.recv(SERVER_HELLO_BYTES - len(reply))
                frame = bytearray(
                    FrameSealer(client.finish_untrusted(reply).send_hmac).seal(*encode(KNOCK))
                )
                frame[at] ^= 1 << (at % 8)
                sock.sendall(frame)
                sock.shutdown(socket.SHUT_WR)
                await ended(sock)
        await until(lambda: sum(port.dropped().values()) == frame_bytes)
        assert set(port.dropped()) <= {"bad_handshake", "unproven"}
        assert port.port.statistics().joins == 0
    assert run.heard == []


async def test_an_honest_join_that_is_said_again_is_refused() -> None:
    run = Run()
    async with run.port() as port, recorded_join(port.at) as said:
        assert len(said) > CLIENT_HELLO_BYTES
        assert run.heard == [KNOCK]
        for _ in range(20):
            await say_and_end(port, bytes(said))
        await until(lambda: port.dropped().get("bad_handshake") == 20)
        assert port.dropped() == {"bad_handshake": 20}
        assert await joins(port.at)
    assert run.heard == [KNOCK, KNOCK]


@contextlib.contextmanager
def strangers(port: RunningPort, count: int, first: bytes) -> Iterator[list[socket.socket]]:
    """Connections that say a little and never end it; those that were let go are forgotten."""
    with contextlib.ExitStack() as stack:
        socks: list[socket.socket] = []
        for _ in range(count):
            with contextlib.suppress(ConnectionError):
                socks.append(stack.enter_context(port.client(first)))
        yield socks


async def drip(socks: list[socket.socket], data: bytes) -> None:
    """Say one more byte on each, a byte a round."""
    for byte in data:
        for sock in socks:
            with contextlib.suppress(OSError):
                sock.send(bytes([byte]))
        await anyio.sleep(0.05)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("first", "then"),
    [
        (b"", b""),
        (b"J", b"OIN"),
        (b"JOIN\x01\x01", b"abcdefgh"),
        (b"MUX1", b"abcdefgh"),
        (b"GET / HTTP/1.1\r\n", b"X-A: b\r\n"),
        (b"POST /stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n", b"abcdefgh"),
    ],
    ids=["silent", "magic", "join", "mux", "get", "post"],
)
async def test_a_thousand_slow_strangers_keep_nobody_out(first, then) -> None:
    run = Run()
    async with run.port() as port:
        with bounded_growth(), strangers(port, STRANGERS, first) as socks:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drip, socks, then)
                assert await joins(port.at)
                assert (await say_and_end(port, b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"))[
                    :15
                ] == b"HTTP/1.1 200 OK"
            assert await joins(port.at)
            statistics = port.port.statistics()
            assert statistics.open_unproven <= 256
            assert statistics.open_http <= 64
            assert port.dropped()["crowded_out"] >= STRANGERS - 300
    assert run.heard == [KNOCK, KNOCK]
    assert run.acted == []


@pytest.mark.timeout(120)
async def test_a_thousand_half_open_tls_handshakes_keep_nobody_out() -> None:
    run = Run()
    async with run.port(tls=IDENTITY.context) as port:
        begun = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
        with bounded_growth(), strangers(port, STRANGERS, begun) as socks:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(drip, socks, b"abcdefgh")
                assert await joins(port.at, fingerprint=IDENTITY.fingerprint)
            assert port.port.statistics().open_unproven <= 256
            assert port.dropped()["crowded_out"] >= STRANGERS - 300
    assert run.heard == [KNOCK]


@pytest.mark.timeout(120)
async def test_a_flood_of_junk_is_counted_whole_and_told_in_a_few_lines() -> None:
    dice, run = chance(21), Run()
    async with run.port() as port:

        def flood() -> None:
            for _ in range(2_000):
                port.client(b"\xff" + dice.randbytes(40)).close()

        with bounded_growth():
            await anyio.to_thread.run_sync(flood)
            await until(lambda: sum(port.dropped().values()) == 2_000)
        assert set(port.dropped()) <= {"junk", "crowded_out", "early_end"}
        assert len(port.notes) <= 6
        assert await joins(port.at)
