"""MUX links over loopback TCP: two threads an end, messages between bucket pieces, one end."""

import socket
import threading

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from net_pairs import (
    SALT,
    Recorder,
    bucket,
    mux_ends,
    mux_pair,
    running_port,
    session_keys,
    tcp_pair,
    until,
)

from flodl_core.errors import BadFrameError, LocalProtocolError, WrongTokenError
from flodl_core.ids import HostName, Rank
from flodl_core.messages.mux import Data, RankExit, RelayHello, RelayHelloAck
from flodl_core.net import mux_outbox
from flodl_core.net.mux_end import accept_mux, connect_mux
from flodl_core.net.mux_link import MuxLink
from flodl_core.net.mux_outbox import LinkClosedError, MuxOutbox, OutboxFullError, WaitingMessage
from flodl_core.units import BUCKET_BYTES, MIB, PIECE_BYTES
from flodl_core.wire.codec import encode
from flodl_core.wire.frame import FrameSealer

HELLO = RelayHello(host=HostName("red"), ranks=(Rank(2), Rank(3)), sigs=())


def values(nbytes, seed=1):
    return memoryview((bytes(range(seed, seed + 251)) * (nbytes // 251 + 1))[:nbytes])


def test_messages_arrive_in_order_both_ways():
    with mux_pair() as (near, near_seen, far, far_seen):
        for n in range(500):
            near.send(RankExit(rank=Rank(n)))
            far.send(Data(rank=Rank(n), kind=48, payload=b"x" * n))
        far_seen.wait(lambda seen: len(seen.messages) == 500)
        near_seen.wait(lambda seen: len(seen.messages) == 500)
        assert far_seen.messages == [RankExit(rank=Rank(n)) for n in range(500)]
        assert [one.payload for one in near_seen.messages] == [b"x" * n for n in range(500)]
    assert near_seen.closed == far_seen.closed == [None]


@pytest.mark.parametrize("nbytes", [0, 4, PIECE_BYTES, PIECE_BYTES + 4, BUCKET_BYTES])
def test_a_bucket_arrives_whole_and_done_is_told(nbytes):
    done = threading.Event()
    with mux_pair() as (near, _, _, far_seen):
        near.send_bucket(bucket(nbytes), values(nbytes), done=done.set)
        far_seen.wait(lambda seen: seen.buckets)
        assert far_seen.buckets == [(bucket(nbytes), bytes(values(nbytes)))]
        assert far_seen.begun == ([bucket(nbytes)] if nbytes else [])
        assert done.wait(5)


def test_a_message_goes_between_the_pieces_of_a_bucket():
    with mux_pair() as (near, _, far, far_seen):

        def send_a_message_on_begin(frame):
            near.send(RankExit(rank=Rank(frame.index)))
            return memoryview(bytearray(frame.nbytes))

        far._bucket_opener._place = send_a_message_on_begin
        for index in range(8):
            near.send_bucket(bucket(BUCKET_BYTES, index=index), values(BUCKET_BYTES))
        far_seen.wait(lambda seen: len(seen.buckets) == 8 and len(seen.messages) == 8)
        first_message = far_seen.order.index("RankExit")
        assert first_message < len(far_seen.order) - 1
        assert "bucket" in far_seen.order[first_message:]


def test_messages_and_buckets_of_many_threads_all_arrive():
    with mux_pair() as (near, _, _, far_seen):

        def send(worker):
            for n in range(20):
                near.send(Data(rank=Rank(worker), kind=n, payload=bytes([worker]) * 1000))
                near.send_bucket(bucket(40_000, index=worker), values(40_000, seed=worker))

        threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        far_seen.wait(lambda seen: len(seen.messages) == len(seen.buckets) == 80)
        for worker in range(4):
            kinds = [one.kind for one in far_seen.messages if one.rank == worker]
            assert kinds == list(range(20))
        assert all(got == bytes(values(40_000, frame.index)) for frame, got in far_seen.buckets)


def test_a_message_above_one_mebibyte_travels_in_pieces():
    message = Data(rank=Rank(1), kind=48, payload=bytes(5 * MIB))
    with mux_pair() as (near, _, _, far_seen):
        near.send(message)
        far_seen.wait(lambda seen: seen.messages)
        assert far_seen.messages == [message]


def test_closing_with_a_flush_delivers_all_that_was_queued():
    with mux_pair() as (near, near_seen, _, far_seen):
        for n in range(100):
            near.send(RankExit(rank=Rank(n)))
        near.send_bucket(bucket(BUCKET_BYTES), values(BUCKET_BYTES))
        near.close(flush_s=10)
        far_seen.wait(lambda seen: seen.closed)
        assert len(far_seen.messages) == 100
        assert len(far_seen.buckets) == 1
        assert far_seen.order[-1] == "closed"
        assert far_seen.closed == near_seen.closed == [None]


def test_nothing_can_be_sent_after_the_end():
    with mux_pair() as (near, near_seen, far, _):
        far.close()
        near_seen.wait(lambda seen: seen.closed)
        with pytest.raises(LinkClosedError):
            near.send(HELLO)
        with pytest.raises(LinkClosedError):
            near.send_bucket(bucket(4), values(4))


def test_a_link_that_never_started_closes_its_socket():
    end, far = mux_ends()
    link = MuxLink(end, Recorder())
    link.close()
    link.close()
    assert end.sock.fileno() == -1
    far.sock.close()


def test_what_is_no_message_or_no_fitting_bucket_is_the_sender_s_bug():
    with mux_pair() as (near, _, _, far_seen):
        with pytest.raises(LocalProtocolError):
            near.send("text")
        with pytest.raises(LocalProtocolError, match="says 8 bytes and 4 were given"):
            near.send_bucket(bucket(8), values(4))
        near.send(HELLO)
        far_seen.wait(lambda seen: seen.messages)


def stuck_link(**options):
    """A link whose peer never reads."""
    near, far = tcp_pair()
    near.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
    far.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    end, other = mux_ends()
    for unused in (end.sock, other.sock):
        unused.close()
    seen = Recorder()
    link = MuxLink(type(end)(sock=near, keys=end.keys, peer=end.peer), seen, **options)
    link.start()
    return link, seen, far


def test_a_peer_that_takes_no_byte_ends_the_link():
    link, seen, far = stuck_link(write_stall_s=0.1)
    with far:
        link.send_bucket(bucket(BUCKET_BYTES), values(BUCKET_BYTES))
        seen.wait(lambda seen: seen.closed)
        assert "took no byte for 0.1 s" in str(seen.closed[0])
    link.close()
    assert len(seen.closed) == 1


def test_the_ninth_bucket_waits_and_a_close_frees_it():
    link, seen, far = stuck_link()
    outcome = []

    def send():
        try:
            for index in range(20):
                link.send_bucket(bucket(BUCKET_BYTES, index=index), values(BUCKET_BYTES))
        except LinkClosedError as error:
            outcome.append(error)

    thread = threading.Thread(target=send)
    with far:
        thread.start()
        with link._outbox._changed:
            assert link._outbox._changed.wait_for(
                lambda: len(link._outbox._buckets) == mux_outbox.MAX_BUCKETS, 10
            )
        link.close()
        thread.join(10)
    assert len(outcome) == 1
    assert seen.closed == [None]


def test_too_many_waiting_messages_are_refused_and_nothing_blocks():
    box = MuxOutbox()
    for _ in range(mux_outbox.MAX_MESSAGES):
        box.put_message(WaitingMessage(1, b""))
    with pytest.raises(OutboxFullError, match="4096 messages of 0 bytes wait"):
        box.put_message(WaitingMessage(1, b""))
    assert box.peak_messages == 4096
    other = MuxOutbox()
    for _ in range(4):
        other.put_message(WaitingMessage(1, bytes(16 * MIB)))
    with pytest.raises(OutboxFullError):
        other.put_message(WaitingMessage(1, b"x"))
    other.close()
    with pytest.raises(LinkClosedError):
        other.put_message(WaitingMessage(1, b""))
    assert other.take(100) is None


def raw_far_end():
    """A link and the bare other end, to say wrong things with the right keys."""
    near, far = tcp_pair()
    end, other = mux_ends()
    for unused in (end.sock, other.sock):
        unused.close()
    seen = Recorder()
    link = MuxLink(type(end)(sock=near, keys=end.keys, peer=end.peer), seen)
    link.start()
    _, far_keys = session_keys()
    return link, seen, far, FrameSealer(far_keys.send_hmac)


@pytest.mark.parametrize("cut", [0, 1, 23, 24, 40])
def test_an_end_between_frames_is_clean_and_inside_one_an_error(cut):
    link, seen, far, sealer = raw_far_end()
    with far:
        far.sendall(sealer.seal(*encode(HELLO)) + sealer.seal(*encode(HELLO))[:cut])
    seen.wait(lambda seen: seen.closed)
    link.close()
    assert seen.messages == [HELLO]
    assert [type(error) for error in seen.closed] == [BadFrameError if cut else type(None)]


def test_an_end_between_the_pieces_of_a_bucket_is_an_error():
    near_end, far_end = mux_ends()
    near_seen, far_seen = Recorder(), Recorder()
    far = MuxLink(far_end, far_seen)
    far.start()
    sender = MuxLink(near_end, near_seen)
    pieces = sender._bucket_sealer.iter_pieces(bucket(BUCKET_BYTES), values(BUCKET_BYTES))
    for _ in range(2):
        for buffer in next(pieces):
            near_end.sock.sendall(buffer)
    sender.close()
    far_seen.wait(lambda seen: seen.closed)
    assert isinstance(far_seen.closed[0], BadFrameError)
    assert far_seen.buckets == []
    far.close()


@settings(max_examples=40, deadline=None)
@given(data=st.binary(min_size=1, max_size=300))
def test_arbitrary_bytes_end_the_link_once_and_nothing_else(data):
    link, seen, far, sealer = raw_far_end()
    with far:
        far.sendall(sealer.seal(*encode(HELLO)) + data)
    seen.wait(lambda seen: seen.closed)
    link.close()
    assert seen.messages == [HELLO]
    assert [type(error) for error in seen.closed] == [BadFrameError]


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_flipped_bit_anywhere_is_noticed(data):
    link, seen, far, sealer = raw_far_end()
    sent = bytearray(sealer.seal(*encode(HELLO)))
    bit = data.draw(st.integers(0, len(sent) * 8 - 1))
    sent[bit // 8] ^= 1 << bit % 8
    with far:
        far.sendall(sent)
    seen.wait(lambda seen: seen.closed)
    link.close()
    assert seen.messages == []
    assert isinstance(seen.closed[0], BadFrameError)


def test_a_replayed_frame_is_noticed():
    link, seen, far, sealer = raw_far_end()
    frame = sealer.seal(*encode(HELLO))
    with far:
        far.sendall(frame + frame)
        seen.wait(lambda seen: seen.closed)
    link.close()
    assert seen.messages == [HELLO]
    assert "frame 0 came, 1 was next" in str(seen.closed[0])


def test_an_error_of_a_callback_ends_the_link():
    with mux_pair() as (near, near_seen, _, far_seen):

        def fail(message):
            raise LocalProtocolError("a bug in a callback")

        far_seen.on_each = fail
        near.send(HELLO)
        far_seen.wait(lambda seen: seen.closed)
        assert isinstance(far_seen.closed[0], LocalProtocolError)
        near_seen.wait(lambda seen: seen.closed)


def test_a_bucket_above_the_limit_is_refused_unread():
    with mux_pair() as (near, _, _, far_seen):
        near.send_bucket(bucket(BUCKET_BYTES + 4), values(BUCKET_BYTES + 4))
        far_seen.wait(lambda seen: seen.closed)
        assert isinstance(far_seen.closed[0], BadFrameError)
        assert far_seen.begun == []


def test_bytes_and_waiting_messages_are_counted():
    done = threading.Event()
    with mux_pair() as (near, _, far, far_seen):
        near.send_bucket(bucket(BUCKET_BYTES), values(BUCKET_BYTES), done=done.set)
        far_seen.wait(lambda seen: seen.buckets)
        assert done.wait(10)
        sent, received = near.statistics(), far.statistics()
        assert BUCKET_BYTES < received.received_bytes <= sent.sent_bytes < BUCKET_BYTES + 1000
        assert sent.waiting_messages == 0


@pytest.mark.anyio
class TestMuxHandshake:
    """Relays through a real port."""

    async def test_a_relay_with_the_salt_becomes_a_link(self):
        got, seen, far_seen, links = [], Recorder(), Recorder(), []

        async def accept(connection):
            end, hello = await accept_mux(connection, salt=SALT)
            got.append(hello)
            links.append(MuxLink(end, far_seen))
            links[0].start()
            links[0].send(RelayHelloAck())

        async with running_port(on_mux=accept) as port:
            link = MuxLink(await connect_mux(*port.at, salt=SALT), seen)
            link.start()
            link.send(HELLO)
            link.send_bucket(bucket(100_000), values(100_000))
            await until(lambda: seen.messages and far_seen.buckets)
            assert got == [HELLO]
            assert seen.messages == [RelayHelloAck()]
            assert far_seen.messages == []
            assert port.port.statistics().muxes == 1
        await anyio.to_thread.run_sync(link.close)
        await anyio.to_thread.run_sync(links[0].close)
        assert seen.closed == far_seen.closed == [None]
        assert port.dropped() == {}

    async def test_another_salt_is_told_so(self):
        async def accept(connection):
            await accept_mux(connection, salt=SALT)

        async with running_port(on_mux=accept) as port:
            with pytest.raises(WrongTokenError, match="another session salt"):
                await connect_mux(*port.at, salt=bytes(16))
            await until(port.dropped)
            assert port.dropped() == {"unproven": 1}

    async def test_a_first_message_of_another_kind_is_refused(self):
        async def accept(connection):
            await accept_mux(connection, salt=SALT)

        async with running_port(on_mux=accept) as port:
            link = MuxLink(await connect_mux(*port.at, salt=SALT), seen := Recorder())
            link.start()
            link.send(RelayHelloAck())
            await until(port.dropped)
            assert port.dropped() == {"bad_handshake": 1}
            await until(lambda: seen.closed)
            await anyio.to_thread.run_sync(link.close)
