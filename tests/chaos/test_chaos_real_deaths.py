"""Processes of a real run that are killed: the rest go on, no sample is lost, nothing is left."""

import platform
import random
import signal
from pathlib import Path

import pytest
from aftermath import check_each_once, meta_of, sample_counts
from harness import SHORT_S, Launched
from process_table import await_ends, look_until
from safetensors.torch import load_file

from flodl_core.recipes.synthetic import SyntheticModel

pytestmark = [
    pytest.mark.processes,
    pytest.mark.chaos,
    pytest.mark.slow,
    pytest.mark.timeout(300),
]

HOST = platform.node()
SAMPLES, BATCH, PASSES, PARAMS = 1_600, 4, 2, 500
WORDS = (
    *("synthetic", "--sample-log", "auto", "--epochs", str(PASSES), "--step-ms", "5"),
    *("--job-arg", f"samples={SAMPLES}", "--job-arg", f"batch_size={BATCH}"),
    *("--job-arg", f"params={PARAMS}"),
)
ENDLESS = (*WORDS, "--epochs", "100000")


def check_whole(run: Launched) -> None:
    """Every sample of every pass was trained once, and the summary says so."""
    check_each_once(
        run.directory / "samples.jsonl", samples=SAMPLES, each_pass=SAMPLES, passes=PASSES
    )
    assert run.summary["samples_trained"] == PASSES * SAMPLES
    assert run.summary["samples_dropped"] == 0


def check_consensus(stem: Path) -> dict[str, object]:
    """The bundle loads strictly and is finite; returns its meta file."""
    saved = load_file(f"{stem}.safetensors")
    SyntheticModel(params=PARAMS, buffers=64).load_state_dict(saved, strict=True)
    assert all(value.isfinite().all() for value in saved.values())
    return meta_of(stem)


def states(run: Launched) -> list[str]:
    return [row["state"] for row in run.summary["ranks"]]


def trained_now(run: Launched) -> int:
    return int(run.document["training"]["samples_done"])


def test_ranks_that_are_killed_on_both_hosts(launch) -> None:
    run = launch(
        *(*WORDS, "--hosts", "2", "--ranks-per-host", "2"),
        *("--on-event", 'echo "$FLODL_CHILD_EVENT" >> told.txt; cat >> told.txt'),
    )
    run.until_trained(1)
    run.kill("rank1")
    near = run.until_lost(1)
    run.until_trained(trained_now(run) + BATCH)
    run.kill("rank2")
    far = run.until_lost(2)
    assert run.finish() == 0
    run.check_quiet()
    check_whole(run)
    assert f"on {HOST})" in near
    assert f"on {HOST}-1)" in far
    assert "SIGKILL" in near
    assert "SIGKILL" in far
    assert run.summary["alerts"] == {"rank_lost": 2}
    told = (run.place / "told.txt").read_text()
    assert told.count("rank_lost\n") == 2
    assert told.count("run_ended\n") == 1
    assert states(run) == ["done", "lost", "lost", "done"]
    assert check_consensus(run.stem)["ranks_alive"] == 2


def test_a_relay_and_an_agent_that_are_killed(launch) -> None:
    run = launch(*WORDS, "--hosts", "3", "--ranks-per-host", "1")
    run.until_trained(1)
    run.kill(f"relay {HOST}-1")
    relay = run.until_lost(1)
    assert not await_ends([one for one in [run.processes().get("rank1")] if one], SHORT_S)
    run.until_trained(trained_now(run) + BATCH)
    children = [
        one for name, one in run.processes().items() if name in ("rank2", f"relay {HOST}-2")
    ]
    assert len(children) == 2
    run.kill(f"agent {HOST}-2")
    agent = run.until_lost(2)
    assert not await_ends(children, SHORT_S)
    assert run.finish() == 0
    run.check_quiet()
    check_whole(run)
    assert f"{HOST}-1" in relay
    assert "relay" in relay
    assert f"{HOST}-2" in agent
    assert states(run) == ["done", "lost", "lost"]
    assert run.summary["alerts"]["rank_lost"] == 2
    assert set(run.summary["alerts"]) <= {"rank_lost", "partly_counted"}


def test_everything_ends_with_a_launcher_that_is_killed(launch) -> None:
    run = launch(*ENDLESS, "--hosts", "2", "--ranks-per-host", "1", "--loader-workers", "1")
    run.until_trained(1)
    assert "loader rank0" in run.processes()
    assert run.flodl("checkpoint").code == 0
    run.until_said("saved", "consensus")
    run.kill("launcher")
    run.await_all_gone(within_s=30)
    assert check_consensus(run.stem)["reason"] == "checkpoint"
    for of_pass in sample_counts(run.directory / "samples.jsonl").values():
        assert set(of_pass.values()) == {1}
    told = run.flodl("status")
    assert told.code != 0
    assert run.directory.name in told.err
    assert "has ended" in told.err


