"""Real runs in Cadence: unequal ranks, cuts, a host that drains, a rank that is killed."""

import json
import platform
import signal

import pytest
from aftermath import check_each_once, logged, meta_of, sample_counts
from harness import SHORT_S, Launched

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(300)]

HOST = platform.node()
BATCH = 4
CADENCE = (
    *("synthetic", "--mode", "cpu_cadence", "--sample-log", "auto", "--seed", "3"),
    *("--job-arg", f"batch_size={BATCH}", "--job-arg", "params=500"),
)
LONG_WINDOWS = (
    *(*CADENCE, "--epochs", "1", "--step-ms", "50", "--job-arg", "samples=40000"),
    *("--anchor", "400", "--max-anchor", "400"),
)
"""A window takes at least twenty seconds."""
WHOLE_WINDOW = 2 * 400 * BATCH


def pass_of(samples: int, *step_ms: int) -> tuple[str, ...]:
    return (
        *(*CADENCE, "--epochs", "1", "--job-arg", f"samples={samples}"),
        *("--step-ms", ",".join(map(str, step_ms))),
    )


def check_whole(run: Launched, samples: int) -> None:
    check_each_once(run.directory / "samples.jsonl", samples=samples, each_pass=samples, passes=1)
    assert run.summary["samples_trained"] == samples
    assert run.summary["samples_dropped"] == 0


def elche(run: Launched) -> dict[str, object]:
    found: dict[str, object] = run.document.get("elche") or {}
    return found


def steps_in_window(run: Launched) -> list[int]:
    return [row["steps_in_window"] for row in run.document.get("ranks", ())]


def windows_of(run: Launched) -> dict[int, dict[int, int]]:
    """Batches of each rank by cycle, from the sample log."""
    windows: dict[int, dict[int, int]] = {}
    for line in (run.directory / "samples.jsonl").read_text().splitlines():
        row = json.loads(line)
        of_cycle = windows.setdefault(row["cycle"], {})
        of_cycle[row["rank"]] = of_cycle.get(row["rank"], 0) + len(row["ids"]) // BATCH
    return windows


def test_a_slow_rank_does_fewer_batches_and_every_sample_is_trained_once(launch) -> None:
    samples = 9_600
    run = launch(*pass_of(samples, 10, 10, 80), "--ranks", "3")
    run.until("counts by speed", lambda: elche(run).get("phase") == "stable")
    state = run.fetch_state()
    assert state["run"]["mode"] == "cpu_cadence"
    assert state["elche"]["anchor_rank"] == 2
    assert state["elche"]["guard"] == "level"
    assert state["elche"]["overhead"] is not None
    assert [row["planned_batches"] for row in state["ranks"]] == state["elche"]["batch_counts"]
    assert run.finish() == 0
    run.check_quiet()
    check_whole(run, samples)
    windows = windows_of(run)
    first, second = (windows[cycle] for cycle in sorted(windows)[:2])
    assert first == {0: 10, 1: 10, 2: 10}
    assert second[0] > 2 * second[2]
    batches = [row["batches"] for row in run.summary["ranks"]]
    assert min(batches[:2]) > 3 * batches[2]
    assert meta_of(run.stem)["elche"]["anchor_rank"] == 2


def test_two_runs_with_pinned_counts_are_the_same_run(launch) -> None:
    words = (*pass_of(400, 5, 20), "--ranks", "2", "--pin-counts", "6,2")
    runs = [launch(*words) for _ in range(2)]
    for run in runs:
        assert run.finish() == 0
        check_whole(run, 400)
        assert set(map(tuple, (sorted(one.items()) for one in windows_of(run).values()))) <= {
            ((0, 6), (1, 2)),
            ((0, 4),),
        }
    one, two = (run.stem.with_suffix(".safetensors").read_bytes() for run in runs)
    assert _values(one) == _values(two)


