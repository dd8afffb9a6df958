"""Large models: buckets stream, memory beside the model is a constant, waiting wakes at once."""

import threading
import tracemalloc

import numpy as np
import pytest
from planes_world import Work, World, geometry_of

from flodl_core.net.local import socket_pair
from flodl_core.planes.event_loop import PlaneLoop
from flodl_core.planes.host_port import HostPort
from flodl_core.planes.round_plan import MAX_AHEAD
from flodl_core.units import BUCKET_BYTES, MIB

MODEL_BYTES = 64 * MIB


@pytest.mark.slow
@pytest.mark.parametrize("link", ["fake", "mux"])
def test_a_64_mib_model_needs_a_constant_beside_its_segments(link: str) -> None:
    world = World(geometry_of([MODEL_BYTES // 4]), [[0], [1, 2]], link=link)
    for rank, client in world.clients.items():
        client.slot.params[:] = rank
    tracemalloc.start()
    for cycle in range(2):
        for rank in range(3):
            world.ready(cycle, rank, Work(rank + 1))
        for client in world.clients.values():
            while not client.ends_cycle(client.wait_round(30)):
                pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    expected = np.float32((0 * 1 + 1 * 2 + 2 * 3) / 6)
    for client in world.clients.values():
        assert client.staging.params.min() == client.staging.params.max() == expected
    root_and_relay = 2 * MAX_AHEAD * BUCKET_BYTES
    assert peak < root_and_relay + 8 * MIB
    port = world.root._peers.port_of("h1")
    assert isinstance(port, HostPort)
    assert port._made <= MAX_AHEAD
    world.close()


def test_calls_posted_by_other_threads_run_in_the_waiting_one_in_order() -> None:
    loop = PlaneLoop()
    ran: list[tuple[int, int]] = []
    me = threading.get_ident()

    def post_all() -> None:
        for number in range(2000):
            loop.post(lambda number=number: ran.append((number, threading.get_ident())))

    poster = threading.Thread(target=post_all)
    poster.start()
    while len(ran) < 2000:
        loop.wait(20)
    poster.join()
    assert ran == [(number, me) for number in range(2000)]
    loop.close()


def test_a_socket_is_served_until_it_is_forgotten() -> None:
    loop = PlaneLoop()
    near, far = socket_pair()
    seen = []
    loop.watch(near, lambda: seen.append(near.recv(10)))
    far.send(b"a")
    loop.wait(20)
    loop.forget(near)
    far.send(b"b")
    loop.wait(0)
    assert seen == [b"a"]
    for sock in (near, far):
        sock.close()
    loop.close()


def test_a_closed_loop_takes_posts_and_does_nothing() -> None:
    loop = PlaneLoop()
    loop.close()
    loop.post(lambda: pytest.fail("it ran"))
    loop.wake()
