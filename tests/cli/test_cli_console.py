"""`flodl console`: where it is refused, and what it makes of the command line."""

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from flodl_console.settings import ConsoleSettings, ThemeName
from flodl_core.cli.console import resolve_settings
from flodl_core.errors import ConfigError

SPY = """
import sys
from flodl_core.cli.main import main
code = main(sys.argv[1:])
names = ("textual", "rich", "torch", "flodl_console")
print(code, [name for name in names if name in sys.modules], file=sys.stderr)
"""


def settings(**given):
    words = {"flags": {}, "job": None, "demo_ranks": None, "theme": "dark", **given}
    return resolve_settings(**words)


@pytest.mark.parametrize("term", ["dumb", "unknown", ""])
def test_a_dumb_terminal_is_refused_in_one_line_with_exit_two(flodl, monkeypatch, term):
    monkeypatch.setenv("TERM", term)
    code, out, err = flodl("console", "charlm")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert f"TERM is {term or 'not set'}" in err
    assert "`flodl headless charlm`" in err


def test_no_terminal_is_refused_in_one_line_with_exit_two(flodl, monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    code, out, err = flodl("console")
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "standard input is none" in err
    assert "`flodl headless JOB`" in err


@pytest.mark.processes
@pytest.mark.slow
def test_the_refusal_loads_no_terminal_library():
    done = subprocess.run(
        [sys.executable, "-c", SPY, "console", "--demo"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=30,
        check=False,
        text=True,
        env={**os.environ, "TERM": "xterm"},
    )
    assert done.stderr.splitlines()[-1] == "2 []"


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--demo", "dance"], ["there is no such scenario", "waiting, staging"]),
        (["--demo", "--demo-ranks", "-1"], ["demo_ranks", "0 to 4096"]),
        (["--theme", "pink"], ["there is no such theme", "dark, light, contrast, safe"]),
        (["--replay", "gone"], ["there is no such directory"]),
        (["--replay", ".", "--attach", "a:1"], ["--attach and --replay", "exclude each other"]),
        (["charlm", "--attach", "a:1"], ["--attach and JOB", "exclude each other"]),
        (["--attach", "nowhere:99999"], ["port must be 1 to 65535"]),
    ],
)
def test_a_wrong_word_is_refused_before_the_screen_is_touched(words, expected):
    code, shown = on_a_terminal("console", *words)
    assert code == 2
    assert "\x1b[?1049h" not in shown
    for part in expected:
        assert part in shown


def test_a_job_goes_into_the_form_with_its_options():
    made = settings(job="charlm", flags={"hosts": "2", "run_dir": "elsewhere"})
    assert (made.job, made.demo) == ("charlm", None)
    assert made.launch_flags["hosts"] == "2"
    assert made.run_dir == Path("elsewhere")


def test_with_demo_the_job_is_the_scenario():
    made = settings(job="lost", is_demo=True, demo_ranks=64, flags={"seed": "7"})
    assert (made.job, made.demo, made.demo_ranks, made.seed) == (None, "lost", 64, 7)


def test_the_demo_without_a_scenario_is_the_night():
    assert settings(is_demo=True).demo == "night"


def test_settings_of_a_file_hold_for_the_console_too(place):
    (place / "flodl.toml").write_text("[run]\nseed = 3\n")
    assert settings(is_demo=True).seed == 3


def test_what_is_not_given_is_the_default():
    assert settings() == ConsoleSettings()


def test_every_theme_can_be_named():
    assert [settings(theme=name.value).theme for name in ThemeName] == list(ThemeName)


@pytest.mark.parametrize(
    "given",
    [
        {"attach": "a:1", "is_demo": True},
        {"replay": Path(), "is_demo": True},
        {"job": "charlm", "replay": Path()},
    ],
)
def test_two_sources_are_refused(given):
    with pytest.raises(ConfigError, match="exclude each other"):
        settings(**given)


def on_a_terminal(*words):
    """Run one command with all its streams on a terminal; return its code and what it wrote."""
    own, other = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "flodl_core.cli.main", *words],
        stdin=other,
        stdout=other,
        stderr=other,
        env={**os.environ, "TERM": "xterm-256color"},
    ) as child:
        os.close(other)
        shown = bytearray()
        while select.select([own], [], [], 30)[0]:
            try:
                data = os.read(own, 4096)
            except OSError:
                break
            shown += data
        code = child.wait(30)
    os.close(own)
    return code, shown.decode().replace("\r\n", "\n")
