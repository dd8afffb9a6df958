"""The commands that ask a run: it is found, asked with its token, and quoted."""

import json

import pytest
from cli_world import (
    RUN_ID,
    TOKEN,
    document,
    ended,
    in_trouble,
    launcher_at,
    run_directory,
)

from flodl_core.wire.handshake import operator_token

BEARER = f"Bearer {operator_token(bytes.fromhex(TOKEN))}"
OTHER_TOKEN = "ff" * 16
OTHER_BEARER = f"Bearer {operator_token(bytes.fromhex(OTHER_TOKEN))}"


@pytest.fixture
def launcher():
    """A port, and what is answered there."""
    with launcher_at() as (port, answers):
        yield port, answers


@pytest.fixture
def run(launcher, place):
    """A live run in the usual directory; what is answered there."""
    port, answers = launcher
    with run_directory(place / "runs", port):
        yield answers


def test_start_finds_the_live_run_and_says_with_how_many_it_starts(flodl, run):
    run.set("/start", {"armed": True, "joined_ranks": 3, "min_rank_start": 2})
    code, out, err = flodl("start")
    assert (code, err) == (0, "")
    assert out == f"night-{RUN_ID}: the world forms with 3 ranks (quorum 2)\n"
    assert run.asked == [("POST", "/start", BEARER)]


@pytest.mark.parametrize(
    "reason",
    [
        "quorum not met: 1/2",
        "the window is not open: training",
        "start mode is auto: the window closes by itself",
    ],
)
def test_a_refusal_is_quoted_and_ends_with_one(refused, run, reason):
    run.set("/start", {"error": reason}, status=409)
    assert refused("start") == (1, f"error: {reason}\n")


def test_a_fix_that_the_run_names_is_passed_on(refused, run):
    run.set("/start", {"error": "start mode is auto", "fix": "use --start manual."}, status=409)
    assert refused("start") == (1, "error: start mode is auto\n  Fix: use --start manual.\n")


def test_stop_saves_unless_told_otherwise(flodl, run):
    run.set("/stop", {"stopping": True, "what_follows": "finishing the window"})
    assert flodl("stop")[:2] == (0, f"night-{RUN_ID}: finishing the window\n")
    assert flodl("stop", "--now")[0] == 0
    assert [path for _, path, _ in run.asked] == ["/stop?kind=save", "/stop?kind=now"]


def test_stop_says_what_follows_where_the_run_does_not(flodl, run):
    run.set("/stop", {"stopping": True})
    assert flodl("stop")[1].endswith(": finishing the window, then saving\n")
    assert flodl("stop", "--now")[1].endswith(": ending at once\n")


def test_checkpoint_is_asked_for(flodl, refused, run):
    run.set("/checkpoint", {"requested": True, "what_follows": "saved at the next commit"})
    code, out, _ = flodl("checkpoint")
    assert (code, out) == (0, f"night-{RUN_ID}: checkpoint requested; saved at the next commit\n")
    run.set("/checkpoint", {"error": "the run is not training yet"}, status=409)
    assert refused("checkpoint") == (1, "error: the run is not training yet\n")


def test_drain_names_the_host_and_says_what_follows(flodl, refused, run):
    run.set("/drain", {"draining": True, "what_follows": "its ranks leave"})
    code, out, _ = flodl("drain", "blue")
    assert (code, out) == (0, f"night-{RUN_ID}: draining blue; its ranks leave\n")
    assert [path for _, path, _ in run.asked] == ["/drain?host=blue"]
    run.set("/drain", {"error": "host blue is the last one with a rank"}, status=409)
    assert refused("drain", "blue") == (1, "error: host blue is the last one with a rank\n")


def test_evict_names_the_rank_and_says_what_follows(flodl, refused, run):
    run.set("/evict", {"evicting": True, "what_follows": "the others train its samples"})
    code, out, _ = flodl("evict", "3")
    assert (code, out) == (0, f"night-{RUN_ID}: evicting rank 3; the others train its samples\n")
    assert [path for _, path, _ in run.asked] == ["/evict?rank=3"]
    run.set("/evict", {"error": "rank 3 is the last one"}, status=409)
    assert refused("evict", "3") == (1, "error: rank 3 is the last one\n")


@pytest.mark.parametrize("words", [(), ("red",), ("-1",)])
def test_evict_without_a_number_of_a_rank_is_a_usage_error(refused, words):
    code, text = refused("evict", *words)
    assert code == 2
    assert "RANK" in text or "-1" in text


def test_drain_without_a_host_is_a_usage_error(refused):
    code, text = refused("drain")
    assert code == 2
    assert "HOST" in text


@pytest.mark.parametrize("command", ["status", "start", "stop", "checkpoint"])
def test_without_a_live_run_each_says_where_it_looked(refused, place, command):
    code, text = refused(command)
    assert code == 1
    assert "no live run under runs" in text
    with run_directory(place / "runs", 1):
        pass
    assert f"night-{RUN_ID}, has ended" in refused(command)[1]


def test_a_run_that_does_not_listen_yet_is_named(refused, place):
    with run_directory(place / "runs", None):
        code, text = refused("status")
    assert code == 1
    assert "has not opened its port yet" in text


def test_nobody_at_the_address_is_an_error(refused, place):
    with launcher_at() as (port, _):
        pass
    code, text = refused("status", f"127.0.0.1:{port}")
    assert code == 1
    assert f"no launcher answers at 127.0.0.1:{port}" in text


