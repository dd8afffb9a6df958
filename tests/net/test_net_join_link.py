"""JOIN connections through a real port: keys, refusals with their names, messages, ends."""

import socket

import anyio
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from net_pairs import OTHER_TOKEN, SALT, TOKEN, ended, running_port, session_keys, tcp_pair, until

from flodl_core.errors import (
    BadFrameError,
    LocalProtocolError,
    RefusedError,
    TokenRequiredError,
    TransientJoinError,
    WrongTokenError,
)
from flodl_core.ids import Rank
from flodl_core.messages.join import Abort, Accept, Knock, RankStack
from flodl_core.net.addresses import Peer
from flodl_core.net.byte_stream import ByteStream
from flodl_core.net.handshake import DialTimes
from flodl_core.net.join_link import JoinLink, accept_join, connect_join
from flodl_core.net.tcp import (
    HungUpError,
    NoAnswerError,
    NobodyListensError,
    NotFlodlError,
    UnknownHostError,
)
from flodl_core.wire.codec import encode
from flodl_core.wire.frame import FrameSealer

pytestmark = pytest.mark.anyio

KNOCK = Knock(version="0.1.0")
ACCEPT = Accept(ranks=(Rank(1), Rank(2)), salt=SALT, formation_wait_s=5.0)


class Controller:
    """Accepts agents, answers each Knock, keeps what it got."""

    def __init__(self, *, token=TOKEN, open_admission=False):
        self.token, self.open_admission = token, open_admission
        self.links, self.got = [], []

    async def __call__(self, connection):
        link = await accept_join(connection, token=self.token, open_admission=self.open_admission)
        self.links.append(link)
        self.got.append(await link.receive())
        await link.send_accept(ACCEPT)
        while True:
            self.got.append(await link.receive())


async def test_an_agent_with_the_token_gets_the_salt_and_the_link_stays_open():
    controller = Controller()
    async with running_port(on_join=controller, handshake_s=0.3) as port:
        link = await connect_join(*port.at, token=TOKEN)
        await link.send(KNOCK)
        assert await link.receive() == ACCEPT
        assert port.port.statistics().joins == 1
        await anyio.sleep(0.4)
        await link.send(Abort(reason="after the handshake budget"))
        await until(lambda: len(controller.got) == 2)
        assert controller.got[0] == KNOCK
        assert controller.links[0].peer.is_loopback
        await link.aclose()
        await until(lambda: port.port.statistics().open_links == 0)
        assert port.dropped() == {}


async def test_the_salt_never_crosses_in_the_clear():
    near, far = tcp_pair()
    keys, _ = session_keys()
    link = JoinLink(ByteStream(near), keys, peer=Peer(address="127.0.0.1", port=1))
    await link.send_accept(ACCEPT)
    with far:
        assert SALT not in far.recv(65536)
    with pytest.raises(LocalProtocolError, match="unsealed"):
        await link.send(ACCEPT)
    await link.aclose()


async def test_another_token_is_told_so_and_counted():
    async with running_port(on_join=Controller()) as port:
        with pytest.raises(WrongTokenError, match="holds another join token"):
            await connect_join(*port.at, token=OTHER_TOKEN)
        await until(port.dropped)
        assert port.dropped() == {"unproven": 1}


async def test_no_token_is_told_so_and_counted():
    async with running_port(on_join=Controller()) as port:
        with pytest.raises(TokenRequiredError, match="admits nobody without the join token"):
            await connect_join(*port.at, token=None)
        await until(port.dropped)
        assert port.dropped() == {"no_token": 1}


@pytest.mark.parametrize("token", [None, TOKEN])
async def test_open_admission_lets_both_in(token):
    async with running_port(on_join=Controller(open_admission=True)) as port:
        link = await connect_join(*port.at, token=token)
        await link.send(KNOCK)
        assert await link.receive() == ACCEPT
        await link.aclose()


async def test_an_older_version_is_told_which_one_this_is():
    async with running_port(on_join=Controller()) as port:
        with port.client(b"JOIN\x00\x01" + bytes(64)) as sock:
            reply = await ended(sock)
        assert reply[:2] == bytes((1, 2))
        await until(port.dropped)
        assert port.dropped() == {"bad_handshake": 1}


async def test_a_newer_controller_refuses_for_good():
    async def newer(connection):
        await connection.stream.receive(70)
        await connection.stream.send_all(bytes((2, 2)) + bytes(96))

    async with running_port(on_join=newer) as port:
        with pytest.raises(RefusedError, match="speaks wire version 2, this is 1"):
            await connect_join(*port.at, token=TOKEN)


async def test_nobody_listening_has_a_name_of_its_own():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        at = listener.getsockname()
    with pytest.raises(NobodyListensError, match=f"nothing listens at 127.0.0.1:{at[1]}"):
        await connect_join(*at, token=TOKEN)


async def test_an_unknown_host_has_a_name_of_its_own():
    with pytest.raises(UnknownHostError, match="has no address"):
        await connect_join("no-such-host.invalid", 1, token=TOKEN)


async def test_silence_has_a_name_of_its_own():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(NoAnswerError, match=r"no answer from .* within 0.1 s"),
    ):
        await connect_join(*listener.getsockname(), token=TOKEN, times=DialTimes(handshake_s=0.1))


