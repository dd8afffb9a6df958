"""A run that was stopped in mid-pass goes on: bit by bit in its own world, whole in others."""

import signal
from collections import Counter
from pathlib import Path

import pytest
from aftermath import meta_of, sample_counts
from harness import SHORT_S, Beside, Launched
from safetensors.numpy import load_file

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(400)]

SAMPLES, EPOCHS = 4096, 2
JOB = ("synthetic", "--job-arg", f"samples={SAMPLES}", "--epochs", str(EPOCHS))
SAVING = ("--sample-log", "auto", "--checkpoint-every-s", "0.5")


@pytest.fixture(scope="module")
def stopped(launch_ahead) -> Launched:
    """A run of three ranks that was stopped while the first pass was under way."""
    run = launch_ahead(*JOB, *SAVING, "--ranks", "3", "--step-ms", "15", "--keep-checkpoints", "3")
    run.until_trained(600)
    run.until("a save", lambda: bool(list(run.directory.glob("checkpoints/*.meta.json"))))
    run.signal(signal.SIGTERM)
    assert run.finish() == 4
    run.check_quiet()
    return run


def go_on(launch_ahead, run: Launched, *words: str) -> Launched:
    return launch_ahead(*JOB, "--sample-log", "auto", "--resume", str(run.directory), *words)


def ids_of(*runs: Launched) -> dict[int, Counter[int]]:
    """How often each id was trained in each pass, by all these runs together."""
    together: dict[int, Counter[int]] = {}
    for run in runs:
        for number, ids in sample_counts(run.directory / "samples.jsonl").items():
            together.setdefault(number, Counter()).update(ids)
    return together


def each_once() -> dict[int, Counter[int]]:
    return {number: Counter(range(SAMPLES)) for number in range(EPOCHS)}


def weights(stem: Path) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in load_file(f"{stem}.safetensors").items()}


def test_the_stopped_run_has_its_generations_with_the_files_of_all_ranks(stopped) -> None:
    folder = stopped.stem.parent
    meta = meta_of(stopped.stem)
    assert [(one["rank"], one["device"]) for one in meta["rank_files"]] == [
        (rank, f"cpu:{rank}") for rank in range(3)
    ]
    for one in meta["rank_files"]:
        assert (folder / f"consensus{one['suffix']}").stat().st_size == one["nbytes"]
    assert stopped.summary["save_reason"] == "graceful_shutdown"
    generations = len(list(folder.glob("consensus*.meta.json")))
    assert generations in (2, 3)
    assert len(list(folder.glob("consensus*.rank0.pt"))) == generations
    open_samples = sum(size for _, size in meta["coverage"]["per_epoch"][0]["uncovered_ranges"])
    assert 0 < open_samples == SAMPLES - meta["samples_trained"]


def test_the_same_world_ends_bit_by_bit_as_a_run_that_was_never_stopped(
    launch_ahead, stopped
) -> None:
    again = go_on(launch_ahead, stopped, "--ranks", "3")
    whole = launch_ahead(*JOB, "--ranks", "3")
    assert (again.finish(), whole.finish()) == (0, 0)
    again.check_quiet()
    assert weights(again.stem) == weights(whole.stem)
    assert meta_of(again.stem)["sync_round"] == meta_of(whole.stem)["sync_round"]
    assert meta_of(again.stem)["global_step"] == meta_of(whole.stem)["global_step"]
    assert ids_of(stopped, again) == each_once()
    assert not again.texts("alert")
    assert again.summary["resumed_from"] == str(stopped.stem)
    assert again.summary["samples_trained"] == EPOCHS * SAMPLES
    for one, other in zip(again.summary["epochs"], whole.summary["epochs"], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], rel=1e-9)  # of both parts together
        assert one["samples"] == other["samples"] == SAMPLES
    assert again.summary["epochs"][0]["duration_s"] > again.summary["epochs"][1]["duration_s"]


