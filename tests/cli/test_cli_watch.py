"""`status --watch`: on until the run ends, over a short outage, with its exit code."""

import json

import pytest
from cli_world import document, ended, in_training, launcher_at, run_directory

from flodl_core.cli.attach import NothingPublishedError
from flodl_core.cli.display import json_display, plain_display
from flodl_core.cli.watch import OUTAGE_S, POLL_S, Observed, RunGoneError, read_summary, watch
from flodl_core.net.http_client import ControllerUnreachableError
from flodl_core.telemetry.summary import Unbounded, summarize, summary_json

SILENCE = ControllerUnreachableError("no launcher answers", fix="look")


class Watching:
    """A run that answers from a script, on a clock that only pauses move."""

    def __init__(self, *script, live_until_s=float("inf"), summary=None, has_files=True):
        self.script = list(script)
        self.now_s = 0.0
        self.live_until_s = live_until_s
        self.summary = summary
        self.lines = []
        self.notes = []
        self.observed = Observed(
            label="night",
            ask=self.ask,
            is_live=lambda: self.now_s < self.live_until_s,
            read_summary=(lambda: self.summary) if has_files else None,
        )

    def ask(self):
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pause(self, seconds):
        self.now_s += seconds

    def watch(self):
        display = plain_display(self.lines.append, self.notes.append)
        return watch(self.observed, display, pause=self.pause, now=lambda: self.now_s)


def test_it_ends_with_the_run_and_its_exit_code():
    watching = Watching(document(), in_training(), ended(4, "stopped"), has_files=False)
    assert watching.watch() == 4
    assert watching.lines[-1] == "stopped early, nothing was saved: stopped"
    assert watching.notes == []
    assert watching.now_s == 2 * POLL_S


def test_the_summary_that_the_run_wrote_is_preferred():
    written = summarize(ended(), exit_code=0, reason="finished", beyond=Unbounded(samples_tail=3))
    watching = Watching(in_training(), ended(), summary=written)
    assert watching.watch() == 0
    assert any("3 left out as tail" in line for line in watching.lines)


def test_the_summary_is_waited_for_while_the_launcher_lives():
    watching = Watching(ended(), live_until_s=3.0)
    assert watching.watch() == 0
    assert watching.now_s == 3.0


def test_a_summary_that_never_comes_is_not_waited_for_longer_than_its_ceiling():
    watching = Watching(ended())
    assert watching.watch() == 0
    assert watching.now_s == 10.0


def test_a_short_outage_is_told_once_and_survived():
    watching = Watching(in_training(), *[SILENCE] * 20, in_training(), ended(), has_files=False)
    assert watching.watch() == 0
    assert watching.notes == ["night does not answer; asking again for 30 s"]


def test_a_second_outage_has_its_own_time():
    half = [SILENCE] * 40
    script = [in_training(), *half, in_training(), *half, ended()]
    watching = Watching(*script, has_files=False)
    assert watching.watch() == 0
    assert len(watching.notes) == 2


def test_a_long_outage_is_an_error():
    watching = Watching(in_training(), SILENCE)
    with pytest.raises(ControllerUnreachableError):
        watching.watch()
    assert OUTAGE_S <= watching.now_s <= OUTAGE_S + 2 * POLL_S


def test_a_run_that_has_published_nothing_yet_is_asked_again():
    early = NothingPublishedError("nothing was published yet")
    watching = Watching(early, early, ended(), has_files=False)
    assert watching.watch() == 0


def test_a_run_that_ended_between_two_looks_is_told_from_its_files():
    written = summarize(in_training(), exit_code=1, reason="all ranks were lost")
    watching = Watching(in_training(), SILENCE, live_until_s=0.5, summary=written)
    assert watching.watch() == 1
    assert watching.lines[-1] == "failed: all ranks were lost"


def test_a_run_that_was_killed_is_told_as_gone():
    watching = Watching(in_training(), SILENCE, live_until_s=0.5)
    with pytest.raises(RunGoneError, match="without a summary"):
        watching.watch()
    assert watching.now_s < 2


def test_json_lines_end_with_the_summary():
    lines = []
    watching = Watching(in_training(), SILENCE, ended(), has_files=False)
    code = watch(
        watching.observed, json_display(lines.append), pause=watching.pause, now=lambda: 0.0
    )
    rows = [json.loads(line) for line in lines]
    assert code == 0
    assert rows[0]["event"] == "run"
    assert {"event": "note", "text": "night does not answer; asking again for 30 s"} in rows
    assert rows[-1]["event"] == "summary"
    assert rows[-1]["summary"]["exit_code"] == 0


def test_the_command_watches_a_run_over_http(flodl, place):
    with launcher_at() as (port, answers), run_directory(place / "runs", port) as directory:
        answers.set("/state.json", ended())
        assert read_summary(directory) is None
        directory.write_summary(summary_json(summarize(ended(), exit_code=0, reason="finished")))
        code, out, err = flodl("status", "--watch")
        assert (code, err) == (0, "")
        assert out.splitlines()[-1] == "done: finished"
        code, out, err = flodl("status", "--watch", "--json")
        assert (code, err) == (0, "")
        assert json.loads(out.splitlines()[-1])["event"] == "summary"