def test_a_guest_that_leaves_in_the_middle_takes_only_its_own_ranks_along(launch) -> None:
    run = launch(*ENDLESS, "--ranks", "1", "--min-rank-start", "2", "--target-ranks", "2")
    run.until_said("joined", HOST)
    guest = run.start_flodl("join", run.address, "--host", "guest")
    run.until_trained(1)
    run.kill("agent guest", number=signal.SIGTERM)
    said = guest.finish()
    assert said.code == 7, said
    assert "SIGTERM" in said.err
    alert = run.until_lost(1)
    assert "host guest is gone: its agent was ended by SIGTERM" in alert
    run.until_trained(trained_now(run) + BATCH)
    late = run.flodl("join", run.address, "--host", "late")
    assert late.code == 6, late
    assert "the join window is closed" in late.err
    run.signal(signal.SIGTERM)
    assert run.finish() == 4
    run.check_quiet()
    assert check_consensus(run.stem)["ranks_alive"] == 1


def test_everything_ends_with_a_launcher_that_is_killed_in_the_window(launch) -> None:
    run = launch(*WORDS, "--hosts", "2", "--ranks-per-host", "1", "--start", "manual")
    run.until_said("joined", f"{HOST}-1")
    guest = run.start_flodl(
        "join", run.address, "--token-file", str(run.token_file), "--host", "guest"
    )
    run.until("three hosts", lambda: run.document["joined_ranks"] == 3)
    run.kill("agent guest")
    assert guest.finish().code == -signal.SIGKILL
    run.until_said("left", "guest")
    run.until("two hosts", lambda: run.document["joined_ranks"] == 2)
    run.kill("launcher")
    run.await_all_gone(within_s=30)


def test_an_agent_of_our_own_that_is_killed_in_the_window_ends_it(launch) -> None:
    run = launch(*WORDS, "--hosts", "2", "--ranks-per-host", "1", "--start", "manual")
    run.until_said("joined", HOST)
    run.kill(f"agent {HOST}-1")
    assert run.finish(SHORT_S) == 3
    assert f"{HOST}-1" in run.error["text"]
    assert "SIGKILL" in run.error["text"]


def test_the_last_rank_leaves_the_last_commit(launch) -> None:
    run = launch(*ENDLESS, "--ranks", "2")
    run.until_trained(1)
    run.kill("rank0")
    run.until_lost(0)
    run.until_trained(trained_now(run) + BATCH)
    run.kill("rank1")
    assert run.finish(SHORT_S) == 1
    run.check_quiet()
    meta = check_consensus(run.stem)
    assert meta["reason"] == "all_ranks_lost"
    assert meta["sync_round"] == run.summary["syncs"]
    assert meta["samples_trained"] == run.summary["samples_trained"]
    assert run.summary["reason"] == "all_ranks_lost"
    assert "first cause: rank 0" in run.summary["detail"]


def test_all_ranks_killed_at_once_leave_the_last_commit(launch) -> None:
    run = launch(*ENDLESS, "--hosts", "2", "--ranks-per-host", "1")
    run.until_trained(1)
    run.kill("rank0", "rank1")
    assert run.finish(SHORT_S) == 1
    run.check_quiet()
    meta = check_consensus(run.stem)
    assert meta["reason"] == "all_ranks_lost"
    assert meta["samples_trained"] == run.summary["samples_trained"]
    logged = sample_counts(run.directory / "samples.jsonl")
    assert sum(of_pass.total() for of_pass in logged.values()) == meta["samples_trained"]


def test_a_rank_that_dies_before_the_world_gathers_fails_the_run_by_name(launch) -> None:
    run = launch(*WORDS, "--ranks", "2")
    run.kill("rank1")
    assert run.finish(SHORT_S) == 1
    run.check_quiet()
    assert "rank 1" in run.summary["detail"]
    assert "SIGKILL" in run.summary["detail"]
    assert not run.stem.with_suffix(".meta.json").exists()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_rank_that_dies_at_any_moment(launch, seed: int) -> None:
    chance = random.Random(seed)
    run = launch(*WORDS, "--ranks", "3")
    run.until_trained(1)
    victim = chance.choice(["rank0", "rank1", "rank2"])
    after = trained_now(run) + chance.randrange(PASSES * SAMPLES - 200)
    look_until(lambda: run.fetch_state()["training"]["samples_done"] >= after, SHORT_S)
    run.kill(victim)
    assert run.finish() == 0
    run.check_quiet()
    check_whole(run)
    assert sorted(states(run)) in (["done", "done", "lost"], ["done"] * 3)
