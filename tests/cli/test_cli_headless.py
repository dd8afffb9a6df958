"""`headless` around a launcher: what it shows, and what it does when nobody looks any more."""

import functools
import json
import signal
from dataclasses import dataclass

import anyio
import pytest
from cli_world import document, ended, in_training

from flodl_core.cli.display import (
    detaching_on_hangup,
    json_display,
    open_display,
    plain_display,
)
from flodl_core.cli.headless import conduct
from flodl_core.config.load import load_run
from flodl_core.errors import WindowFailedError
from flodl_core.telemetry.summary import RunSummary, summarize


@dataclass(frozen=True)
class Result:
    exit_code: int
    summary: RunSummary | None


class Launcher:
    """Shows a script of documents and lines, then returns or raises."""

    def __init__(self, *script, result=None, error=None):
        self.script = script
        self.result = result
        self.error = error
        self.asked = None

    async def __call__(self, loaded, *, show, say, is_verbose=False):
        self.asked = (loaded.run.job, is_verbose)
        for part in self.script:
            say(part) if isinstance(part, str) else show(part)
        if self.error is not None:
            raise self.error
        return self.result


def finished(code=0):
    whole = ended(code).model_copy(update={"report": "the model\nwrote this"})
    return Result(code, summarize(whole, exit_code=code, reason="finished"))


def run(launcher, display, *, is_verbose=False):
    loaded = load_run({"job": "charlm"}, environ={})
    return anyio.run(
        functools.partial(conduct, launcher, loaded, display=display, is_verbose=is_verbose)
    )


def test_plain_lines_tell_the_run_and_end_with_report_eval_and_summary():
    lines, notes = [], []
    launcher = Launcher(document(), "port is open\x1b[2J", in_training(), result=finished())
    assert run(launcher, plain_display(lines.append, notes.append), is_verbose=True) == 0
    assert launcher.asked == ("charlm", True)
    assert notes == ["port is open\\x1b[2J"]
    assert lines[0].startswith("run      night 0123456789abcdef on port 1337, cpu_sync")
    at = lines.index("The model says:")
    assert lines[at + 1 : at + 3] == ["  the model", "  wrote this"]
    assert lines[-1] == "done: finished"


def test_the_exit_code_is_the_launchers():
    for code in (0, 1, 4, 5, 130):
        assert run(Launcher(result=finished(code)), json_display(lambda _: None)) == code
    assert run(Launcher(result=Result(3, None)), json_display(lambda _: None)) == 3


def test_json_is_one_object_a_line():
    lines = []
    launcher = Launcher(document(), "a line", in_training(), result=finished())
    assert run(launcher, json_display(lines.append)) == 0
    rows = [json.loads(line) for line in lines]
    assert {"event": "note", "text": "a line"} in rows
    assert [row for row in rows if row["event"] == "state"][-1]["state"]["phase"] == "training"
    assert rows[-1]["event"] == "summary"
    assert rows[-1]["summary"]["report"] == "the model\nwrote this"


def test_an_error_goes_on_to_the_caller():
    launcher = Launcher(document(), error=WindowFailedError("quorum not met: 1/2", fix="start it"))
    with pytest.raises(WindowFailedError), open_display(as_json=True) as display:
        run(launcher, display)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nosuch",), "no recipe is named 'nosuch'"),
        (("charlm", "--epochs", "0"), "must be at least 1"),
        (("charlm", "--epohcs", "3"), "no option --epohcs"),
        (("charlm", "--port", "nine"), "join.port"),
        ((), "no job was given"),
    ],
)
def test_an_error_before_the_run_is_the_only_json_object(flodl, words, said):
    code, out, err = flodl("headless", *words, "--json")
    (row,) = [json.loads(line) for line in out.splitlines()]
    assert (row["event"], row["exit_code"], code) == ("error", 2, 2)
    assert said in row["text"]
    assert err.startswith("error: ")
    assert f"Fix: {row['fix']}" in err
    assert flodl("headless", *words)[1] == ""


def test_a_run_that_is_not_there_is_the_only_json_object_of_a_watch(flodl):
    code, out, _ = flodl("status", "--watch", "--json")
    assert (code, json.loads(out)["event"]) == (1, "error")
    assert flodl("status", "--json")[1] == "", "this is no stream of events"


def test_output_that_is_no_terminal_gets_plain_lines(capsys):
    with open_display(as_json=False) as display:
        display.show(document())
        display.say("two\nlines")
    told = capsys.readouterr()
    assert told.out.startswith("run      night")
    assert "\x1b" not in told.out
    assert told.err == "two lines\n"


def test_a_reader_that_leaves_does_not_end_the_run():
    tries = []

    def write(line):
        tries.append(line)
        raise BrokenPipeError

    launcher = Launcher(document(), "a line", in_training(), result=finished())
    assert run(launcher, plain_display(write, write)) == 0
    assert len(tries) == 1


def test_a_terminal_that_hangs_up_does_not_end_the_run():
    before = signal.getsignal(signal.SIGHUP)
    with detaching_on_hangup():
        signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is before


def test_a_command_under_nohup_stays_deaf():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with detaching_on_hangup():
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