@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9\r\n", b"\x01\x00" + bytes(96), b"x"],
)
async def test_something_else_that_answers_is_no_flodl(answer):
    async def other(connection):
        await connection.stream.receive(70)
        await connection.stream.send_all(answer)
        connection.stream.send_eof()
        await connection.stream.receive()

    async with running_port(on_join=other) as port:
        with pytest.raises(NotFlodlError, match="does not speak flodl's protocol"):
            await connect_join(*port.at, token=TOKEN)


async def test_a_controller_that_hangs_up_is_worth_another_dial():
    async def hang_up(connection):
        await connection.stream.receive(70)

    async with running_port(on_join=hang_up) as port:
        with pytest.raises(HungUpError) as caught:
            await connect_join(*port.at, token=TOKEN)
        assert isinstance(caught.value, TransientJoinError)


async def test_a_first_frame_with_another_key_is_not_let_in():
    async with running_port(on_join=Controller()) as port:
        link = await connect_join(*port.at, token=TOKEN)
        link._sealer = FrameSealer(b"x" * 32)
        await link.send(KNOCK)
        with pytest.raises(anyio.EndOfStream):
            await link.receive()
        await link.aclose()
        await until(port.dropped)
        assert port.dropped() == {"bad_handshake": 1}
        assert port.port.statistics().joins == 0


async def test_a_large_first_frame_is_refused_before_it_is_read():
    async with running_port(on_join=Controller()) as port:
        link = await connect_join(*port.at, token=TOKEN)
        await link.send(RankStack(rank=Rank(0), text="x" * 70_000))
        with pytest.raises((anyio.EndOfStream, BadFrameError)):
            await link.receive()
        await link.aclose()
        await until(port.dropped)
        assert port.dropped() == {"bad_handshake": 1}


def plain_link():
    near, far = tcp_pair()
    keys, far_keys = session_keys()
    far.settimeout(0)
    peer = Peer(address="127.0.0.1", port=1)
    return JoinLink(ByteStream(near), keys, peer=peer), far, FrameSealer(far_keys.send_hmac)


@pytest.mark.parametrize("cut", [0, 1, 24, 50])
async def test_an_end_between_messages_is_clean_and_inside_one_an_error(cut):
    link, far, sealer = plain_link()
    with far:
        far.send(sealer.seal(*encode(KNOCK)) + sealer.seal(*encode(KNOCK))[:cut])
    assert await link.receive() == KNOCK
    with pytest.raises(BadFrameError if cut else anyio.EndOfStream):
        await link.receive()
    await link.aclose()


async def test_a_reset_between_messages_is_an_end():
    link, far, _ = plain_link()
    await link.send(KNOCK)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    far.close()
    with pytest.raises(anyio.EndOfStream):
        await link.receive()
    await link.aclose()


@pytest.mark.parametrize("kind", [4, 5])
async def test_a_reserved_kind_is_passed_over(kind):
    link, far, sealer = plain_link()
    with far:
        far.send(sealer.seal(kind, b"whatever") + sealer.seal(*encode(KNOCK)))
        assert await link.receive() == KNOCK
    await link.aclose()


async def test_a_cancelled_receive_loses_nothing():
    link, far, sealer = plain_link()
    data = sealer.seal(*encode(KNOCK))
    with far:
        for at in range(0, len(data), 7):
            far.send(data[at : at + 7])
            if at + 7 < len(data):
                with anyio.move_on_after(0.002):
                    await link.receive()
        assert await link.receive() == KNOCK
    await link.aclose()


async def test_a_send_that_is_cancelled_half_way_closes_the_link():
    link, far, _ = plain_link()

    async def send_for_ever():
        while True:
            await link.send(RankStack(rank=Rank(0), text="x" * 65536))

    with far:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send_for_ever)
            await anyio.wait_all_tasks_blocked()
            tasks.cancel_scope.cancel()
        with pytest.raises(anyio.ClosedResourceError):
            await link.send(KNOCK)


async def test_writers_take_turns():
    link, far, _ = plain_link()
    _, far_keys = session_keys()
    other = JoinLink(ByteStream(far), far_keys, peer=Peer(address="127.0.0.1", port=1))
    texts = [str(n) * 30_000 for n in range(10)]
    got = []

    async def read():
        while len(got) < len(texts):
            message = await other.receive()
            assert isinstance(message, RankStack)
            got.append(message.text)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            for text in texts:
                tasks.start_soon(link.send, RankStack(rank=Rank(0), text=text))
    assert sorted(got) == sorted(texts)
    await link.aclose()
    await other.aclose()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(min_size=1, max_size=200), cut=st.integers(1, 200))
async def test_arbitrary_bytes_raise_a_bad_frame_or_end_and_nothing_else(data, cut):
    link, far, sealer = plain_link()
    with far:
        far.send(sealer.seal(*encode(KNOCK)))
        assert await link.receive() == KNOCK
        for at in range(0, len(data), cut):
            far.send(data[at : at + cut])
    with pytest.raises((BadFrameError, anyio.EndOfStream)):
        await link.receive()
    await link.aclose()
