"""Who closes the join window, who is let in, and what everybody else is told."""

import platform
import signal
from pathlib import Path

import httpx
import pytest
from aftermath import logged
from harness import SHORT_S, Launched

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(240)]

FAULTY = f"{Path(__file__).with_name('faulty_job.py')}:job"
HOST = platform.node()
TINY = ("synthetic", "--job-arg", "params=100", "--epochs", "1")


def join_words(run: Launched, host: str, *more: str, token_file: Path | None = None) -> list[str]:
    return [
        *("join", run.address, "--host", host),
        *("--token-file", str(token_file or run.token_file), *more),
    ]


def write_job(place: Path, name: str, **changes: object) -> str:
    """Another host's copy of the job, which is not quite the same."""
    place.mkdir(exist_ok=True)
    path = place / f"{name}.py"
    given = ", ".join(f"{key}={value!r}" for key, value in changes.items())
    source = Path(FAULTY.rpartition(":")[0])
    path.write_text(
        f"import sys\nsys.path.insert(0, {str(source.parent)!r})\n"
        f"from faulty_job import job as original\n\ndef job():\n    return original({given})\n"
    )
    return f"{path}:job"


@pytest.mark.long
def test_a_manual_window_holds_refuses_and_forms_when_told(launch, tmp_path: Path) -> None:
    run = launch(
        *(FAULTY, "--ranks", "1", "--start", "manual", "--min-rank-start", "2"),
        *("--join-timeout-s", "1", "--require-token"),
    )
    run.until_said("joined", HOST)

    below = run.flodl("start")
    assert below.code == 1, below
    assert "1/2" in below.err

    wrong = tmp_path / "wrong"
    wrong.write_text("0" * 32 + "\n")
    wrong.chmod(0o600)
    told = run.flodl(*join_words(run, "grey", token_file=wrong))
    assert told.code == 3, told
    assert "token" in told.err
    assert "Fix:" in told.err
    told = run.flodl("join", run.address, "--host", "grey")
    assert told.code == 3, told
    assert "token" in told.err
    assert httpx.get(f"http://{run.address}/state.json", trust_env=False).status_code in (401, 403)

    taken = HOST
    refused = {
        "first.0.weight": run.start_flodl(
            *join_words(run, "blue", "--job", write_job(tmp_path / "wide", "wide", width=5))
        ),
        "dataset": run.start_flodl(
            *join_words(run, "green", "--job", write_job(tmp_path / "steep", "steep", slope=3.0))
        ),
        taken: run.start_flodl(*join_words(run, taken, "--job", FAULTY)),
    }
    blue, green, double = (one.finish() for one in refused.values())
    for told in (blue, green, double):
        assert told.code == 3, told
        assert "refused" in told.err
        assert "Fix:" in told.err
        assert "Traceback" not in told.err + told.out
    assert "'param|0.weight|float32|4x1'" in blue.err
    assert "'param|0.weight|float32|5x1'" in blue.err
    assert "dataset" in green.err
    assert taken in double.err
    assert "127.0.0.1" in double.err
    run.until("three refusals", lambda: run.document["refusals"] == 3)
    assert run.document["joined_ranks"] == 1

    joiner = run.start_flodl(*join_words(run, "red", "--job", FAULTY))
    run.until_phase("staging")
    run.until("the document of it", lambda: run.document["phase"] == "staging")
    run.until("past the window", lambda: not run.document["window_remaining_s"])
    assert run.document["phase"] == "staging"
    assert run.document["cap_remaining_s"] > 80_000

    started = run.flodl("start")
    assert started.code == 0, started
    assert "2 ranks" in started.out
    red = joiner.finish()
    assert red.code == 0, red
    assert run.finish() == 0
    run.check_quiet()
    assert {row["host"] for row in run.summary["ranks"]} == {HOST, "red"}
    assert logged(run.directory, "launcher", "operator start")