def test_with_pinned_counts_a_stop_changes_no_bit_either(launch_ahead) -> None:
    pinned = (*JOB, "--ranks", "2", "--mode", "cpu_cadence", "--pin-counts", "3,5")
    run = launch_ahead(*pinned, *SAVING, "--step-ms", "15")
    whole = launch_ahead(*pinned)
    run.until_trained(600)
    run.until("a save", lambda: bool(list(run.directory.glob("checkpoints/*.meta.json"))))
    run.signal(signal.SIGTERM)
    assert run.finish() == 4
    again = launch_ahead(*pinned, "--sample-log", "auto", "--resume", str(run.directory))
    assert (again.finish(), whole.finish()) == (0, 0)
    assert weights(again.stem) == weights(whole.stem)
    assert meta_of(again.stem)["sync_round"] == meta_of(whole.stem)["sync_round"]
    assert ids_of(run, again) == each_once()


@pytest.mark.parametrize(
    "words",
    [
        ("--ranks", "2", "--mode", "cpu_cadence"),
        ("--hosts", "2", "--ranks-per-host", "2"),
        ("--ranks", "5"),
    ],
    ids=["two ranks in cadence", "two hosts", "five ranks"],
)
def test_another_world_trains_what_is_left_once(launch_ahead, stopped, words) -> None:
    run = go_on(launch_ahead, stopped, *words)
    assert run.finish() == 0
    run.check_quiet()
    assert ids_of(stopped, run) == each_once()
    world = run.summary["world_size"]
    assert any(f"{world} ranks now, 3 at the save" in text for text in run.texts("note"))


def with_guests(launch_ahead, names: tuple[str, ...], *words: str) -> tuple[Launched, list[Beside]]:
    """A run whose ranks 1 and 2 are on two guests, which join in this order."""
    guests = []
    run = launch_ahead(*JOB, *SAVING, "--ranks", "1", "--target-ranks", "3", *words)
    run.until_said("note", "listens on")
    for name in names:
        words = ("join", run.address, "--host", name, "--ranks", "1", "--run-dir", name)
        guests.append(run.start_flodl(*words))
        run.until_said("joined", name)
    return run, guests


def test_hosts_in_another_order_train_what_is_left_once(launch_ahead) -> None:
    """Each rank is on another host than at the save, so its own state is not there."""
    first, guests = with_guests(launch_ahead, ("red", "blue"), "--step-ms", "15")
    first.until_trained(600)
    first.until("a save", lambda: bool(list(first.directory.glob("checkpoints/*.meta.json"))))
    first.signal(signal.SIGTERM)
    assert first.finish(leaves_guest=True) == 4
    assert [guest.finish(SHORT_S).code for guest in guests] == [0, 0]
    owners = {one["rank"]: one["host"] for one in meta_of(first.stem)["rank_files"]}
    assert (owners[1], owners[2]) == ("red", "blue")
    again, guests = with_guests(launch_ahead, ("blue", "red"), "--resume", str(first.directory))
    again.until_said("note", "goes on from")
    assert again.finish(leaves_guest=True) == 0
    assert [guest.finish(SHORT_S).code for guest in guests] == [0, 0]
    again.check_quiet()
    hosts = {rank["rank"]: rank["host"] for rank in again.summary["ranks"]}
    assert (hosts[1], hosts[2]) == ("blue", "red")
    assert ids_of(first, again) == each_once()


def test_a_damaged_checkpoint_is_skipped_by_name(launch_ahead, stopped, tmp_path) -> None:
    for path in stopped.stem.parent.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    torn = tmp_path / "consensus.safetensors"
    torn.write_bytes(torn.read_bytes()[:-1])
    older = meta_of(tmp_path / "consensus.prev")["sync_round"]
    run = launch_ahead(*JOB, "--ranks", "3", "--resume", str(tmp_path / "consensus"))
    run.until_said("note", "goes on from")
    notes = run.texts("note")
    assert any("skipped" in text and "consensus.safetensors has" in text for text in notes)
    assert any(f"consensus.prev: version {older}," in text for text in notes)
    assert run.finish() == 0
    assert not run.texts("alert")  # the older files of ranks were found too


def test_a_run_that_differs_is_refused_before_its_window(launch_ahead, stopped) -> None:
    run = go_on(launch_ahead, stopped, "--ranks", "3", "--seed", "9", "--batch-size", "8")
    assert run.finish() == 2
    assert not run.texts("phase")
    for part in ("seed: 0 in the bundle, 9", "batch_size: 16 in the bundle, 8"):
        assert part in run.error["text"]
