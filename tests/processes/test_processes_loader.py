"""Runs whose samples are read by loader workers: the same model, and nothing left of them."""

import signal
from pathlib import Path

import process_table as table
import pytest
import torch
from aftermath import check_each_once, logged
from process_table import Process
from safetensors.torch import load_file

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(400)]

JOB = f"{Path(__file__).resolve().parents[1] / 'training' / 'chancy_job.py'}:job"
WORDS = (JOB, "--epochs", "2", "--seed", "5", "--sample-log", "auto")


def loader_processes(run) -> list[Process]:
    """The loader's server and workers of every rank."""
    return [
        Process(one.pid, "loader")
        for one in table.find_processes(run.mark)
        if b"loader_server" in Path(f"/proc/{one.pid}/cmdline").read_bytes()
    ]


def test_a_run_ends_with_the_same_bits_whatever_number_of_workers_reads(launch) -> None:
    """Samples, collate and step draw from every generator; two hosts of one rank each."""
    ends = []
    for workers in ("0", "1", "3"):
        run = launch(*WORDS, "--hosts", "2", "--ranks-per-host", "1", "--loader-workers", workers)
        assert run.finish() == 0
        run.check_quiet()
        check_each_once(run.directory / "samples.jsonl", samples=64, each_pass=64, passes=2)
        ends.append(load_file(f"{run.stem}.safetensors"))
    for end in ends[1:]:
        assert end.keys() == ends[0].keys()
        assert all(torch.equal(end[name], ends[0][name]) for name in end)


def test_a_killed_loader_worker_is_replaced_and_a_killed_rank_takes_its_workers_along(
    launch,
) -> None:
    run = launch(
        "synthetic", "--ranks", "2", "--loader-workers", "1",
        "--job-arg", "samples=20000", "--epochs", "1", "--step-ms", "20,20",
    )  # fmt: skip
    run.until_trained(64)
    workers = [one for one in loader_processes(run) if parent_is_loader(one)]
    assert len(workers) == 2
    workers[0].send(signal.SIGKILL)
    at = run.until_trained(64)
    run.until_trained(at + 320)
    assert sum(len(logged(run.directory, f"rank{r}", "loader_worker_died")) for r in (0, 1)) == 1
    of_rank_1 = [one for one in loader_processes(run) if b"rank1" in command(one)]
    assert len(of_rank_1) == 2
    run.kill("rank1")
    assert not table.await_ends(of_rank_1, 10)
    run.until_lost(1)
    run.signal(signal.SIGTERM)
    assert run.finish() == 4
    run.check_quiet()


def command(process: Process) -> bytes:
    """The words of a process."""
    return Path(f"/proc/{process.pid}/cmdline").read_bytes()


def parent_is_loader(process: Process) -> bool:
    """Whether it was forked from a loader's server."""
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    parent = int(stat.rpartition(")")[2].split()[1])
    return b"loader_server" in Path(f"/proc/{parent}/cmdline").read_bytes()
