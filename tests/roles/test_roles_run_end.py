"""How a run ended is told in the words of its first cause, and its end ends when it must."""

import anyio
import pytest

from flodl_core.coordinator.effects import RunFinished
from flodl_core.coordinator.events import StopKind
from flodl_core.errors import WindowFailedError
from flodl_core.messages.join import Abort, RunEnded
from flodl_core.roles.run_end import RunEnd

TRAINED = RunFinished(0, "finished", "512 samples trained")


@pytest.mark.anyio
async def test_what_is_still_waited_for_is_left_at_the_second_stop():
    end = RunEnd()
    assert not end.hurry(StopKind.NOW)
    end.finish(TRAINED)
    await end.wait()

    async def wait_for_hosts():
        assert end.hurry(StopKind.SAVE)
        await anyio.lowlevel.checkpoint()
        assert end.hurry(StopKind.NOW)
        await anyio.sleep_forever()

    with anyio.fail_after(10):
        await end.unless_hurried(wait_for_hosts)
    assert end.outcome() == (0, "finished")


@pytest.mark.anyio
async def test_the_first_failure_counts():
    end = RunEnd()
    end.fail(WindowFailedError("nobody came"))
    end.fail(WindowFailedError("later"))
    assert end.outcome() == (3, "nobody came")
    assert (end.state().reason, end.state().detail) == ("failed", "nobody came")
    assert end.last_word(is_abrupt=False) == Abort(reason="nobody came")
    assert not end.is_good


@pytest.mark.anyio
async def test_hosts_of_a_run_that_was_stopped_at_once_are_told_to_leave_at_once():
    end = RunEnd()
    end.finish(RunFinished(5, "stopped", "stopped at once by SIGINT"))
    whole = "stopped: stopped at once by SIGINT"
    assert end.last_word(is_abrupt=False) == RunEnded(code=5, summary=whole)
    assert end.last_word(is_abrupt=True) == Abort(reason=whole)
    assert end.is_good


@pytest.mark.anyio
async def test_hosts_of_a_run_that_was_saved_before_it_was_stopped_at_once_hear_that_it_ended():
    end = RunEnd()
    end.finish(TRAINED)
    whole = "finished: 512 samples trained"
    assert end.last_word(is_abrupt=True) == RunEnded(code=0, summary=whole)
