"""Agents that the launcher starts itself: one after another, while the window is open."""

import os
from types import SimpleNamespace

import anyio
import pytest

from flodl_core.ids import HostName
from flodl_core.roles.local_hosts import AgentChildren

NOTHING_SET = SimpleNamespace(micro_batch=None, loader_workers=None)
HOSTS = {HostName(name): ("cpu",) for name in ("green", "blue", "red")}


def agents(place):
    return AgentChildren(
        "127.0.0.1:9",
        token_path=place / "token",
        job="digits",
        env=dict(os.environ),
        output_path=place.joinpath,
        run_dir=place,
    )


async def start(children, until_joined, ended, tasks):
    await children.start(
        HOSTS,
        config=NOTHING_SET,
        until_joined=until_joined,
        on_ended=lambda host, how: ended.append(host),
        tasks=tasks,
    )


@pytest.mark.anyio
async def test_no_other_agent_is_started_once_the_window_is_over(tmp_path):
    children, asked, ended = agents(tmp_path), [], []

    async def until_joined(host):
        asked.append(host)
        return host == "green"

    async with anyio.create_task_group() as tasks:
        await start(children, until_joined, ended, tasks)
        assert asked == ["green", "blue"]
        await children.finish(0)
    assert sorted(ended) == ["blue", "green"]


@pytest.mark.anyio
async def test_agents_may_be_ended_while_others_are_started(tmp_path):
    children, ended = agents(tmp_path), []

    async def until_joined(host):
        if host == "green":
            tasks.start_soon(children.finish, 0)
        await anyio.lowlevel.checkpoint()
        return host != "red"

    async with anyio.create_task_group() as tasks:
        await start(children, until_joined, ended, tasks)
        await children.finish(0)
    assert sorted(ended) == ["blue", "green", "red"]


@pytest.fixture
def anyio_backend():
    return "asyncio"
