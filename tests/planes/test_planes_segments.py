"""Slots and staging: who may write, what is checked before it is mapped, what closes."""

import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planes_world import geometry_of

from flodl_core.errors import LocalProtocolError, RemoteProtocolError
from flodl_core.ids import Cycle, Rank
from flodl_core.net.shared_memory import create_memfd, is_sealed
from flodl_core.planes.control_vector import add_rank, flags_of, merge_ranks, tallies_of
from flodl_core.planes.descriptors import close_all, sole_descriptor
from flodl_core.planes.segment import MappedSegment
from flodl_core.planes.slot import Slot, SlotHeader, slot_bytes
from flodl_core.planes.staging import Staging, staging_bytes

GEOMETRY = geometry_of([20, 3], [7])


@pytest.fixture
def slot() -> Iterator[Slot]:
    made = Slot.create(GEOMETRY)
    yield made
    made.close()


@given(
    cycle=st.integers(0, 2**40),
    n=st.integers(0, 2**53),
    samples=st.integers(0, 2**53),
    mass=st.floats(min_value=0, max_value=1e38),
    declared=st.booleans(),
)
def test_a_header_is_read_back_as_it_was_written(
    cycle: int, n: int, samples: int, mass: float, declared: bool
) -> None:
    slot = Slot.create(GEOMETRY)
    header = SlotHeader(
        cycle=Cycle(cycle),
        n=n,
        samples=samples,
        mass_params=mass,
        mass_buffers=1.0,
        declared=declared,
    )
    slot.write_header(header)
    other = Slot.attach(slot.fd, GEOMETRY)
    assert other.header() == header
    slot.close()
    other.close()


def test_the_other_side_sees_the_values_and_cannot_write_them(slot: Slot) -> None:
    other = Slot.attach(slot.fd, GEOMETRY)
    slot.params[:] = 3
    slot.buffers[:] = 4
    slot.set_unfrozen([True, False])
    assert (other.params == 3).all()
    assert (other.buffers == 4).all()
    assert other.unfrozen.tolist() == [1, 0]
    for view in (other.params, other.buffers, other.unfrozen):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
    other.close()


def test_each_region_begins_at_a_page_and_none_overlaps(slot: Slot) -> None:
    assert slot.params.ctypes.data % 4096 == 0
    assert slot.buffers.ctypes.data % 4096 == 0
    slot.params[:] = 1
    slot.buffers[:] = 2
    slot.unfrozen[:] = 3
    assert (slot.params == 1).all()
    assert (slot.buffers == 2).all()
    assert slot.nbytes == slot_bytes(GEOMETRY) == 4 * 4096


def test_the_memory_can_neither_shrink_nor_grow(slot: Slot) -> None:
    assert is_sealed(slot.fd)
    with pytest.raises(OSError, match="not permitted"):
        os.ftruncate(slot.fd, 0)


def test_flags_of_another_number_are_refused(slot: Slot) -> None:
    with pytest.raises(LocalProtocolError, match="3 unfrozen flags"):
        slot.set_unfrozen([True] * 3)


def test_a_file_that_is_no_slot_is_refused() -> None:
    fd = create_memfd("test", slot_bytes(GEOMETRY))
    with pytest.raises(RemoteProtocolError, match="no slot's mark"):
        Slot.attach(fd, GEOMETRY)
    with pytest.raises(RemoteProtocolError, match="expected"):
        Slot.attach(fd, geometry_of([5000]))
    os.close(fd)


def test_a_slot_without_its_descriptor_still_works(slot: Slot) -> None:
    slot.forget_fd()
    slot.params[0] = 1
    with pytest.raises(RemoteProtocolError, match="not held"):
        _ = slot.fd


def test_a_view_that_is_held_outlives_its_slot() -> None:
    slot = Slot.create(GEOMETRY)
    view = slot.params
    view[:] = 5
    slot.close()
    assert (view == 5).all()


@pytest.mark.parametrize("sides", [1, 2])
def test_a_rank_sees_the_committed_side_of_staging(sides: int) -> None:
    staging = Staging.create(GEOMETRY, 3, sides=sides)
    seen = Staging.attach(staging.fd, GEOMETRY, 3, nbytes=staging.nbytes)
    assert seen.sides == sides
    last = sides - 1
    staging.params_on(last)[:] = 8
    staging.buffers_on(last)[:] = 9
    staging.control[:] = 1
    staging.begin_cycle(Cycle(4))
    staging.commit_params(last)
    staging.commit_buffers(last)
    assert (seen.params == 8).all()
    assert (seen.buffers == 9).all()
    assert seen.control.tolist() == [1.0] * (3 * 3 + 2)
    assert seen.cycle == 4
    for view in (seen.params, seen.buffers, seen.control):
        with pytest.raises(ValueError, match="read-only"):
            view[0] = 1
    seen.close()
    staging.close()


def test_two_sides_hold_the_model_twice_and_no_more() -> None:
    large = geometry_of([1_000_000])
    one, two = (staging_bytes(large, 2, sides=sides) for sides in (1, 2))
    assert two - one == -(-1_000_000 * 4 // 4096) * 4096


def test_a_segment_that_is_no_staging_is_refused() -> None:
    nbytes = staging_bytes(GEOMETRY, 3, sides=1)
    fd = create_memfd("test", nbytes)
    with pytest.raises(RemoteProtocolError, match="no staging's mark"):
        Staging.attach(fd, GEOMETRY, 3, nbytes=nbytes)
    with pytest.raises(RemoteProtocolError, match="fits no layout"):
        Staging.attach(fd, GEOMETRY, 3, nbytes=nbytes + 1)
    os.close(fd)


def test_a_model_without_values_has_segments_too() -> None:
    empty = geometry_of([])
    slot, staging = Slot.create(empty), Staging.create(empty, 1, sides=2)
    assert slot.params.size == slot.buffers.size == staging.params.size == 0
    assert staging.control.size == 3
    slot.close()
    staging.close()


def test_a_closed_segment_gives_no_more_views() -> None:
    segment = MappedSegment.create("test", 4096)
    segment.close()
    segment.close()
    with pytest.raises(RemoteProtocolError, match="closed"):
        segment.f32(0, 1)


def test_the_control_vector_gathers_counts_and_counts_flags() -> None:
    vector = np.zeros(3 * 3 + 2)
    headers = {
        0: (3, 30, False, [1, 0]),
        2: (0, 20, True, [1, 1]),
    }
    for rank, (n, samples, declared, flags) in headers.items():
        header = SlotHeader(
            cycle=Cycle(0),
            n=n,
            samples=samples,
            mass_params=float(n),
            mass_buffers=float(n > 0),
            declared=declared,
        )
        add_rank(vector, 3, Rank(rank), header=header, unfrozen=np.array(flags, np.uint8))
    tallies = tallies_of(vector, 3, [Rank(0), Rank(2)])
    assert [(one.rank, one.n, one.samples, one.declared) for one in tallies] == [
        (0, 3, 30, False),
        (2, 0, 20, True),
    ]
    assert flags_of(vector, 3).tolist() == [2.0, 1.0]
    assert merge_ranks([(Rank(2), Rank(5)), (Rank(0),)]) == (0, 2, 5)


def test_exactly_one_descriptor_comes_with_a_segment() -> None:
    fds = [create_memfd("test", 1) for _ in range(2)]
    assert sole_descriptor(fds[:1], "a thing") == fds[0]
    for wrong in ([], fds):
        with pytest.raises(RemoteProtocolError, match="a thing came with"):
            sole_descriptor(wrong, "a thing")
    close_all(fds)
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fds[0])
