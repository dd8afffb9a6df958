"""Processes that SIGKILL does not end: waited for with a ceiling, and named once."""

import threading
from pathlib import Path

import anyio
import pytest
from host_stand_ins import Stuck

from flodl_core.ids import HostName
from flodl_core.net.children import await_killed
from flodl_core.roles.asking import hear_child
from flodl_core.roles.left_behind import LeftBehind

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_who_is_waited_for_in_vain_is_waited_for_until_the_ceiling() -> None:
    with anyio.fail_after(20):
        assert not await await_killed(Stuck().wait, ceiling_s=0.05)
        assert await await_killed(anyio.lowlevel.checkpoint, ceiling_s=20)


async def test_a_cancelled_caller_waits_for_the_end_of_what_it_killed() -> None:
    ended = anyio.Event()

    async def wait() -> None:
        await anyio.sleep(0.05)
        ended.set()

    with anyio.CancelScope() as scope:
        scope.cancel()
        await await_killed(wait, ceiling_s=20)
    assert ended.is_set()


async def test_a_question_whose_process_cannot_be_killed_ends_all_the_same() -> None:
    with anyio.fail_after(20) as scope:
        with pytest.raises(TimeoutError):
            await hear_child(Stuck(), timeout_s=0.05, unkillable_s=0.05)
        assert not scope.cancel_called


async def test_each_is_told_once_in_words_and_in_the_log_of_the_host(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "host.log"
    left = LeftBehind(HostName("red"), log)
    await left.add([])
    assert left.say_after("done") == "done"
    assert not log.exists()
    await left.add(["rank 3"])
    await left.add(["rank 3", "the relay"])
    assert "rank 3" in left
    assert "rank 4" not in left
    assert left.say_after("done") == "done; rank 3 cannot be killed; the relay cannot be killed"
    told = [line.partition("red/host ")[2] for line in log.read_text().splitlines()]
    assert told == ['cannot_be_killed process="rank 3"', 'cannot_be_killed process="the relay"']


@pytest.mark.slow
async def test_a_log_that_hangs_does_not_hold_up_the_telling(tmp_path: Path) -> None:
    answers = threading.Event()

    class Hanging(type(tmp_path)):
        def open(self, *words, **given):
            answers.wait(30)
            return super().open(*words, **given)

    left = LeftBehind(HostName("red"), Hanging(tmp_path / "host.log"))
    with anyio.fail_after(20):
        await left.add(["rank 3"])
    answers.set()
    assert "rank 3" in left
