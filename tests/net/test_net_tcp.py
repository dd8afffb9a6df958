"""Dialling: each address of a name has its part of the time."""

import socket

import anyio
import pytest

from flodl_core.net.tcp import _open_first

WITHIN_S = 4.0


def listening(backlog=8):
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(backlog)
    return listener


def silent():
    """A listener whose queue is full: the system drops what else comes, and says nothing."""
    listener, waiting = listening(backlog=0), []
    for _ in range(4):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(listener.getsockname())
        waiting.append(one)
    return listener, waiting


def refusing():
    closed = listening()
    address = closed.getsockname()
    closed.close()
    return address


def v4(*addresses):
    return [(socket.AF_INET, address) for address in addresses]


@pytest.mark.anyio
async def test_an_address_that_does_not_answer_leaves_the_next_its_time():
    black_hole, waiting = silent()
    good = listening()
    began = anyio.current_time()
    stream = await _open_first(v4(black_hole.getsockname(), good.getsockname()), WITHIN_S)
    assert stream is not None
    assert anyio.current_time() - began < WITHIN_S
    peer, _ = good.accept()
    peer.close()
    stream.detach().close()
    for one in (black_hole, good, *waiting):
        one.close()


@pytest.mark.anyio
async def test_where_no_address_answers_the_time_is_over_and_a_refusal_is_told():
    black_hole, waiting = silent()
    at = black_hole.getsockname()
    began = anyio.current_time()
    assert await _open_first(v4(at, at), 0.4) is None
    assert 0.35 < anyio.current_time() - began < 4.0
    with pytest.raises(ConnectionRefusedError):
        await _open_first(v4(at, refusing()), 0.4)
    for one in (black_hole, *waiting):
        one.close()
