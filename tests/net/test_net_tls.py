"""TLS at the port: who is let in, who is refused, and by what name each refusal is known."""

import contextlib
import socket
import ssl
import threading
import warnings

import anyio
import httpx
import pytest
from net_pairs import OTHER_TOKEN, SALT, TOKEN, Recorder, bucket, ended, running_port, until

from flodl_core.errors import (
    TlsRequiredError,
    TransientJoinError,
    WrongCertificateError,
    WrongTokenError,
)
from flodl_core.messages.join import Accept, Knock
from flodl_core.messages.mux import RelayHello, RelayHelloAck
from flodl_core.net.handshake import DialTimes, NoTlsError
from flodl_core.net.http import HttpApp, Publisher
from flodl_core.net.http_client import ControllerClient, ControllerUnreachableError, run_id_at
from flodl_core.net.http_trust import TrustPolicy
from flodl_core.net.join_link import accept_join, connect_join
from flodl_core.net.mux_end import accept_mux, connect_mux
from flodl_core.net.mux_link import MuxLink
from flodl_core.net.tls import fingerprint_of, pinned_context
from flodl_core.net.tls_identity import make_identity
from flodl_core.units import MIB

pytestmark = pytest.mark.anyio

IDENTITY = make_identity()
OTHER = make_identity()
KNOCK = Knock(version="0.1.0")
ACCEPT = Accept(ranks=(), salt=SALT, formation_wait_s=1.0)
RUN_ID = "0123456789abcdef"


async def controller(connection):
    """Take one Knock and answer it, then wait for the end."""
    link = await accept_join(connection, token=TOKEN, open_admission=False)
    assert isinstance(await link.receive(), Knock)
    await link.send_accept(ACCEPT)
    with contextlib.suppress(anyio.EndOfStream):
        await link.receive()


def web(require_token=False):
    publisher = Publisher()
    publisher.publish(b'{"run": {"id": "%s"}}' % RUN_ID.encode())
    policy = TrustPolicy(operator_token="sesame", require_token=require_token)
    return HttpApp(publisher, trust=policy).serve


def tls_port(**given):
    return running_port(
        on_join=controller, on_http=web(), tls=IDENTITY.context, handshake_s=5.0, **given
    )


async def dialled(at, *, fingerprint=IDENTITY.fingerprint, token=TOKEN):
    times = DialTimes(connect_s=5.0, handshake_s=5.0)
    return await connect_join(*at, token=token, fingerprint=fingerprint, times=times)


def raw_tls(at, context, first=b""):
    """A blocking TLS client; returns what came after `first` until the end."""
    with socket.create_connection(at, timeout=10) as sock, context.wrap_socket(sock) as inside:
        inside.sendall(first)
        got = b""
        with contextlib.suppress(OSError):
            while data := inside.recv(65536):
                got += data
        return got


async def test_an_agent_with_the_fingerprint_joins_inside_tls():
    async with tls_port() as port:
        link = await dialled(port.at)
        await link.send(KNOCK)
        assert await link.receive() == ACCEPT
        assert port.port.statistics().joins == 1
        await link.aclose()
        assert port.dropped() == {}


