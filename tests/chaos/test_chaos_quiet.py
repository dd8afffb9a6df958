"""The rig itself: with nothing broken, stand-in ranks train a whole run."""

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(120)]


def test_a_world_of_stand_in_ranks_trains_to_its_end(start) -> None:
    world = start()
    assert world.finish() == 0
    world.check_whole()
    world.check_survivors((0, 1, 2, 3))
    assert world.run.summary["alerts"] == {}
