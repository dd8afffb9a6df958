"""A run's end waits for its records, and not for ever."""

import threading

import anyio
import pytest

from flodl_core.roles.record_keeper import RecordKeeper


class Disk:
    """Takes records; answers as long as nothing blocks it."""

    def __init__(self):
        self.said, self.answers = [], threading.Event()
        self.answers.set()

    def write(self):
        self.answers.wait(30)
        self.said.append("write")

    def close(self):
        self.answers.wait(30)
        self.said.append("close")


@pytest.mark.anyio
async def test_what_is_left_is_written_each_time_and_what_lies_beside_is_closed_first():
    disk = Disk()
    keeper = RecordKeeper(disk, also_close=lambda: disk.said.append("samples"))
    assert await keeper.end()
    assert await keeper.end()
    assert disk.said == ["samples", "close"] * 2


@pytest.mark.anyio
async def test_a_disk_that_does_not_answer_is_left_behind_and_not_waited_for_again():
    disk = Disk()
    disk.answers.clear()
    keeper = RecordKeeper(disk, also_close=None, end_s=0.2)
    began = anyio.current_time()
    with anyio.fail_after(20):
        assert not await keeper.end()
        once = anyio.current_time()
        assert not await keeper.end()
    assert anyio.current_time() - once < once - began
    disk.answers.set()


@pytest.mark.anyio
async def test_writing_is_left_behind_when_the_run_ends():
    disk = Disk()
    disk.answers.clear()
    keeper = RecordKeeper(disk, also_close=None)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keeper.run)
            await anyio.sleep(1.2)
            tasks.cancel_scope.cancel()
    assert disk.said == []
    disk.answers.set()


@pytest.fixture
def anyio_backend():
    return "asyncio"