def test_the_cap_of_a_window_names_who_waits_and_who_is_missing(launch) -> None:
    run = launch(
        *(*TINY, "--hosts", "2", "--ranks-per-host", "1"),
        *("--join-timeout-s", "1", "--max-join-timeout-s", "5"),
    )
    run.kill(f"agent {HOST}-1", number=signal.SIGSTOP)
    run.until_phase("failed", SHORT_S)
    run.kill(f"agent {HOST}-1", number=signal.SIGCONT)
    assert run.finish(SHORT_S) == 3
    run.check_quiet()
    text = run.error["text"]
    assert run.document["phase"] == "failed"
    assert "1 of 2 ranks joined in 5 s" in text
    assert f"Waiting hosts: {HOST} (1 device)" in text
    assert f"Never heard from: {HOST}-1" in text
    assert run.error["fix"]


def test_a_manual_window_that_nobody_starts_fails_at_its_cap(launch) -> None:
    run = launch(
        *(*TINY, "--ranks", "2", "--start", "manual"),
        *("--join-timeout-s", "1", "--max-join-timeout-s", "3"),
    )
    run.until_phase("staging")
    assert run.finish(SHORT_S) == 3
    run.check_quiet()
    assert "2 ranks waited 3 s for the operator's start" in run.error["text"]
    assert "flodl start" in run.error["fix"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("timeout_s", "by_hand", "reason"),
    [("2", False, "join window closed with quorum"), ("300", True, "operator start")],
)
def test_a_hybrid_window_forms_by_the_clock_and_by_hand(
    launch, timeout_s: str, by_hand: bool, reason: str
) -> None:
    run = launch(
        *(*TINY, "--ranks", "2", "--start", "hybrid", "--target-ranks", "3"),
        *("--join-timeout-s", timeout_s),
    )
    run.until_phase("staging")
    if by_hand:
        assert run.flodl("start").code == 0
    run.until_phase("forming")
    assert run.flodl("stop", "--now").code == 0
    assert run.finish(SHORT_S) == 5
    run.check_quiet()
    assert logged(run.directory, "launcher", reason)


def test_a_port_that_cannot_be_is_refused(launch) -> None:
    run = launch("synthetic", port=70_000)
    assert run.finish(SHORT_S) == 2
    assert "port" in run.stderr
    assert "70000" in run.stderr


@pytest.mark.long
def test_an_auto_window_is_not_started_by_hand_nor_disturbed_by_a_second_run_on_its_port(
    launch,
) -> None:
    first = launch(*TINY, "--ranks", "2", "--min-rank-start", "3", "--target-ranks", "4")
    first.until_said("joined", HOST)
    second = launch(*TINY, "--ranks", "1", port=first.port)
    assert second.finish(SHORT_S) == 2
    assert first.document["run"]["id"] in second.error["text"]
    assert str(first.port) in second.error["text"]
    refused = first.flodl("start")
    assert refused.code == 1, refused
    assert "auto" in refused.err
    state = first.fetch_state()
    assert (state["phase"], state["start_armed"]) == ("waiting", False)
    assert first.flodl("stop").code == 0
    assert first.finish(SHORT_S) == 3
    assert "before the world formed" in first.error["text"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("syntetic",), "synthetic"),
        (("synthetic", "--ranks", "0"), "ranks"),
        (("synthetic", "--epochs", "-1"), "epochs"),
        (("synthetic", "--start", "manual", "--target-ranks", "2"), "target_ranks"),
        (("synthetic", "--mode", "nccl_sync"), "mode"),
    ],
)
def test_bad_words_are_refused_before_anything_is_started(launch, words, told: str) -> None:
    run = launch(*words, as_json=False)
    assert run.finish(SHORT_S) == 2
    assert not run.rows
    lines = run.stderr.splitlines()
    assert lines[0].startswith("error: ")
    assert told in run.stderr
    assert any(line.strip().startswith("Fix: ") for line in lines)
    assert "Traceback" not in run.stderr
    assert not list(run.place.glob("runs/*"))
