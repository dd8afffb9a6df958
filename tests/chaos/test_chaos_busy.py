"""Silence that is work and silence that is none: a held interpreter, a stop, a return, a clock."""

import shutil
import signal
import subprocess
import time
from datetime import datetime
from pathlib import Path

import pytest
from aftermath import check_each_once
from chaos_world import EVERY_RANK, SAMPLES
from harness import SHORT_S
from process_table import look_until

pytestmark = [pytest.mark.processes, pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(150)]

CEILING_S = 4.0
BURN_S = 3 * CEILING_S
SLACK_S = 1.0
WORDS = ("--heartbeat-timeout-s", f"{CEILING_S:g}", "--heartbeat-interval-s", "0.5")
HERE = Path(__file__).parent


def states(world) -> dict[int, str]:
    return {row["rank"]: row["state"] for row in world.run.document.get("ranks") or ()}


def until_busy(world, rank: int) -> list[str]:
    """Wait until the run shows the rank busy and until when; returns the words of its waits."""

    def waits() -> list[str]:
        rows = world.run.document.get("waits") or ()
        return [row["phase"] for row in rows if row["rank"] == rank]

    world.run.until("the rank is busy", lambda: states(world).get(rank) == "busy", SHORT_S)
    return world.run.until("its wait is shown", waits, SHORT_S)


def test_a_rank_that_holds_the_interpreter_is_busy_and_stays(start) -> None:
    world = start(*WORDS, options={"burn_s": BURN_S})
    assert any("busy" in words for words in until_busy(world, 1))
    assert world.finish() == 0
    world.check_whole()
    world.check_survivors(EVERY_RANK)
    assert world.run.summary["alerts"] == {}


def test_the_same_rank_is_lost_at_the_ceiling_when_it_is_stopped_and_leaves_when_it_returns(
    start,
) -> None:
    passes = 60  # long enough for the victim's return to be a part of the run
    words = (*WORDS, "--epochs", str(passes))
    world = start(*words, options={"burn_s": BURN_S}, park="rank1:compute:6")
    until_busy(world, 1)
    world.until_parked("rank1", "compute")
    world.run.until("the rank answers", lambda: states(world)[1] != "busy", SHORT_S)
    victim = world.victim("rank1")
    at = world.strike(victim, signal.SIGSTOP)
    world.lost(1)
    assert CEILING_S - SLACK_S <= world.told_after(at, 1) <= CEILING_S + SLACK_S
    victim.send(signal.SIGCONT)
    world.go()
    world.ended([victim], SHORT_S)  # by its own will, or by force where it came back too late
    assert world.finish() == 0
    (world.marks / "rank1.digest").unlink()
    world.check_whole(passes)
    world.check_survivors((0, 2, 3))
    assert world.run.summary["alerts"] == {"rank_lost": 1}


def test_a_real_rank_that_holds_the_interpreter_is_busy_and_stays(start) -> None:
    job = str(HERE / "burning_job.py")
    world = start(*WORDS, real=True, job=job, joins=False, options={"burn_s": BURN_S})
    assert any("busy" in words for words in until_busy(world, 1))
    assert world.run.finish() == 0
    world.run.check_quiet()
    world.check_whole()
    assert world.run.summary["alerts"] == {}


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that moves the wall clock of a process an hour on once a file is there."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler, which builds the library that moves the clock")
    made = tmp_path_factory.mktemp("clock") / "libclock.so"
    source = str(HERE / "rig" / "moved_clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(made), source], check=True)
    return made


def test_a_wall_clock_that_jumps_an_hour_changes_nothing(start, clock: Path) -> None:
    world = start(*WORDS, park="rank3:compute:4", extra={"LD_PRELOAD": str(clock)})
    world.until_parked("rank3", "compute")
    (world.marks / "jump").touch()
    log = world.run.directory / "logs" / "launcher.log"

    def is_ahead() -> bool:
        newest = datetime.fromisoformat(log.read_text().splitlines()[-1].split()[0])
        return newest.timestamp() - time.time() > 3000

    assert world.run.flodl("checkpoint").code == 0
    assert look_until(is_ahead, SHORT_S)
    world.go()
    assert world.finish() == 0
    samples = world.run.directory / "samples.jsonl"
    check_each_once(samples, samples=SAMPLES, each_pass=SAMPLES, passes=2)
    world.check_survivors(EVERY_RANK)
    assert world.run.summary["alerts"] == {}
    assert world.run.summary["duration_s"] < 600
