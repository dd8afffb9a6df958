"""The port: real connections, routed by bytes that stay in place, bounded in time and number."""

import os
import socket
from pathlib import Path

import anyio
import anyio.lowlevel
import httpx
import pytest
from net_pairs import ended, ignore, running_port, until

from flodl_core.errors import BadFrameError, ConfigError, LocalProtocolError, TokenRequiredError
from flodl_core.net.admission_gate import GateLimits
from flodl_core.net.handshake import read_exactly
from flodl_core.net.port import Port, PortConfig
from flodl_core.net.port_statistics import DropReason

pytestmark = pytest.mark.anyio


def open_descriptors():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class Consumer:
    """Reads a few bytes of each connection and keeps it until it ends."""

    def __init__(self, *, proves=False, nbytes=4):
        self.got, self.connections = [], []
        self.proves, self.nbytes = proves, nbytes

    async def __call__(self, connection):
        self.connections.append(connection)
        self.got.append(await read_exactly(connection.stream, self.nbytes))
        connection.first_message_arrived()
        if self.proves:
            connection.authenticated()
        await read_exactly(connection.stream, 1)


async def test_each_protocol_reaches_its_consumer_with_every_byte():
    join, mux, web = Consumer(), Consumer(), Consumer()
    async with running_port(on_join=join, on_mux=mux, on_http=web) as port:
        with port.client(b"JOIN"), port.client(b"MUX1"), port.client(b"GET "):
            await until(lambda: join.got and mux.got and web.got)
            assert (join.got, mux.got, web.got) == ([b"JOIN"], [b"MUX1"], [b"GET "])
            assert join.connections[0].peer.is_loopback
        assert port.dropped() == {}


async def test_a_magic_in_single_bytes_is_waited_for():
    join = Consumer()
    async with running_port(on_join=join) as port:
        with port.client() as sock:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in b"JOIN":
                sock.send(bytes([byte]))
                await anyio.sleep(0.01)
            await until(lambda: join.got)
        assert join.got == [b"JOIN"]


@pytest.mark.parametrize(
    "junk",
    [b"\x00\x01\x02\x03", b"SSH-2.0-x\r\n", os.urandom(60) + b"zz"],
    ids=["bytes", "ssh", "chance"],
)
async def test_junk_is_dropped_at_once_and_counted(junk):
    junk = b"\xff" + junk
    async with running_port() as port:
        with port.client(junk) as sock:
            assert await ended(sock) == b""
        await until(port.dropped)
        assert port.dropped() == {"junk": 1}
        assert [note.reason for note in port.notes] == [DropReason.JUNK]


async def test_a_tls_hello_where_none_is_spoken_gets_an_alert_and_is_counted_apart():
    async with running_port() as port:
        with port.client(b"\x16\x03\x01\x02\x00\x01") as sock:
            fatal_protocol_version = b"\x15\x03\x03\x00\x02\x02\x46"
            assert await ended(sock) == fatal_protocol_version
            sock.shutdown(socket.SHUT_WR)
        await until(port.dropped)
        assert port.dropped() == {"tls": 1}


@pytest.mark.parametrize("first", [b"", b"J", b"\xff"])
async def test_a_connection_that_ends_early_is_counted(first):
    async with running_port() as port:
        port.client(first).close()
        await until(port.dropped)
        assert port.dropped() == ({"junk": 1} if first == b"\xff" else {"early_end": 1})


@pytest.mark.parametrize("first", [b"", b"JO", b"JOIN"])
async def test_silence_ends_with_the_handshake_budget(first):
    async with running_port(on_join=ignore, handshake_s=0.1) as port:
        with port.client(first) as sock:
            assert await ended(sock) == b""
        await until(port.dropped)
        assert port.dropped() == {"silent": 1}


async def test_a_proven_connection_outlives_the_budget():
    join = Consumer(proves=True)
    async with running_port(on_join=join, handshake_s=0.1) as port:
        with port.client(b"JOIN") as sock, port.client(b"MUX1") as control:
            await ended(control)
            assert port.port.statistics().open_links == 1
            assert port.port.statistics().joins == 1
            with pytest.raises(BlockingIOError):
                sock.recv(1)
        await until(lambda: not port.port.statistics().open_links)
        assert port.dropped() == {"silent": 1}