def _values(file: bytes) -> bytes:
    """The tensors of a safetensors file, without its header."""
    return file[8 + int.from_bytes(file[:8], "little") :]


def test_pinned_counts_of_another_number_of_ranks_start_nothing(launch) -> None:
    run = launch(*pass_of(400, 5), "--ranks", "2", "--pin-counts", "6,2,2")
    assert run.finish(SHORT_S) == 2
    assert "3 numbers for 2 ranks" in run.error["text"]


def test_a_terminate_signal_cuts_a_long_window_and_saves_it(launch) -> None:
    run = launch(*LONG_WINDOWS, "--ranks", "2")
    run.until("a batch of each", lambda: min(steps_in_window(run), default=0) > 0)
    run.signal(signal.SIGTERM)
    assert run.finish() == 4
    run.check_quiet()
    meta = meta_of(run.stem)
    assert meta["sync_round"] == 1
    trained = sample_counts(run.directory / "samples.jsonl")[0]
    assert 0 < meta["samples_trained"] == len(trained) < WHOLE_WINDOW
    uncovered = meta["coverage"]["per_epoch"][0]["uncovered_ranges"]
    assert sum(size for _, size in uncovered) == 40_000 - len(trained)


def test_a_checkpoint_cuts_a_long_window_and_the_run_goes_on(launch) -> None:
    run = launch(*LONG_WINDOWS, "--ranks", "2")
    run.until("a batch of each", lambda: min(steps_in_window(run), default=0) > 0)
    assert run.flodl("checkpoint").code == 0
    run.until_said("saved", "version 1")
    assert 0 < meta_of(run.stem)["samples_trained"] < WHOLE_WINDOW
    assert logged(run.directory, "launcher", "window_cut")
    steps = {row["rank"]: row["batch_count"] for row in run.document["ranks"]}
    run.until(
        "batches after it",
        lambda: all(row["batch_count"] > steps[row["rank"]] for row in run.document["ranks"]),
    )
    assert run.flodl("stop", "--now").code == 0
    assert run.finish() == 5


def test_a_host_that_is_drained_leaves_and_the_others_train_every_sample(launch) -> None:
    samples = 20_000
    run = launch(*pass_of(samples, 10, 10, 40, 40), "--hosts", "2", "--ranks-per-host", "2")
    run.until_trained(1)
    refused = run.flodl("drain", "nowhere")
    assert refused.code == 1
    assert "no host 'nowhere' in this run" in refused.err
    agent = run.process(f"agent {HOST}-1")
    said = run.flodl("drain", f"{HOST}-1")
    assert said.code == 0, said
    run.until_said("note", f"host {HOST}-1 is drained")
    run.until("the agent's end", lambda: not agent.is_alive(), SHORT_S)
    last = run.flodl("drain", HOST)
    assert last.code == 1
    assert "last one with a rank" in last.err
    assert run.finish() == 0
    run.check_quiet()
    check_whole(run, samples)
    assert run.summary["alerts"] == {}
    assert [row["state"] for row in run.summary["ranks"]] == ["done"] * 4
    assert "exit code 0" in logged(run.directory, "launcher", "agent_ended")[-1]
    assert meta_of(run.stem)["ranks_alive"] == 2


@pytest.mark.chaos
def test_a_rank_that_is_killed_in_mid_window_costs_that_window_only(launch) -> None:
    samples = 8_000
    run = launch(*pass_of(samples, 10, 10, 40), "--ranks", "3")
    run.until("counts by speed", lambda: elche(run).get("phase") == "stable")
    run.kill("rank0")
    run.until_lost(0)
    done = run.document["training"]["samples_done"]
    run.until_trained(done + 40 * BATCH)
    run.kill("rank2")
    run.until_lost(2)
    assert run.finish() == 0
    run.check_quiet()
    check_whole(run, samples)
    assert run.summary["alerts"] == {"rank_lost": 2}
    assert run.document["elche"]["batch_counts"][0] == 0
