"""Messages over inherited socketpairs: async and blocking ends, descriptors beside them."""

import os
import socket
import threading

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.errors import BadFrameError, LocalProtocolError
from flodl_core.ids import Cycle, Rank
from flodl_core.messages.control import RequestParams
from flodl_core.messages.data import PlaneHello, Ready
from flodl_core.messages.join import RankStack
from flodl_core.net.local import BlockingPlain, PlainChannel, socket_pair
from flodl_core.net.shared_memory import create_memfd, map_fd
from flodl_core.wire.codec import encode
from flodl_core.wire.frame import FrameSealer

READY = Ready(rank=Rank(1), cycle=Cycle(7))
HELLO = PlaneHello(rank=Rank(1), slot_bytes=4096)


@pytest.fixture
def channels():
    near, far = socket_pair()
    pair = PlainChannel(near), PlainChannel(far)
    yield pair
    for channel in pair:
        channel._stream.close()


@pytest.fixture
def blocking():
    near, far = socket_pair()
    pair = BlockingPlain(near), BlockingPlain(far)
    yield pair
    for channel in pair:
        channel.close()


@pytest.mark.anyio
class TestPlainChannel:
    """The async end."""

    async def test_messages_arrive_in_order_and_the_end_is_clean(self, channels):
        near, far = channels
        sent = [RequestParams(cycle=Cycle(n)) for n in range(100)]
        for message in sent:
            await near.send(message)
        await near.aclose()
        assert [await far.receive() for _ in sent] == sent
        with pytest.raises(anyio.EndOfStream):
            await far.receive()

    async def test_a_relay_forwards_what_it_does_not_look_at(self, channels):
        near, far = channels
        await near.send_raw(9999, b"\x00untouched")
        await near.send(READY)
        assert await far.receive_raw() == (9999, b"\x00untouched")
        assert await far.receive_raw() == encode(READY)

    async def test_a_payload_above_one_piece_is_put_together_again(self, channels):
        near, far = channels
        message = RankStack(rank=Rank(0), text="é" * (1 << 20))
        with anyio.fail_after(10):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(near.send, message)
                assert await far.receive() == message

    async def test_a_cancelled_receive_loses_nothing(self, channels):
        near, far = channels
        with anyio.move_on_after(0.01):
            await far.receive()
        await near.send(READY)
        assert await far.receive() == READY

    async def test_what_is_no_message_is_an_error_of_the_sender_only(self, channels):
        near, far = channels
        with pytest.raises(LocalProtocolError):
            await near.send("text")
        await near.send(READY)
        assert await far.receive() == READY

    @pytest.mark.parametrize("cut", [1, 10, 21])
    async def test_an_end_inside_a_message_is_an_error(self, cut):
        near, far = socket_pair()
        with near:
            near.send(FrameSealer(None).seal(*encode(READY))[:cut])
        channel = PlainChannel(far)
        with pytest.raises(BadFrameError, match="broke off inside a message"):
            await channel.receive()
        await channel.aclose()

    async def test_a_lost_frame_is_noticed(self):
        near, far = socket_pair()
        sealer = FrameSealer(None)
        sealer.seal(*encode(READY))
        with near:
            near.send(sealer.seal(*encode(READY)))
            channel = PlainChannel(far)
            with pytest.raises(BadFrameError, match="frame 1 came, 0 was next"):
                await channel.receive()
        await channel.aclose()

    async def test_a_vanished_process_breaks_the_writer(self, channels):
        near, far = channels
        await far.aclose()
        with pytest.raises(anyio.BrokenResourceError):
            await near.send(READY)
        with pytest.raises(anyio.ClosedResourceError):
            await near.send(READY)


class TestBlockingPlain:
    """The end for threads."""

    def test_a_descriptor_arrives_with_its_message_and_no_other(self, blocking):
        near, far = blocking
        fd = create_memfd("slot", 4096)
        near.send(READY)
        near.send(HELLO, fds=[fd])
        near.send(READY)
        map_fd(fd, 4096, writable=True)[:5] = b"hello"
        os.close(fd)
        assert far.receive(5) == (READY, [])
        message, fds = far.receive(5)
        assert message == HELLO
        assert len(fds) == 1
        assert not os.get_inheritable(fds[0])
        assert map_fd(fds[0], 4096, writable=False)[:5] == b"hello"
        os.close(fds[0])
        assert far.receive(5) == (READY, [])

    def test_a_timeout_loses_nothing(self):
        near, far = socket_pair()
        channel = BlockingPlain(far)
        data = FrameSealer(None).seal(*encode(READY))
        with near:
            for at in range(len(data)):
                with pytest.raises(TimeoutError):
                    channel.receive(0)
                near.send(data[at : at + 1])
            assert channel.receive(0) == (READY, [])
        channel.close()

    def test_a_reader_without_a_timeout_waits_for_the_message(self, blocking):
        near, far = blocking
        got = []
        reader = threading.Thread(target=lambda: got.append(far.receive()))
        reader.start()
        near.send(READY)
        reader.join(10)
        assert got == [(READY, [])]

    def test_the_end_between_messages_is_clean_and_inside_one_an_error(self):
        data = FrameSealer(None).seal(*encode(READY))
        for cut, error in ((len(data), EOFError), (5, BadFrameError), (22, BadFrameError)):
            near, far = socket_pair()
            channel = BlockingPlain(far)
            with near:
                near.send(data[:cut])
            if cut == len(data):
                assert channel.receive(5) == (READY, [])
            with pytest.raises(error):
                channel.receive(5)
            channel.close()
            channel.close()

    def test_closing_wakes_a_reader_in_another_thread(self, blocking):
        _, far = blocking
        ended = []

        def read():
            try:
                far.receive()
            except (EOFError, OSError, ValueError) as error:
                ended.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        far.close()
        reader.join(10)
        assert len(ended) == 1

    def test_a_reader_that_takes_nothing_is_a_timeout(self):
        near, far = socket_pair()
        channel = BlockingPlain(near, write_stall_s=0.05)
        with far, pytest.raises(TimeoutError, match="takes no bytes"):
            channel.send(RankStack(rank=Rank(0), text="x" * (4 << 20)))
        channel.close()

    def test_too_many_descriptors_are_refused(self, blocking):
        near, _ = blocking
        with pytest.raises(LocalProtocolError, match="5 descriptors"):
            near.send(READY, fds=[0] * 5)

    def test_descriptors_that_nobody_took_are_closed(self, blocking):
        near, far = blocking
        fd = create_memfd("slot", 4096)
        data = FrameSealer(None).seal(*encode(HELLO))
        socket.send_fds(near._sock, [data[:-1]], [fd])
        with pytest.raises(TimeoutError):
            far.receive(0)
        (taken,) = far._descriptors
        os.fstat(taken)
        far.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(taken)
        os.close(fd)

    @settings(max_examples=60, deadline=None)
    @given(data=st.binary(min_size=1, max_size=200))
    def test_arbitrary_bytes_raise_a_bad_frame_or_end_and_nothing_else(self, data):
        near, far = socket_pair()
        channel = BlockingPlain(far)
        with near:
            near.send(data)
        with pytest.raises((BadFrameError, EOFError)):
            channel.receive(5)
        channel.close()
