"""The root's cycles in a run on NCCL with an outer optimizer never carry two things."""

from hypothesis import given
from hypothesis import strategies as st

from flodl_core.ids import Cycle
from flodl_core.reduce.velocity_cycles import (
    VELOCITY_DOWN,
    carries_velocity,
    next_publish,
    velocity_up,
)


@given(saves=st.integers(1, 50), has_velocity=st.booleans())
def test_saves_are_numbered_upwards_and_what_goes_up_before_them_lies_in_between(
    saves: int, has_velocity: bool
) -> None:
    used = [0, int(VELOCITY_DOWN)] if has_velocity else [0]
    publish = 0
    for _ in range(saves):
        publish = next_publish(publish, has_velocity=has_velocity)
        if has_velocity:
            assert carries_velocity(velocity_up(Cycle(publish)))
            assert not carries_velocity(Cycle(publish))
            used.append(velocity_up(Cycle(publish)))
        used.append(publish)
    assert used == sorted(set(used))
