"""A byte stream over a raw socket, on both event loops."""

import socket

import anyio
import anyio.lowlevel
import pytest

from flodl_core.net.byte_stream import ByteStream

pytestmark = pytest.mark.anyio


@pytest.fixture
def pair():
    near, far = socket.socketpair()
    streams = ByteStream(near), ByteStream(far)
    yield streams
    for stream in streams:
        stream.close()


async def test_bytes_arrive_in_order_and_the_end_is_told(pair):
    near, far = pair
    await near.send_all(b"abc")
    await near.send_all(b"def")
    near.send_eof()
    assert await far.receive(4) == b"abcd"
    assert await far.receive(4) == b"ef"
    with pytest.raises(anyio.EndOfStream):
        await far.receive(4)


async def test_much_more_than_the_buffers_hold_goes_through(pair):
    near, far = pair
    data = bytes(range(256)) * 16384
    got = bytearray()

    async def read():
        while len(got) < len(data):
            got.extend(await far.receive())

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await near.send_all(data)
    assert bytes(got) == data


async def test_a_peer_that_takes_nothing_is_a_timeout(pair):
    near, _ = pair
    with pytest.raises(TimeoutError, match="took no byte"):
        await near.send_all(bytes(8 << 20), stall_s=0.05)


async def test_a_vanished_peer_breaks_the_writer(pair):
    near, far = pair
    far.close()
    with pytest.raises(anyio.BrokenResourceError):
        await near.send_all(b"x")


async def test_closing_wakes_a_reader_that_waits(pair):
    near, _ = pair
    woken = []

    async def read():
        try:
            await near.receive()
        except (anyio.ClosedResourceError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
            woken.append(error)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            await anyio.wait_all_tasks_blocked()
            near.close()
    assert len(woken) == 1
    near.close()
    with pytest.raises(anyio.ClosedResourceError):
        await near.receive()
    with pytest.raises(anyio.ClosedResourceError):
        await near.send_all(b"x")


async def test_a_cancelled_read_loses_nothing(pair):
    near, far = pair
    with anyio.move_on_after(0.01):
        await far.receive()
    await near.send_all(b"still here")
    assert await far.receive() == b"still here"


async def test_a_detached_socket_still_holds_every_unread_byte(pair):
    near, far = pair
    await near.send_all(b"headrest")
    assert await far.receive(4) == b"head"
    sock = far.detach()
    assert far.is_closed
    with sock:
        sock.settimeout(None)
        assert sock.recv(10) == b"rest"


async def test_a_reader_that_always_finds_bytes_lets_others_run(pair):
    near, far = pair
    await near.send_all(bytes(1000))
    turns = []

    async def count():
        while True:
            turns.append(1)
            await anyio.lowlevel.checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(count)
        for _ in range(1000):
            await far.receive(1)
        tasks.cancel_scope.cancel()
    assert len(turns) > 300