async def test_nothing_of_a_join_can_be_read_on_the_way():
    seen, roads = bytearray(), []

    async def copy(source, target):
        with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
            async for data in source:
                seen.extend(data)
                await target.send(data)

    async def listen_in(near):
        """A road that copies what passes."""
        async with near, await anyio.connect_tcp(*roads[0]) as far, anyio.create_task_group() as on:
            on.start_soon(copy, near, far)
            await copy(far, near)
            on.cancel_scope.cancel()

    async with (
        tls_port() as port,
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        roads.append(port.at)
        tasks.start_soon(listener.serve, listen_in)
        link = await dialled(listener.extra(anyio.abc.SocketAttribute.local_address))
        await link.send(Knock(version="what only two ends may know"))
        assert await link.receive() == ACCEPT
        await link.aclose()
        tasks.cancel_scope.cancel()
    assert len(seen) > 1_000
    for plain in (b"what only two", b"FLO1", b"JOIN"):
        assert plain not in seen


async def test_another_certificate_is_refused_for_good_and_counted():
    async with tls_port() as port:
        with pytest.raises(WrongCertificateError, match="another certificate than the token"):
            await dialled(port.at, fingerprint=OTHER.fingerprint)
        await until(port.dropped)
        assert port.dropped() == {"distrusted": 1}


async def test_an_agent_without_a_fingerprint_is_told_that_the_run_speaks_tls():
    async with tls_port() as port:
        with pytest.raises(TlsRequiredError, match="--tls") as caught:
            await dialled(port.at, fingerprint=None)
        assert "fingerprint" in caught.value.fix
        await until(port.dropped)
        assert port.dropped() == {"plain": 1}


async def test_an_agent_with_a_fingerprint_never_speaks_plainly():
    heard = bytearray()

    async def plain_run(connection):
        heard.extend(await connection.stream.receive())

    async with running_port(on_join=plain_run, handshake_s=5.0) as port:
        with pytest.raises(NoTlsError, match=r"speaks no TLS 1\.3"):
            await dialled(port.at)
        await until(port.dropped)
        assert port.dropped() == {"tls": 1}
    assert not heard


async def test_inside_tls_the_token_still_counts():
    async with tls_port() as port:
        with pytest.raises(WrongTokenError):
            await dialled(port.at, token=OTHER_TOKEN)
        await until(port.dropped)
        assert port.dropped() == {"unproven": 1}


async def test_an_older_tls_is_refused_by_name():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with tls_port() as port:
        with pytest.raises(ssl.SSLError, match=r"(?i)protocol.version"):
            await anyio.to_thread.run_sync(raw_tls, port.at, context)
        await until(port.dropped)
        assert port.dropped() == {"bad_tls": 1}
        assert "unsupported protocol" in port.notes[0].detail


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (b"\x16\x03\x01\x00\x05hello", "bad_tls"),
        (b"\x16\x03\x01\xff\xff" + bytes(70_000), "bad_tls"),
        (b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(70_000), "bad_tls"),
    ],
    ids=["garbage", "an oversize record", "an oversize hello"],
)
async def test_garbage_behind_the_first_bytes_of_tls_is_dropped_and_counted(first, reason):
    async with tls_port() as port:
        with port.client() as sock:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                sock.send(first)
            await until(port.dropped)
        assert port.dropped() == {reason: 1}


@pytest.mark.parametrize("count", [1, 5, 100, 400])
async def test_a_half_open_handshake_ends_with_the_budget(count):
    hello = ssl.MemoryBIO()
    engine = pinned_context(None).wrap_bio(ssl.MemoryBIO(), hello)
    with contextlib.suppress(ssl.SSLWantReadError):
        engine.do_handshake()
    async with running_port(tls=IDENTITY.context, handshake_s=0.3) as port:
        with port.client(hello.read()[:count]) as sock:
            await ended(sock)
        await until(port.dropped)
        assert port.dropped() == {"silent": 1}
        assert port.port.statistics().open_unproven == 0


async def test_a_handshake_that_is_finished_and_then_silent_ends_with_the_budget():
    async with running_port(tls=IDENTITY.context, handshake_s=0.5) as port:
        silent = pinned_context(IDENTITY.fingerprint)
        assert await anyio.to_thread.run_sync(raw_tls, port.at, silent) == b""
        await until(port.dropped)
        assert port.dropped() == {"silent": 1}


@pytest.mark.parametrize("inner", [b"SSH-2.0-x", b"MUX1" + bytes(66), b"\x16\x03\x01\x00"])
async def test_only_agents_and_http_are_served_inside_tls(inner):
    async with tls_port() as port:
        trusting = pinned_context(IDENTITY.fingerprint)
        assert await anyio.to_thread.run_sync(raw_tls, port.at, trusting, inner) == b""
        await until(port.dropped)
        assert port.dropped() == {"junk": 1}


async def test_the_inner_protocol_may_come_byte_by_byte():
    def slowly(at):
        context = pinned_context(IDENTITY.fingerprint)
        with socket.create_connection(at, timeout=10) as sock, context.wrap_socket(sock) as inside:
            inside.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n":
                inside.sendall(bytes([byte]))
            return inside.recv(4096)

    async with tls_port() as port:
        answer = await anyio.to_thread.run_sync(slowly, port.at)
        assert answer.startswith(b"HTTP/1.1 200 ")


async def test_http_is_read_by_whoever_knows_the_fingerprint():
    async with tls_port() as port:
        trusted = pinned_context(IDENTITY.fingerprint)
        async with httpx.AsyncClient(trust_env=False, verify=trusted) as client:
            answer = await client.get(f"https://127.0.0.1:{port.at[1]}/state.json")
        assert answer.json() == {"run": {"id": RUN_ID}}
        assert port.port.statistics().https == 1
        assert port.dropped() == {}


async def test_a_command_is_told_of_another_certificate_and_sends_it_no_token():
    def ask(at, trusted):
        with ControllerClient(*at, operator_token="sesame", trusted=trusted) as client:
            return client.state()

    async with tls_port() as port:
        answer = await anyio.to_thread.run_sync(ask, port.at, pinned_context(IDENTITY.fingerprint))
        assert answer.is_ok
        with pytest.raises(ControllerUnreachableError, match="another certificate than the token"):
            await anyio.to_thread.run_sync(ask, port.at, pinned_context(OTHER.fingerprint))
        await until(port.dropped)
        assert port.dropped() == {"distrusted": 1}


