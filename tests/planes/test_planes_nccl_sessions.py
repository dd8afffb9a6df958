"""How a session begins: who cannot join it, and how long its first collective waits for peers.

NVIDIA's library connects a communicator at its first collective. What stands in for it here
launches when the test says so.
"""

import contextlib
import gc
import socket
import threading
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from nccl_rig import PATIENCE_S, Cohort
from planes_world import wait_until

from flodl_core.ids import Rank
from flodl_core.messages.control import DeclareDead
from flodl_core.planes.nccl.collective import Collective, CollectiveError
from flodl_core.planes.nccl.device import DeviceCollective
from flodl_core.planes.nccl.keeper import FormedSession, SessionBrokenError, SessionKeeper
from flodl_core.planes.nccl.loopback import LoopbackFabric

READY, LAUNCHING = 0, 7
MANY_LOOKS = 100


class FullFabric(LoopbackFabric):
    """Its memory is full after the first session."""

    is_full = False

    def join(self, uid: bytes, *, place: int, size: int) -> Collective:
        if self.is_full:
            raise CollectiveError("out of memory")
        self.is_full = True
        return super().join(uid, place=place, size=size)


def test_who_cannot_join_a_session_says_that_it_ends_and_the_others_go_on() -> None:
    cohort = Cohort(4, fabric=lambda rank: FullFabric() if rank == 1 else LoopbackFabric())
    with contextlib.closing(cohort):
        cohort.fill(seed=4)
        before = cohort.values()
        cohort.bury(3)
        cohort.tell_of(3)
        cohort.reform()
        unable = cohort.members[1]
        exiting = unable.wait_for_exiting()
        assert exiting.rank == 1
        assert exiting.error == "it cannot join NCCL session 1: CollectiveError: out of memory"
        with pytest.raises(CollectiveError, match="cannot join NCCL session 1"):
            unable.average(1)
        cohort.bury(1)
        cohort.tell_of(1)
        cohort.reform(session=2)
        cohort.together(lambda one: one.average(1))
        for found in (one.regions.params.double().numpy() for one in cohort.alive):
            assert np.allclose(found, (before[0] + before[2]) / 2, rtol=0, atol=1e-6)


class LateLibrary:
    """A communicator whose peer is in a long batch while a collective is launched."""

    SUM = "sum"
    UniqueId = SimpleNamespace(from_bytes=bytes)
    NCCLConfig = SimpleNamespace

    def __init__(self) -> None:
        self.Communicator = SimpleNamespace(init=lambda *_: self)
        self.is_launching = False
        self.is_waited_for = threading.Event()
        self._looks = 0

    def allreduce(self, *_: object, **__: object) -> None:
        self.is_launching = True

    def get_async_error(self) -> int:
        self._looks += self.is_launching
        if self._looks > MANY_LOOKS:
            self.is_waited_for.set()
        return LAUNCHING if self.is_launching else READY

    def abort(self) -> None:
        self.is_launching = False


class LateFabric(LoopbackFabric):
    def __init__(self, library: LateLibrary) -> None:
        super().__init__()
        self._library = library

    def join(self, uid: bytes, *, place: int, size: int) -> Collective:
        stream: Any = None
        return DeviceCollective(self._library, uid, place, size=size, stream=stream)


class Waiting:
    """A rank that enters its session's first collective, in a thread of its own."""

    def __init__(self) -> None:
        self.library = LateLibrary()
        has_formed = threading.Event()
        self.keeper = SessionKeeper(
            Rank(0),
            LateFabric(self.library),
            post=lambda _: has_formed.set(),
            note=lambda *_: None,
        )
        self.keeper.form_first(bytes(128), size=2)
        assert has_formed.wait(PATIENCE_S)
        self.result: object = None
        formed = self.keeper.usable
        assert formed is not None
        self._thread = threading.Thread(target=self._enter, args=(formed,))
        self._thread.start()
        assert self.library.is_waited_for.wait(PATIENCE_S)
        assert self._thread.is_alive()

    def _enter(self, formed: FormedSession) -> None:
        try:
            with formed.using() as comm:
                comm.sum_plain(torch.zeros(1))
            self.result = "launched"
        except SessionBrokenError as error:
            self.result = error

    def end(self) -> object:
        """Wait until the collective is launched, or given up."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "it hangs"
        return self.result


@pytest.fixture(name="waiting")
def _waiting() -> Iterator[Waiting]:
    made = Waiting()
    yield made
    made.keeper.close()


def test_a_first_collective_waits_for_a_peer_that_is_late(waiting: Waiting) -> None:
    waiting.library.is_launching = False
    assert waiting.end() == "launched"


@pytest.mark.parametrize(
    "break_it",
    [
        lambda keeper: keeper.heed(DeclareDead(rank=Rank(1))),
        lambda keeper: keeper.close(),
    ],
    ids=["death", "leaving"],
)
def test_a_first_collective_is_given_up_with_its_session(
    waiting: Waiting, break_it: Callable[[SessionKeeper], None]
) -> None:
    break_it(waiting.keeper)
    assert isinstance(waiting.end(), SessionBrokenError)


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """Wait for the threads that were started within, and see that no socket was left open."""
    before = set(threading.enumerate())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        yield
        wait_until(lambda: set(threading.enumerate()) <= before)
        gc.collect()
    assert not [str(one.message) for one in told if one.category is ResourceWarning]


def test_a_hub_whose_caller_hangs_up_before_it_greets_leaves_nothing() -> None:
    with nothing_left():
        fabric = LoopbackFabric()
        uid = fabric.new_uid()
        socket.create_connection(("127.0.0.1", int.from_bytes(uid[16:18], "little"))).close()


def test_members_that_are_given_up_while_they_connect_leave_nothing() -> None:
    with nothing_left():
        fabric = LoopbackFabric()
        for _ in range(20):
            uid = fabric.new_uid()
            for place in range(2):
                fabric.join(uid, place=place, size=2).abort()


def test_a_member_that_is_given_up_after_its_hub_is_gone_leaves_nothing() -> None:
    """The hub is another process's, and ends with it."""
    with nothing_left(), socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        uid = bytes(16) + port.to_bytes(2, "little")
        member = LoopbackFabric().join(uid, place=0, size=2)
        before = {one for one in threading.enumerate() if one.name == "loopback0"}
        hub, _ = listener.accept()
        hub.close()
        wait_until(lambda: not before & set(threading.enumerate()))
        member.abort()
