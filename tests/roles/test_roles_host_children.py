"""The processes of one host's ranks: what is told of their ends, and what may not hold these."""

import os
import threading
from pathlib import Path

import anyio
import anyio.to_thread
import pytest
from host_stand_ins import Disk, facts_of, starts
from wire_examples import ENVELOPE

from flodl_core.ids import Rank
from flodl_core.messages.join import HostStats, RankExited
from flodl_core.roles.abandonable import ABANDON_S
from flodl_core.roles.host_children import FILES_END_S, HostChildren
from flodl_core.roles.host_outputs import ANSWER_S
from flodl_core.roles.rank_ends import close_ends, make_ends

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.timeout(60)]

RELAY_ENDED = "the relay of host red ended with SIGKILL"
RANKS = (Rank(0), Rank(1))
SLACK_S = 10.0
"""For a busy machine; a disk of these tests hangs for thirty seconds."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def ends():
    folding, theirs = make_ends(RANKS)
    yield theirs
    close_ends(folding)


class Reports(list):
    """What a host reported, and the wait for more of a kind."""

    def __init__(self):
        super().__init__()
        self._news = anyio.Event()

    def take(self, report: RankExited | HostStats) -> None:
        self.append(report)
        self._news.set()
        self._news = anyio.Event()

    def of(self, kind):
        return [report for report in self if isinstance(report, kind)]

    async def until(self, kind, number):
        with anyio.fail_after(SLACK_S):
            while len(self.of(kind)) < number:
                await self._news.wait()


def begin(children: HostChildren, tasks, ends) -> None:
    children.start_ranks(tasks, ENVELOPE, ranks=RANKS, devices=("cpu:0",) * 2, ends=ends)


@pytest.mark.parametrize("why", [RELAY_ENDED, None])
async def test_ranks_that_are_killed_are_reported_with_what_they_were_killed_for(
    tmp_path: Path, ends, why: str | None
) -> None:
    reports = Reports()
    children = HostChildren(facts_of(tmp_path), reports.take)
    async with anyio.create_task_group() as tasks:
        begin(children, tasks, ends)
        children.kill_all(why)
        await children.finish(0)
    told = {end.rank: end for end in reports.of(RankExited)}
    assert set(told) == set(RANKS)
    for end in told.values():
        assert (end.code, end.signal, end.cause) == (-9, "SIGKILL", why)


@pytest.mark.slow
async def test_a_rank_that_cannot_be_killed_is_named_and_not_waited_for_again(
    tmp_path: Path, ends
) -> None:
    reports = Reports()
    children = HostChildren(
        facts_of(tmp_path), reports.take, start=starts(stuck=("rank0",)), unkillable_s=2.0
    )
    with anyio.fail_after(SLACK_S):
        async with anyio.create_task_group() as tasks:
            begin(children, tasks, ends)
            await children.finish(0)
            assert children.running == (0,)
            with anyio.fail_after(1.9):
                await children.finish(0)
            tasks.cancel_scope.cancel()
    assert [end.rank for end in reports.of(RankExited)] == [1]
    assert children.left.say_after("done") == "done; rank 0 cannot be killed"
    told = (tmp_path / "host.jsonl").read_text().splitlines()
    assert len(told) == 1
    assert 'ERROR   red/host cannot_be_killed process="rank 0"' in told[0]


@pytest.mark.slow
async def test_a_disk_that_hangs_holds_up_neither_the_statistics_nor_the_end(
    tmp_path: Path, ends
) -> None:
    disk, reports = Disk(), Reports()
    facts = facts_of(tmp_path, output_path=lambda name: disk.path(tmp_path / f"{name}.out"))
    children = HostChildren(facts, reports.take, start=starts())
    async with anyio.create_task_group() as tasks:
        disk.answers.clear()
        begin(children, tasks, ends)
        await anyio.to_thread.run_sync(disk.asked.wait, SLACK_S)
        await reports.until(HostStats, 2 * len(RANKS))
        with anyio.fail_after(FILES_END_S + 2 * ABANDON_S + SLACK_S):
            await children.finish(0)
            await children.finish(0)
            tasks.cancel_scope.cancel()
    disk.answers.set()
    assert {end.signal for end in reports.of(RankExited)} == {"SIGKILL"}


@pytest.mark.slow
async def test_a_rank_whose_disk_hangs_gives_no_stack_and_its_eviction_does_not_wait_for_it(
    tmp_path: Path, ends
) -> None:
    disk, reports, said = Disk(), Reports(), []
    facts = facts_of(tmp_path, output_path=lambda name: disk.path(tmp_path / f"{name}.out"))
    children = HostChildren(facts, reports.take, start=starts())

    async def dump() -> None:
        said.append(await children.dump_stack(Rank(1)))

    disk.answers.clear()
    with anyio.fail_after(ANSWER_S + 4 * ABANDON_S + FILES_END_S + SLACK_S):
        async with anyio.create_task_group() as tasks:
            begin(children, tasks, ends)
            tasks.start_soon(dump)
            children.evict(Rank(1), "no batch", tasks)
            await reports.until(RankExited, 1)
            await children.finish(0)
            tasks.cancel_scope.cancel()
    disk.answers.set()
    assert said == [""]
    assert next((end.rank, end.signal) for end in reports.of(RankExited)) == (1, "SIGTERM")


@pytest.mark.slow
async def test_a_death_record_that_hangs_does_not_hold_up_the_end(tmp_path: Path, ends) -> None:
    reports = Reports()
    children = HostChildren(facts_of(tmp_path), reports.take, start=starts("raise SystemExit(3)"))
    pipe = tmp_path / f"model.rank1.death.json.{os.getpid()}.tmp"
    os.mkfifo(pipe)  # whoever opens it to write waits for a reader, as for a disk that hangs
    with anyio.fail_after(FILES_END_S + 2 * ABANDON_S + SLACK_S):
        async with anyio.create_task_group() as tasks:
            begin(children, tasks, ends)
            await reports.until(RankExited, 2)
            await children.finish(0)
            tasks.cancel_scope.cancel()
    assert (tmp_path / "model.rank0.death.json").exists()
    assert "death record" in {thread.name for thread in threading.enumerate()}
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))


async def test_a_death_record_is_on_the_disk_before_the_end(tmp_path: Path, ends) -> None:
    reports = Reports()
    children = HostChildren(facts_of(tmp_path), reports.take, start=starts("raise SystemExit(3)"))
    async with anyio.create_task_group() as tasks:
        begin(children, tasks, ends)
        await reports.until(RankExited, 2)
        await children.finish(0)
        written = [(tmp_path / f"model.rank{rank}.death.json").exists() for rank in RANKS]
        tasks.cancel_scope.cancel()
    assert written == [True, True]