async def test_plain_http_is_told_that_the_run_speaks_tls():
    def ask(at):
        with ControllerClient(*at) as client:
            return client.state()

    async with tls_port() as port:
        answer = await anyio.to_thread.run_sync(ask, port.at)
        assert (answer.status, answer.error) == (400, "this run speaks TLS only")
        assert "token" in str(answer.body["fix"])
        await until(port.dropped)
        assert port.dropped() == {"plain": 1}


async def test_https_to_a_run_without_tls_says_so():
    def ask(at):
        with ControllerClient(*at, trusted=pinned_context(IDENTITY.fingerprint)) as client:
            return client.state()

    async with running_port(on_http=web()) as port:
        with pytest.raises(ControllerUnreachableError, match=r"speaks no TLS 1\.3"):
            await anyio.to_thread.run_sync(ask, port.at)
        await until(port.dropped)
        assert port.dropped() == {"tls": 1}


@pytest.mark.parametrize("tls", [None, IDENTITY.context])
async def test_the_run_that_holds_a_port_is_named_whatever_it_speaks(tls):
    async with running_port(on_http=web(), tls=tls) as port:
        assert await anyio.to_thread.run_sync(run_id_at, *port.at) == RUN_ID


async def test_relays_keep_their_own_keys_beside_tls_and_seal_every_message():
    taken = []

    async def on_mux(connection):
        end, hello = await accept_mux(connection, salt=SALT, is_sealed=True)
        link = MuxLink(end, seen := Recorder())
        taken.append((link, seen, hello))
        link.start()

    hello = RelayHello(host="red", ranks=(0,), sigs=("ab",))
    async with running_port(on_mux=on_mux, tls=IDENTITY.context) as port:
        near = MuxLink(await connect_mux(*port.at, salt=SALT, is_sealed=True), seen := Recorder())
        near.start()
        near.send(hello)
        await until(lambda: taken)
        far, far_seen, got = taken[0]
        assert got == hello
        far.send(RelayHelloAck())
        near.send_bucket(bucket(8), memoryview(b"12345678"))
        near.send(RelayHelloAck())
        far_seen.wait(lambda one: one.buckets and one.messages)
        seen.wait(lambda one: one.messages)
        assert far_seen.buckets[0][1] == b"12345678"
        near.close()
        far.close()
        assert port.dropped() == {}


async def test_a_relay_that_only_tags_is_refused_where_messages_are_sealed():
    async def on_mux(connection):
        await accept_mux(connection, salt=SALT, is_sealed=True)

    async with running_port(on_mux=on_mux) as port:
        near = MuxLink(await connect_mux(*port.at, salt=SALT), seen := Recorder())
        near.start()
        near.send(RelayHello(host="red", ranks=(0,), sigs=("ab",)))
        near.send(RelayHello(host="red", ranks=(0,), sigs=("ab",)))
        await until(port.dropped)
        assert port.dropped() == {"bad_handshake": 1}
        seen.wait(lambda one: one.closed)
        near.close()


async def test_a_port_that_hangs_up_inside_the_handshake_may_be_dialled_again():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with anyio.create_task_group() as tasks:

            async def hang_up():
                sock, _ = await anyio.to_thread.run_sync(listener.accept)
                sock.close()

            tasks.start_soon(hang_up)
            with pytest.raises(TransientJoinError, match="closed the connection"):
                await dialled(listener.getsockname())


async def test_a_large_message_passes_whole():
    async def echo(connection):
        link = await accept_join(connection, token=TOKEN, open_admission=False)
        await link.send(await link.receive())
        await link.send(await link.receive())

    large = Knock(version="v" * MIB)
    async with running_port(on_join=echo, tls=IDENTITY.context) as port:
        link = await dialled(port.at)
        await link.send(KNOCK)
        await link.send(large)
        assert [await link.receive(), await link.receive()] == [KNOCK, large]
        await link.aclose()


def test_each_run_has_a_certificate_of_its_own_and_the_fingerprint_is_that_of_its_bytes():
    assert IDENTITY.fingerprint != OTHER.fingerprint
    near, far = socket.socketpair()
    with near, far:
        near.settimeout(10)

        def serve():
            with contextlib.suppress(OSError):
                IDENTITY.context.wrap_socket(far, server_side=True).close()

        server = threading.Thread(target=serve)
        server.start()
        with pinned_context(None).wrap_socket(near) as inside:
            shown = inside.getpeercert(binary_form=True)
            assert inside.version() == "TLSv1.3"
        server.join(10)
    assert fingerprint_of(shown) == IDENTITY.fingerprint
