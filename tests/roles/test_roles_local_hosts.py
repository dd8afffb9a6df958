"""Agents that the launcher starts itself: one after another, while the window is open."""

import os
import uuid
from pathlib import Path
from types import SimpleNamespace

import anyio
import pytest

from flodl_core.ids import HostName
from flodl_core.roles.local_hosts import AgentChildren

NOTHING_SET = SimpleNamespace(micro_batch=None, loader_workers=None)
UP_S = 20.0
HOSTS = {HostName(name): ("cpu",) for name in ("green", "blue", "red")}


def agents(place, *words, **variables):
    return AgentChildren(
        "127.0.0.1:9",
        token_path=place / "token",
        words=("--job", "digits", *words),
        env={**os.environ, **variables},
        output_path=place.joinpath,
        run_dir=place,
    )


async def start(children, until_joined, ended, tasks, hosts=HOSTS):
    await children.start(
        hosts,
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


def found_process(label):
    """The folder of the process of a host under /proc."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = read_words(entry / "cmdline")
            except OSError:
                continue
            if label in words and "join" in words:
                return entry
    return None


def read_words(path):
    return path.read_bytes().decode().split("\0")


@pytest.mark.anyio
async def test_an_agent_of_ours_is_told_everything_by_its_launcher(tmp_path):
    label = f"blue-{uuid.uuid4().hex}"
    meant_for_others = {
        "FLODL_AGENT_SSH": "me@gateway",
        "FLODL_AGENT_INSPECT_TIMEOUT_S": "1",
        "FLODL_TLS_FINGERPRINT": "4d5e" * 16,
        "FLODL_TOKEN": "00" * 16,
        "FLODL_CONFIG": str(tmp_path / "flodl.toml"),
    }
    handed_on = ("--inspect-timeout-s", "600", "--verbose")
    children = agents(tmp_path, *handed_on, FLODL_DATA="/data", PLAIN="1", **meant_for_others)
    seen = []

    async def until_joined(host):
        with anyio.fail_after(UP_S):
            while (entry := found_process(host)) is None:  # noqa: ASYNC110 - it tells nobody
                await anyio.sleep(0.005)
        seen.append((read_words(entry / "cmdline"), read_words(entry / "environ")))
        return False

    async with anyio.create_task_group() as tasks:
        await start(children, until_joined, [], tasks, {HostName(label): ("cpu",)})
        await children.finish(0)
    ((words, variables),) = seen
    assert words[words.index("--inspect-timeout-s") + 1] == "600"
    assert "--verbose" in words
    assert words[words.index("--config") + 1] == os.devnull, "no [agent] of a settings file"
    names = {one.partition("=")[0] for one in variables}
    assert not names & set(meant_for_others)
    assert {"FLODL_DATA", "PLAIN"} <= names


@pytest.fixture
def anyio_backend():
    return "asyncio"
