"""What operators and signals may ask of a run, and what is written down of it."""

import json
import os
import signal
from types import SimpleNamespace

import anyio
import pytest

from flodl_core.coordinator.events import (
    CheckpointRequested,
    DrainRequested,
    EvictRequested,
    StopKind,
    StopRequested,
)
from flodl_core.ids import ExitCode, Mode, Rank
from flodl_core.roles.history import RunHistory
from flodl_core.roles.operators import NOT_TRAINING, RunOperators
from flodl_core.roles.run_story import RunStory
from flodl_core.telemetry.journal import Journal
from flodl_core.telemetry.recorder import RunRecorder

WHO = "operator at 10.0.0.7"


class Deck:
    """Operators of a run that is nobody's, and what they did."""

    def __init__(self, path, *, is_training=True, is_over=False, refusal=""):
        recorder = RunRecorder(Journal(path / "records", utc_iso=lambda: "2031-01-02T03:04:05Z"))
        self.story = RunStory(RunHistory(recorder, secrets=("0" * 32,)))
        self.posted, self.aborted, self.started, self.said = [], [], [], []
        self.is_over, self.hurried = is_over, []
        coordinator = SimpleNamespace(
            refuse_drain=lambda host: refusal, refuse_evict=lambda rank: refusal
        )
        controller = SimpleNamespace(post=self.posted.append, coordinator=coordinator)
        self.operators = RunOperators(
            SimpleNamespace(config=SimpleNamespace(stop_grace_s=25.0), mode=Mode.CPU_CADENCE),
            self.story,
            controller=lambda: controller if is_training else None,
            start=self.started.append,
            abort=self.aborted.append,
            hurry=self.hurry,
        )

    def hurry(self, kind):
        self.hurried.append(kind)
        return self.is_over

    def events(self):
        records = json.loads(self.story.history.events.page(0))["records"]
        return [(event["name"], event["who"]) for event in records]


def test_a_stop_is_posted_and_written_down(tmp_path):
    deck = Deck(tmp_path)
    words = deck.operators.stop(StopKind.SAVE, WHO)
    assert words == "cutting the window, then saving (within 25 s); once more: at once"
    assert deck.posted == [StopRequested(StopKind.SAVE, ExitCode.STOPPED_SAVED, WHO)]
    assert deck.events() == [("stop", WHO)]
    assert not deck.operators.is_abrupt
    deck.operators.stop(StopKind.NOW, WHO)
    assert deck.posted[-1].exit_code == ExitCode.NOT_SAVED
    assert deck.operators.is_abrupt


def test_a_stop_before_the_world_formed_ends_the_window(tmp_path):
    deck = Deck(tmp_path, is_training=False)
    assert "nothing was trained" in deck.operators.stop(StopKind.SAVE, WHO)
    assert deck.aborted == [f"stopped by {WHO} before the world formed"]
    assert deck.events() == [("stop", WHO)]


def test_a_stop_of_a_run_that_is_over_is_no_stop_and_the_second_waits_for_nobody(tmp_path):
    deck = Deck(tmp_path, is_over=True)
    assert "its hosts are leaving" in deck.operators.stop(StopKind.SAVE, WHO)
    assert deck.operators.stop(StopKind.NOW, WHO) == "the run has ended; nobody is waited for"
    assert deck.hurried == [StopKind.SAVE, StopKind.NOW]
    assert deck.posted == deck.aborted == deck.events() == []
    assert not deck.operators.is_abrupt


def test_a_start_is_written_down_before_it_acts(tmp_path):
    deck = Deck(tmp_path, is_training=False)
    deck.operators.start(WHO)
    assert deck.started == [WHO]
    assert deck.events() == [("start", WHO)]


def test_checkpoint_drain_and_evict_reach_the_coordinator_with_who_asked(tmp_path):
    deck = Deck(tmp_path)
    assert deck.operators.checkpoint(WHO) is None
    assert deck.operators.drain("blue", WHO) is None
    assert deck.operators.evict(Rank(3), WHO) is None
    assert deck.posted == [
        CheckpointRequested(WHO),
        DrainRequested("blue", WHO),
        EvictRequested(Rank(3), WHO),
    ]
    assert deck.events() == [("checkpoint", WHO), ("drain", WHO), ("evict", WHO)]


def test_what_is_refused_does_nothing_and_is_no_event(tmp_path):
    deck = Deck(tmp_path, refusal="rank 3 is the last one")
    assert deck.operators.drain("blue", WHO) == "rank 3 is the last one"
    assert deck.operators.evict(Rank(3), WHO) == "rank 3 is the last one"
    early = Deck(tmp_path, is_training=False)
    assert early.operators.checkpoint(WHO) == NOT_TRAINING
    assert early.operators.drain("blue", WHO) == NOT_TRAINING
    assert early.operators.evict(Rank(0), WHO) == NOT_TRAINING
    assert deck.posted == early.posted == []
    assert deck.events() == early.events() == []


@pytest.mark.anyio
async def test_the_first_signal_saves_the_second_does_not_and_a_hangup_is_nothing(tmp_path):
    deck = Deck(tmp_path)
    log = SimpleNamespace(info=lambda *_, **__: None)

    async def until(count):
        with anyio.fail_after(5):
            while len(deck.said) < count:
                await anyio.lowlevel.checkpoint()

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(deck.operators.watch_signals, log, deck.said.append)
        await anyio.wait_all_tasks_blocked()
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(1)
        assert not deck.operators.was_interrupted
        os.kill(os.getpid(), signal.SIGINT)
        await until(2)
        tasks.cancel_scope.cancel()
    # the run's end is still to be written, whether or not a terminal is there
    assert signal.signal(signal.SIGHUP, before) is signal.SIG_IGN
    assert deck.operators.was_interrupted
    assert [(one.kind, one.who) for one in deck.posted] == [
        (StopKind.SAVE, "SIGTERM"),
        (StopKind.NOW, "SIGINT"),
    ]
    assert deck.said[0].startswith("SIGTERM: cutting the window")
    assert deck.events() == [("stop", "SIGTERM"), ("stop", "SIGINT")]


@pytest.fixture
def anyio_backend():
    return "asyncio"
