"""The processes of one host's ranks: what is reported of their ends."""

import os
from pathlib import Path

import anyio
import pytest
from wire_examples import ENVELOPE

from flodl_core.ids import HostName, Rank
from flodl_core.messages.job import JobRef
from flodl_core.messages.join import HostStats, RankExited
from flodl_core.roles.host_children import HostChildren, HostFacts
from flodl_core.roles.rank_ends import close_ends, make_ends

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.timeout(60)]

RELAY_ENDED = "the relay of host red ended with SIGKILL"


def host(place: Path) -> HostFacts:
    return HostFacts(
        host=HostName("red"),
        job=JobRef(kind="module", name="test:job", args={}),
        job_path=None,
        micro_batch=None,
        loader_workers=None,
        save_path=str(place / "model"),
        log_path=lambda name: place / f"{name}.jsonl",
        output_path=lambda name: place / f"{name}.out",
        env=dict(os.environ),
    )


@pytest.mark.parametrize("why", [RELAY_ENDED, None])
async def test_ranks_that_are_killed_are_reported_with_what_they_were_killed_for(
    tmp_path: Path, why: str | None
) -> None:
    reports: list[RankExited | HostStats] = []
    children = HostChildren(host(tmp_path), reports.append)
    ranks = (Rank(0), Rank(1))
    folding, theirs = make_ends(ranks)
    async with anyio.create_task_group() as tasks:
        children.start_ranks(tasks, ENVELOPE, ranks=ranks, devices=("cpu:0",) * 2, ends=theirs)
        children.kill_all(why)
        await children.finish(0)
    close_ends(folding)
    ends = {report.rank: report for report in reports if isinstance(report, RankExited)}
    assert set(ends) == set(ranks)
    for end in ends.values():
        assert (end.code, end.signal, end.cause) == (-9, "SIGKILL", why)