async def test_the_newcomer_stays_and_the_oldest_silent_one_leaves():
    join = Consumer()
    async with running_port(on_join=join, limits=GateLimits(loopback=3)) as port:
        spoke = port.client(b"JOIN")
        await until(lambda: join.got)
        others = [port.client() for _ in range(3)]
        await until(port.dropped)
        assert await ended(others[0]) == b""
        assert port.dropped() == {"crowded_out": 1}
        with pytest.raises(BlockingIOError):
            spoke.recv(1)
        for sock in (spoke, *others):
            sock.close()


async def test_http_takes_no_place_of_links():
    web, join = Consumer(), Consumer()
    limits = GateLimits(loopback=1, http=2)
    async with running_port(on_http=web, on_join=join, limits=limits) as port:
        first = port.client(b"GET ")
        await until(lambda: len(web.got) == 1)
        agent = port.client(b"JOIN")
        await until(lambda: join.got)
        statistics = port.port.statistics()
        assert (statistics.open_http, statistics.open_unproven) == (1, 1)
        for sock in (first, agent):
            sock.close()


async def test_more_links_than_allowed_are_let_go():
    join = Consumer(proves=True)
    async with running_port(on_join=join, max_links=1) as port:
        with port.client(b"JOIN"), port.client(b"JOIN"):
            await until(port.dropped)
            assert port.dropped() == {"too_many_links": 1}
            assert port.port.statistics().open_links == 1


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (BadFrameError("no hello"), "bad_handshake"),
        (TokenRequiredError("no token"), "no_token"),
        (ConnectionResetError(), "early_end"),
        (TimeoutError(), "silent"),
        (anyio.EndOfStream(), "early_end"),
    ],
)
async def test_a_peer_s_fault_costs_its_own_connection_only(error, counted):
    async def fail(connection):
        raise error

    join = Consumer()
    async with running_port(on_mux=fail, on_join=join) as port:
        with port.client(b"MUX1") as sock:
            await ended(sock)
        await until(port.dropped)
        assert port.dropped() == {counted: 1}
        with port.client(b"JOIN"):
            await until(lambda: join.got)


async def test_a_valid_hello_without_a_proof_is_counted_as_unproven():
    join = Consumer()
    async with running_port(on_join=join) as port:
        port.client(b"JOIN").close()
        await until(port.dropped)
        assert port.dropped() == {"unproven": 1}


BUGS = [LocalProtocolError("a bug"), FileNotFoundError("no log")]


@pytest.mark.parametrize("bug", BUGS)
async def test_a_bug_of_ours_in_serving_a_link_stops_the_port(bug):
    async def fail(connection):
        connection.authenticated()
        raise bug

    async def run():
        async with running_port(on_mux=fail) as port:
            port.client(b"MUX1").close()
            await until(lambda: False)

    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert caught.group_contains(type(bug))


@pytest.mark.parametrize("bug", BUGS)
async def test_a_bug_of_ours_that_a_stranger_finds_costs_the_stranger_only(bug):
    join = Consumer()

    async def fail(connection):
        raise bug

    async with running_port(on_mux=fail, on_join=join) as port:
        port.client(b"MUX1").close()
        await until(port.dropped)
        assert port.dropped() == {"fault": 1}
        assert f"{type(bug).__name__}: " in port.notes[0].detail
        assert "(test_net_port.py:" in port.notes[0].detail
        port.client(b"JOIN").close()
        await until(lambda: join.got)


async def test_a_detached_socket_is_not_closed_by_the_port():
    socks = []

    async def take(connection):
        connection.authenticated()
        socks.append(connection.stream.detach())

    async with running_port(on_mux=take) as port:
        with port.client(b"MUX1more") as sock:
            await until(lambda: socks and not port.port.statistics().open_links)
            with socks[0] as taken:
                assert taken.recv(8) == b"MUX1more"
                taken.send(b"alive")
                await anyio.wait_readable(sock)
                assert sock.recv(8) == b"alive"