def test_of_several_runs_one_is_chosen_by_name_or_id(flodl, launcher, place):
    port, answers = launcher
    answers.set("/state.json", document())
    with (
        run_directory(place / "runs", port),
        run_directory(place / "runs", 1, name="day", run_id="f" * 16, token=OTHER_TOKEN),
    ):
        assert flodl("status", "--run", "night")[0] == 0
        assert flodl("status", "--run", "0123")[0] == 0
        assert flodl("status", "--run", "day")[0] == 1
    assert {bearer for _, _, bearer in answers.asked} == {BEARER}


def test_the_run_directory_may_be_elsewhere(flodl, launcher, place, monkeypatch):
    port, answers = launcher
    answers.set("/state.json", document())
    with run_directory(place / "other", port) as directory:
        assert flodl("status", "--run-dir", "other")[0] == 0
        assert flodl("status", "--run-dir", str(directory.path))[0] == 0
        monkeypatch.setenv("FLODL_RUN_DIR", "other")
        assert flodl("status")[0] == 0
    assert len(answers.asked) == 3


@pytest.mark.parametrize("form", ["argument", "option", "host alone"])
def test_an_address_takes_the_token_of_the_run_that_listens_there(flodl, launcher, place, form):
    port, answers = launcher
    answers.set("/stop", {"stopping": True})
    words = {
        "argument": [f"127.0.0.1:{port}"],
        "option": ["--attach", f"localhost:{port}"],
        "host alone": ["127.0.0.1", "--config", "here.toml"],
    }[form]
    (place / "here.toml").write_text(f"[join]\nport = {port}\n")
    with run_directory(place / "runs", port):
        assert flodl("stop", *words)[0] == 0
    assert answers.asked[0][2] == BEARER


def test_a_run_elsewhere_takes_the_token_that_is_given(flodl, launcher, place, monkeypatch):
    port, answers = launcher
    answers.set("/stop", {"stopping": True})
    assert flodl("stop", f"127.0.0.1:{port}")[0] == 0
    (place / "t").write_text(OTHER_TOKEN + "\n")
    assert flodl("stop", f"127.0.0.1:{port}", "--token-file", "t")[0] == 0
    monkeypatch.setenv("FLODL_TOKEN", TOKEN)
    assert flodl("stop", f"127.0.0.1:{port}")[0] == 0
    assert [bearer for _, _, bearer in answers.asked] == [None, OTHER_BEARER, BEARER]


def test_a_given_token_file_beats_the_run_directory(flodl, run, place):
    (place / "t").write_text(OTHER_TOKEN)
    run.set("/stop", {"stopping": True})
    assert flodl("stop", "--token-file", "t")[0] == 0
    assert run.asked[0][2] == OTHER_BEARER


@pytest.mark.parametrize("status", [401, 403])
def test_distrust_says_where_a_token_comes_from(refused, run, status):
    run.set("/stop", {"error": "not trusted", "fix": "send Bearer"}, status=status)
    code, text = refused("stop")
    assert code == 1
    assert text.startswith("error: not trusted\n")
    assert "--token-file" in text


def test_a_token_that_others_may_read_is_refused(refused, launcher, place):
    with run_directory(place / "runs", launcher[0]) as directory:
        directory.token_path.chmod(0o644)
        code, text = refused("stop")
    assert code == 2
    assert "other users may read it" in text


def test_status_tells_the_open_window(flodl, run):
    run.set("/state.json", document("staging"))
    code, out, err = flodl("status")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"night {RUN_ID}  staging  cpu_sync  port 1337  1.0s",
        "staging  2/2 ranks, waits for flodl start, gives up in 1m00s",
        "next     quorum is met; `flodl start` closes the window",
        "joined   red (127.0.0.1): 2 ranks on cpu:0, cpu:1",
    ]


def test_status_tells_training_waits_alerts_refusals_and_saves(flodl, run):
    run.set("/state.json", in_trouble())
    code, out, _ = flodl("status")
    lines = out.splitlines()
    assert code == 0
    assert lines[1].startswith("train    epoch 1/3")
    assert lines[2].startswith("reduce   pending  cycle 11  version 10  1 MiB  last 4.2 ms")
    assert lines[2].endswith("committed  pending 7.0s/5m00s")
    assert [line.split()[:4] for line in lines[3:5]] == [
        ["rank", "0", "red", "cpu:0"],
        ["rank", "1", "red", "cpu:1"],
    ]
    assert lines[5:] == [
        "waiting  rank 1 on red: reducing 7.0s/5m00s, then stop",
        "alert    critical rank_lost × 2 at root/red/rank1: SIGKILL\\x1b[2J",
        "refused  2 joins; last: another model",
        "saved    out/model (version 9)",
        "saving   a checkpoint is being written",
        "saving   the last try failed: disk full",
    ]


def test_status_tells_the_end(flodl, run):
    run.set("/state.json", ended(5, "the disk is full"))
    assert flodl("status")[1].splitlines()[-1] == "ended    exit 5, the disk is full"


def test_status_json_is_the_document_as_served_with_fields_that_we_do_not_know(flodl, run):
    body = json.loads(document().model_dump_json()) | {"later": {"a": 1}}
    run.set("/state.json", body)
    code, out, _ = flodl("status", "--json")
    assert code == 0
    assert json.loads(out) == body


def test_a_run_that_has_published_nothing_is_an_error_for_one_look(refused, run):
    run.set("/state.json", {"error": "nothing was published yet", "fix": "ask again"}, status=503)
    assert refused("status") == (1, "error: nothing was published yet\n  Fix: ask again\n")


def test_what_is_no_status_document_is_an_error(refused, run):
    run.set("/state.json", {"hello": "world"})
    code, text = refused("status")
    assert code == 1
    assert "no status document" in text
