"""`flodl simulate cadence`: what it prints, and what it refuses."""

import json
import subprocess
import sys

import pytest

from flodl_core.cli.main import main


def run(*words: str) -> int:
    return main(["simulate", "cadence", *words])


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_windows_and_a_summary_are_one_object_a_line(capsys):
    assert run("--speeds", "5,5,60", "--windows", "6", "--json") == 0
    *windows, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert [one["window"] for one in windows] == [1, 2, 3, 4, 5, 6]
    assert windows[0]["batches"] == [10, 10, 10]
    assert windows[1]["anchor_rank"] == 2
    assert windows[5]["share_of_ideal"] > 0.9
    assert summary["windows"] == 6
    # three batches in 60 + 15 ms, where 2 / 5 + 1 / 60 a millisecond would be ideal
    assert summary["lockstep_share_of_ideal"] == pytest.approx(3 / 75 / (2 / 5 + 1 / 60))


def test_a_person_gets_lines_a_summary_and_a_plot(capsys):
    assert run("--speeds", "10,20", "--windows", "5", "--death", "3:1") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        *("window", "ms", "anchor", "batches", "by", "rank"),
        *("avg", "ideal", "idle", "by", "rank"),
    ]
    assert lines[1].split()[:1] == ["1"]
    assert any("was lost: killed, as the profile says" in line for line in lines)
    assert any(line.startswith("share of the ideal in the second half: ") for line in lines)
    assert any("batches of each rank" in line for line in lines)
    assert max(map(len, lines)) <= 140
    assert not any("\x1b" in line for line in lines)


def test_a_play_that_ends_early_says_so_and_why(capsys):
    assert run("--speeds", "5", "--death", "3:0", "--windows", "5", "--no-plot") == 0
    assert "over after 2 of 5 windows: no rank is left" in capsys.readouterr().out.splitlines()


def test_settings_of_a_run_are_settings_here(capsys, monkeypatch):
    monkeypatch.setenv("FLODL_ANCHOR", "7")
    assert run("--speeds", "10,10", "--windows", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["batches"] == [7, 7]
    assert run("--speeds", "10,10", "--pin-counts", "3,4", "--windows", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["batches"] == [3, 4]


def test_a_guess_of_speeds_holds_in_the_first_window(capsys):
    assert run("--speeds", "5,60", "--speed-ratio", "1:12", "--windows", "1", "--json") == 0
    assert json.loads(capsys.readouterr().out.splitlines()[0])["batches"] == [120, 10]


@pytest.mark.parametrize(
    "words",
    [
        ("--speeds", "5,x"),
        ("--windows", "0"),
        ("--step-at", "1:2"),
        ("--death", "1:9"),
        ("--speeds", "5,5", "--pin-counts", "1,2,3"),
        ("--guard", "absent_module:Guard"),
        ("--speeds", "5,5", "--speed-ratio", "5:2"),
    ],
)
def test_what_cannot_be_played_is_refused(capsys, words):
    assert run(*words) == 2
    assert capsys.readouterr().err.startswith("error: ")


def test_only_the_cadence_is_played(capsys):
    assert main(["simulate", "weather"]) == 2
    assert "is not cadence" in capsys.readouterr().err


@pytest.mark.slow
def test_without_a_plot_no_drawing_library_is_loaded():
    code = (
        "import sys; from flodl_core.cli.main import main; "
        "main(['simulate', 'cadence', '--windows', '2', '--no-plot']); "
        "sys.exit(bool({'plotext', 'torch', 'textual'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
