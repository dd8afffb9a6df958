"""What a peer may not do: each refusal costs that peer only, and names what was expected."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np
import pytest
from planes_links import HandLink
from planes_world import WAIT_S, World, envelope_of, geometry_of, wait_until

from flodl_core.errors import LocalProtocolError, RemoteProtocolError, RunLostError
from flodl_core.ids import Cycle, HostName, Rank, Round, RoundOutcome, WireDtype
from flodl_core.messages.data import BucketFrame, PlaneHello, Ready
from flodl_core.net.local import BlockingPlain, socket_pair
from flodl_core.planes.incoming import IncomingControl, IncomingRound
from flodl_core.planes.landing import DirectLanding
from flodl_core.planes.round_plan import MAX_AHEAD, control_frame, plan_buffers, plan_params
from flodl_core.planes.slot import Slot, SlotHeader
from flodl_core.planes.star_client import StarClient
from flodl_core.planes.star_relay import StarRelay
from flodl_core.planes.star_root import StarRoot

GEOMETRY = geometry_of([20], [3])
HOST = HostName("h1")


class HandDriven:
    """A root with one local rank; host h1 with ranks 1 and 2 is played by the test."""

    def __init__(self) -> None:
        self.ended: list = []
        self.notes: list = []
        envelope = envelope_of(GEOMETRY, [[0], [1, 2]])
        near, far = socket_pair()
        self.root = StarRoot(
            envelope, {Rank(0): near}, self.ended.append, on_note=self.notes.append
        )
        self.link = HandLink()
        self.root.attach_host(HOST, self.link)
        self.client = StarClient(far, GEOMETRY, Rank(0), 3)

    def ready(self, cycle: int, value: float) -> None:
        self.client.slot.params[:20] = value
        self.client.slot.buffers[:3] = value
        header = SlotHeader(
            cycle=Cycle(cycle), n=1, samples=1, mass_params=1.0, mass_buffers=1.0, declared=False
        )
        self.client.slot.write_header(header)
        self.client.ready(Cycle(cycle))

    def put(self, frame: BucketFrame, values: np.ndarray) -> None:
        if frame.nbytes:
            self.root.on_bucket_begin(HOST, frame).cast("B")[:] = values.tobytes()
        self.root.on_bucket(HOST, frame)

    def put_control(self, cycle: int, n: int = 1, value: float = 1.0) -> None:
        vector = np.zeros(10)
        vector[[1, 2, 4, 5]] = n
        vector[9] = value
        mass = 2.0 * n
        ranks = (Rank(1), Rank(2))
        self.put(control_frame(Cycle(cycle), vector, mass=mass, ranks=ranks), vector)

    def wait_dropped(self) -> str:
        wait_until(lambda: any(note.code == "host_dropped" for note in self.notes))
        assert self.link.is_closed
        return str(self.notes[-1].fields["reason"])

    def close(self) -> None:
        self.client.close()
        self.root.stop()


@pytest.fixture
def hand() -> Iterator[HandDriven]:
    made = HandDriven()
    yield made
    made.close()


def test_a_host_that_keeps_to_the_protocol_is_served(hand: HandDriven) -> None:
    hand.ready(0, 1.0)
    hand.put_control(0)
    plan = plan_params(GEOMETRY, Cycle(0), np.zeros(10), WireDtype.F32)
    hand.link.wait(lambda link: len(link.messages) == 1)
    hand.put(plan.frame(0, mass=2.0, ranks=(Rank(1), Rank(2))), np.full(20, 11, np.float32))
    hand.link.wait(lambda link: len(link.messages) == 2)
    frame, values = hand.link.buckets[1]
    assert (frame.mass, frame.ranks) == (3.0, (0, 1, 2))
    assert np.frombuffer(values, np.float32).tolist() == [4.0] * 20
    hand.put(
        plan_buffers(GEOMETRY, Cycle(0)).frame(0, mass=2.0, ranks=(Rank(1), Rank(2))),
        np.full(3, 5, np.float32),
    )
    hand.link.wait(lambda link: len(link.messages) == 3)
    ends = hand.link.messages
    assert [(end.round, end.outcome, end.mass) for end in ends] == [
        (Round.CONTROL, RoundOutcome.COMMITTED, 3.0),
        (Round.PARAMS, RoundOutcome.COMMITTED, 3.0),
        (Round.BUFFERS, RoundOutcome.COMMITTED, 3.0),
    ]
    assert hand.root.moved_bytes == 2 * (20 + 3) * 4 + 80


def bad_mass(frame: BucketFrame) -> dict:
    return {"mass": 3.0}


def bad_ranks(frame: BucketFrame) -> dict:
    return {"ranks": (Rank(1),)}


def bad_index(frame: BucketFrame) -> dict:
    return {"index": 1}


def bad_cycle(frame: BucketFrame) -> dict:
    return {"cycle": Cycle(9)}


def bad_round(frame: BucketFrame) -> dict:
    return {"round": Round.BUFFERS}


def bad_size(frame: BucketFrame) -> dict:
    return {"nbytes": 16}


@pytest.mark.parametrize("flaw", [bad_mass, bad_ranks, bad_index, bad_cycle, bad_round, bad_size])
def test_a_bucket_that_contradicts_the_control_vector_costs_the_host_its_place(
    hand: HandDriven, flaw: Callable[[BucketFrame], dict]
) -> None:
    hand.ready(0, 1.0)
    hand.put_control(0)
    hand.link.wait(lambda link: len(link.messages) == 1)
    plan = plan_params(GEOMETRY, Cycle(0), np.zeros(10), WireDtype.F32)
    good = plan.frame(0, mass=2.0, ranks=(Rank(1), Rank(2)))
    fields = {name: getattr(good, name) for name in BucketFrame.__slots__}
    frame = BucketFrame(**{**fields, **flaw(good)})
    hand.put(frame, np.full(frame.nbytes // 4, 11, np.float32))
    assert "expected" in hand.wait_dropped()
    ends = [hand.client.wait_round(WAIT_S) for _ in range(3)]
    assert ends[1].ranks_accepted == (0,)
    assert (hand.client.staging.params[:20] == 1).all()


def test_a_control_vector_with_a_value_that_is_not_finite_costs_the_host_its_place(
    hand: HandDriven,
) -> None:
    hand.ready(0, 1.0)
    hand.put_control(0, value=np.nan)
    assert "not finite" in hand.wait_dropped()
    assert hand.client.wait_round(WAIT_S).ranks_accepted == (0,)


def test_values_before_the_control_vector_cost_the_host_its_place(hand: HandDriven) -> None:
    plan = plan_params(GEOMETRY, Cycle(0), np.zeros(10), WireDtype.F32)
    frame = plan.frame(0, mass=2.0, ranks=(Rank(1), Rank(2)))
    hand.put(frame, np.full(20, 11, np.float32))
    assert "too early" in hand.wait_dropped()
    with pytest.raises(RemoteProtocolError, match="not part of the run"):
        hand.root.on_bucket_begin(HOST, frame)


def test_a_host_that_runs_ahead_is_stopped_without_filling_memory(hand: HandDriven) -> None:
    frame = BucketFrame(
        cycle=Cycle(0),
        round=Round.PARAMS,
        index=0,
        count=9,
        mass=0.0,
        ranks=(),
        nbytes=0,
        dtype="f32",
    )
    refused = 0
    for _ in range(MAX_AHEAD + 2):
        try:
            hand.root.on_bucket(HOST, frame)
        except RemoteProtocolError:
            refused += 1
    assert refused > 0


def test_a_host_may_not_speak_for_another_ones_rank_nor_send_more_than_a_bucket(
    hand: HandDriven,
) -> None:
    plan = plan_params(GEOMETRY, Cycle(0), np.zeros(10), WireDtype.F32)
    foreign = plan.frame(0, mass=1.0, ranks=(Rank(0),))
    hand.root.on_bucket_begin(HOST, foreign)
    with pytest.raises(RemoteProtocolError, match="expected only those of"):
        hand.root.on_bucket(HOST, foreign)
    large = control_frame(Cycle(0), np.zeros(1000), mass=0.0, ranks=())
    with pytest.raises(RemoteProtocolError, match="at most 128"):
        hand.root.on_bucket_begin(HOST, large)


def test_a_link_that_takes_nothing_costs_the_host_its_place(hand: HandDriven) -> None:
    hand.link.refuses = True
    hand.ready(0, 1.0)
    hand.put_control(0)
    assert "does not take" in hand.wait_dropped()
    assert hand.client.wait_round(WAIT_S).ranks_accepted == (0, 1, 2)
    assert hand.client.wait_round(WAIT_S).ranks_accepted == (0,)


def test_a_host_is_attached_once_and_only_if_the_run_knows_it(hand: HandDriven) -> None:
    for host in (HOST, HostName("h0"), HostName("elsewhere")):
        with pytest.raises(LocalProtocolError, match="was attached"):
            hand.root.attach_host(host, HandLink())


def test_sockets_must_be_those_of_one_host() -> None:
    envelope = envelope_of(GEOMETRY, [[0], [1, 2]])
    near, far = socket_pair()
    with near, far:
        with pytest.raises(LocalProtocolError, match="all ranks of one host"):
            StarRoot(envelope, {Rank(1): near}, print)
        with pytest.raises(LocalProtocolError, match="expected"):
            StarRelay(envelope, HOST, {Rank(1): near}, HandLink())


class LoneRank:
    """The relay of a host with one rank; rank and root are played by the test."""

    def __init__(self) -> None:
        near, far = socket_pair()
        self.link = HandLink()
        self.notes: list = []
        envelope = envelope_of(GEOMETRY, [[0], [1]])
        self.relay = StarRelay(
            envelope, HOST, {Rank(1): near}, self.link, on_note=self.notes.append
        )
        self.channel = BlockingPlain(far)

    def hello(self) -> Slot:
        slot = Slot.create(GEOMETRY)
        self.channel.send(PlaneHello(rank=Rank(1), slot_bytes=slot.nbytes), fds=(slot.fd,))
        _, fds = self.channel.receive(WAIT_S)
        for fd in fds:
            os.close(fd)
        return slot

    def offer(self, rank: int, slot: Slot) -> None:
        with suppress(BrokenPipeError):  # the refusal may be faster than the end of the call
            self.channel.send(PlaneHello(rank=Rank(rank), slot_bytes=slot.nbytes), fds=(slot.fd,))

    def wait_refused(self) -> str:
        wait_until(lambda: bool(self.notes))
        with pytest.raises(EOFError):
            self.channel.receive(WAIT_S)
        return str(self.notes[0].fields["reason"])

    def close(self) -> None:
        self.channel.close()
        self.relay.stop()


@pytest.fixture
def lone() -> Iterator[LoneRank]:
    made = LoneRank()
    yield made
    made.close()


GOOD = {"n": 1, "samples": 1, "mass_params": 1.0, "mass_buffers": 1.0, "declared": False}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cycle": 1}, "its slot says 1"),
        ({"mass_params": float("nan")}, "masses nan"),
        ({"mass_params": float("inf")}, "masses inf"),
        ({"mass_params": 1e39}, "masses 1e"),
        ({"mass_params": -1.0}, "masses -1"),
        ({"mass_params": 0.0}, "masses 0"),
        ({"mass_buffers": 2.0}, "and 2.0"),
        ({"n": 0}, "n = 0"),
        ({"declared": True}, "declared = True"),
        ({"samples": -1}, "-1 samples"),
        ({"n": 2**60}, "batches"),
    ],
)
def test_a_snapshot_that_cannot_be_weighed_costs_the_rank_its_place(
    lone: LoneRank, change: dict, reason: str
) -> None:
    slot = lone.hello()
    slot.write_header(SlotHeader(**{"cycle": Cycle(0), **GOOD, **change}))
    lone.channel.send(Ready(rank=Rank(1), cycle=Cycle(0)))
    assert reason in lone.wait_refused()
    slot.close()


def test_a_rank_may_not_speak_for_another(lone: LoneRank) -> None:
    slot = Slot.create(GEOMETRY)
    lone.offer(2, slot)
    assert "speaks for rank 2" in lone.wait_refused()
    slot.close()


def test_a_slot_of_another_geometry_is_refused(lone: LoneRank) -> None:
    slot = Slot.create(geometry_of([5000]))
    lone.offer(1, slot)
    assert "expected 16384" in lone.wait_refused()
    slot.close()


def test_a_hello_without_a_descriptor_is_refused(lone: LoneRank) -> None:
    lone.channel.send(PlaneHello(rank=Rank(1), slot_bytes=1))
    assert "0 descriptors" in lone.wait_refused()


def test_a_mark_before_the_hello_is_refused(lone: LoneRank) -> None:
    lone.channel.send(Ready(rank=Rank(1), cycle=Cycle(0)))
    assert "out of turn" in lone.wait_refused()


def test_a_relay_takes_only_messages_of_the_data_plane(lone: LoneRank) -> None:
    assert not lone.relay.on_message(PlaneHello(rank=Rank(0), slot_bytes=1))


def test_a_relay_refuses_values_before_it_shipped_its_own(lone: LoneRank) -> None:
    frame = control_frame(Cycle(0), np.zeros(7), mass=0.0, ranks=())
    for call in (lone.relay.on_bucket_begin, lone.relay.on_bucket):
        with pytest.raises(RemoteProtocolError, match="none before"):
            call(frame)


def test_a_root_that_answers_nonsense_is_an_error_for_the_rank() -> None:
    near, far = socket_pair()
    root = BlockingPlain(near)
    root.send(Ready(rank=Rank(0), cycle=Cycle(0)))
    with pytest.raises(RemoteProtocolError, match="expected StagingOffer"):
        StarClient(far, GEOMETRY, Rank(0), 1)
    root.close()


def test_a_rank_without_a_root_says_that_the_run_is_lost() -> None:
    near, far = socket_pair()
    near.close()
    with pytest.raises(RunLostError):
        StarClient(far, GEOMETRY, Rank(0), 1)


def test_a_rank_takes_nothing_but_round_ends() -> None:
    world = World(GEOMETRY, [[0]])
    near, far = socket_pair()
    client = world.clients[0]
    client._channel.close()
    client._channel = BlockingPlain(far)
    other = BlockingPlain(near)
    other.send(Ready(rank=Rank(0), cycle=Cycle(0)))
    with pytest.raises(RemoteProtocolError, match="expected RoundEnd"):
        client.wait_round(WAIT_S)
    other.close()
    world.close()


def test_buckets_from_the_root_must_come_in_order() -> None:
    plan = plan_params(GEOMETRY, Cycle(0), np.zeros(4), WireDtype.F32)
    incoming = IncomingRound(plan, DirectLanding(plan, np.zeros(32, np.float32)))
    frame = plan.frame(0, mass=1.0, ranks=(Rank(0),))
    incoming.begin(frame)
    incoming.complete(frame)
    assert incoming.is_complete
    with pytest.raises(RemoteProtocolError, match="expected bucket 1 of 1"):
        incoming.begin(frame)


def test_the_control_sum_comes_once_and_of_the_right_cycle() -> None:
    vector = np.zeros(4)
    incoming = IncomingControl(Cycle(3), vector)
    good = control_frame(Cycle(3), vector, mass=1.0, ranks=())
    with pytest.raises(RemoteProtocolError, match="expected the control sum of cycle 3"):
        incoming.begin(control_frame(Cycle(2), vector, mass=1.0, ranks=()))
    incoming.begin(good)
    incoming.complete(good)
    with pytest.raises(RemoteProtocolError):
        incoming.complete(good)