async def test_the_port_listens_on_ipv6_and_ipv4_at_once():
    port = Port(PortConfig(bind="::", port=0), on_join=ignore, on_mux=ignore, on_http=ignore)
    try:
        number = port.listen().port
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, number)).close()
    finally:
        port.close()


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"port": 70000}, "a TCP port is 0 to 65535"),
        ({"port": -1}, "a TCP port is 0 to 65535"),
        ({"port": 0, "bind": "192.0.2.1"}, "no interface of this machine has that address"),
        ({"port": 0, "bind": "no address at all"}, "it is no address"),
    ],
)
async def test_a_bad_address_is_a_configuration_error(settings, reason):
    config = PortConfig(source="flodl.toml line 3", **settings)
    port = Port(config, on_join=ignore, on_mux=ignore, on_http=ignore)
    with pytest.raises(ConfigError, match=rf"\(flodl.toml line 3\): {reason}"):
        port.listen()


@pytest.mark.slow
async def test_a_port_that_another_program_holds_says_so():
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.listen()
        number = other.getsockname()[1]
        port = Port(PortConfig(port=number), on_join=ignore, on_mux=ignore, on_http=ignore)
        with pytest.raises(ConfigError, match="in use by another program"):
            port.listen()


async def test_a_port_that_does_not_listen_is_our_bug():
    port = Port(PortConfig(port=0), on_join=ignore, on_mux=ignore, on_http=ignore)
    with pytest.raises(LocalProtocolError, match="does not listen"):
        await port.serve()


@pytest.mark.slow
async def test_ten_thousand_junk_connections_do_no_harm(anyio_backend_name):
    """Three kinds of junk, in bursts; an agent and a reader get through in the middle of it."""
    join = Consumer()

    async def hello(connection):
        await connection.stream.receive()
        await connection.stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")

    bursts = 100 if anyio_backend_name == "asyncio" else 20
    kinds = [b"", b"\xffjunk", b"JOIN"]

    def flood(port, burst):
        return [port.client(kinds[(burst + n) % 3]) for n in range(100)]

    open_before = open_descriptors()
    async with running_port(on_join=join, on_http=hello) as port:
        for burst in range(bursts):
            socks = await anyio.to_thread.run_sync(flood, port, burst)
            if burst == bursts // 2:
                async with httpx.AsyncClient(trust_env=False, verify=False) as client:
                    answer = await client.get(f"http://127.0.0.1:{port.at[1]}/healthz")
                assert answer.text == "ok"
            assert port.port.statistics().open_unproven <= 128
            for sock in socks:
                sock.close()
        await until(lambda: port.port.statistics().accepted == 100 * bursts + 1)
        await until(lambda: not port.port.statistics().open_unproven)
        with port.client(b"JOIN"):
            await until(lambda: port.port.statistics().open_unproven == 1)
        assert sum(port.dropped().values()) == 100 * bursts
        assert len(port.notes) < 30
    await until(lambda: open_descriptors() <= open_before + 3)


async def test_who_is_served_is_told_once_it_proved_itself_or_asked_whole():
    served = []

    async def ask(connection):
        await read_exactly(connection.stream, 4)
        connection.first_message_arrived()

    port = Port(
        PortConfig(port=0),
        on_join=Consumer(proves=True),
        on_mux=Consumer(),
        on_http=ask,
        on_served=lambda connection: served.append(connection.route),
    )
    number = port.listen().port
    async with anyio.create_task_group() as tasks:
        await tasks.start(port.serve)
        for first in (b"junk", b"MUX1", b"JOIN", b"GET "):
            with socket.create_connection(("127.0.0.1", number)) as sock:
                sock.sendall(first)
                sock.settimeout(0)
                sock.shutdown(socket.SHUT_WR)
                await ended(sock)
        tasks.cancel_scope.cancel()
    assert [route.value for route in served] == ["join", "http"]
