"""`flodl join --persist`: one run after another, with patience between them."""

import errno

import pytest

from flodl_core.errors import (
    CheckpointError,
    ConfigError,
    JobError,
    RefusedError,
    RemoteProtocolError,
    RunLostError,
    TransientJoinError,
    WrongTokenError,
)
from flodl_core.roles.agent import AgentInterruptedError
from flodl_core.roles.persist import persist

pytestmark = pytest.mark.anyio


class ScriptedAgent:
    def __init__(self, end, was_admitted):
        self._end = end
        self.was_admitted = was_admitted

    async def run(self):
        if isinstance(self._end, Exception):
            raise self._end
        return self._end


async def play(*turns, scale=1.0):
    """Run turns of (how it ends, whether it was admitted); return pauses and lines."""
    left = list(turns)
    pauses, lines = [], []

    def make_agent():
        end, was_admitted = left.pop(0)
        if isinstance(end, ConfigError):
            raise end
        return ScriptedAgent(end, was_admitted)

    async def sleep(pause_s):
        pauses.append(pause_s)

    with pytest.raises(AgentInterruptedError):
        await persist(make_agent, say=lines.append, scale=scale, sleep=sleep)
    return pauses, lines


STOP = (AgentInterruptedError("SIGTERM"), False)
AWAY = (TransientJoinError("nothing listens at h:1", fix="start it"), False)
BAD = ConfigError("agent.token_file", "token", "cannot be read", source="flag", fix="give it")


async def test_the_pauses_grow_while_nobody_is_there_and_begin_anew_after_a_run():
    pauses, lines = await play(AWAY, AWAY, AWAY, AWAY, AWAY, AWAY, (0, True), AWAY, AWAY, STOP)
    assert pauses == [5, 10, 20, 40, 60, 60, 5, 5, 10]
    assert lines[0] == "nothing listens at h:1 (start it); dialling again in 5 s"
    assert lines[6] == "the run is over; dialling again in 5 s"


@pytest.mark.parametrize(
    "end",
    [
        RunLostError("the launcher is gone"),
        RefusedError("model mismatch"),
        WrongTokenError("another token"),
        JobError("the run's job is not here"),
        TransientJoinError("a host of this name already joined"),
        RemoteProtocolError("what answers is another program"),
        CheckpointError("the disk is full"),
    ],
)
async def test_what_another_run_may_change_ends_nothing(end):
    pauses, lines = await play((end, False), (0, True), STOP)
    assert pauses == [5, 5]
    assert lines[0].startswith(end.happened)


async def test_a_full_disk_or_too_many_files_end_nothing():
    full = OSError(errno.ENOSPC, "No space left on device", "runs/blue-agent.log")
    group = ExceptionGroup("tasks", [ExceptionGroup("inner", [full])])
    pauses, lines = await play((full, False), (group, False), (0, True), STOP)
    assert pauses == [5, 10, 5]
    for line in lines[:2]:
        assert "No space left on device: 'runs/blue-agent.log'; dialling again" in line


async def test_a_mistake_of_ours_is_not_dialled_away():
    def make_agent():
        return ScriptedAgent(KeyError("rank"), False)

    with pytest.raises(KeyError):
        await persist(make_agent, say=print, scale=1.0)


async def test_a_run_that_was_lost_after_admission_is_dialled_again_soon():
    lost = RunLostError("the launcher is gone")
    assert (await play(AWAY, AWAY, (lost, True), STOP))[0] == [5, 10, 5]


async def test_a_token_file_that_is_away_between_two_runs_ends_nothing():
    pauses, lines = await play((0, True), (BAD, False), (0, True), STOP)
    assert pauses == [5, 5, 5]
    assert "cannot be read" in lines[1]


async def test_a_setting_that_was_never_good_ends_it_at_once():
    def make_agent():
        raise BAD

    with pytest.raises(ConfigError):
        await persist(make_agent, say=print, scale=1.0)


async def test_the_pauses_follow_the_scale():
    assert (await play(AWAY, AWAY, STOP, scale=0.1))[0] == [0.5, 1.0]
