"""What is said and written of a child that could say nothing itself."""

import json
from pathlib import Path

import pytest

from flodl_core.checkpoint.death_record import DeathFacts, DeathKind, write_death_record
from flodl_core.ids import HostName, Rank
from flodl_core.messages.join import RankExited
from flodl_core.net.children import ExitStatus
from flodl_core.roles.death_watch import DeathRecorder, MemoryWatch, end_words

R = Rank(2)
KILLED = ExitStatus(code=-9, signal="SIGKILL")


def recorder(place: Path) -> DeathRecorder:
    """Of a host whose rank 2 of four has begun."""
    made = DeathRecorder(str(place / "model"), HostName("red"))
    made.begin(R, 4)
    return made


def record_of(place: Path) -> dict[str, object] | None:
    path = place / "model.rank2.death.json"
    found: dict[str, object] | None = json.loads(path.read_text()) if path.exists() else None
    return found


def end(
    place: Path, status: ExitStatus, *, out_of_memory: bool = False, evicted: str | None = None
) -> dict[str, object] | None:
    recorder(place).record(R, status, is_out_of_memory=out_of_memory, evicted_for=evicted)
    return record_of(place)


def test_a_rank_that_was_killed_is_recorded_with_the_signal(tmp_path: Path) -> None:
    record = end(tmp_path, ExitStatus(code=-11, signal="SIGSEGV"))
    assert record is not None
    assert (record["schema_version"], record["rank"], record["world_size"]) == (1, 2, 4)
    assert (record["host"], record["kind"], record["signal"]) == ("red", "signal", "SIGSEGV")
    assert record["error"] == "its process was ended by SIGSEGV"
    assert isinstance(record["unix_time_secs"], int)


def test_a_kill_for_want_of_memory_says_so(tmp_path: Path) -> None:
    record = end(tmp_path, KILLED, out_of_memory=True)
    assert record is not None
    assert record["kind"] == "out_of_memory"
    assert record["error"] == "out of memory: its process was ended by SIGKILL"


def test_an_evicted_rank_is_recorded_with_the_reason(tmp_path: Path) -> None:
    record = end(tmp_path, ExitStatus(code=-15, signal="SIGTERM"), evicted="by an operator")
    assert record is not None
    assert (record["kind"], record["error"]) == ("evicted", "evicted: by an operator")


def test_a_process_that_leaves_without_a_word_is_recorded_with_its_code(tmp_path: Path) -> None:
    record = end(tmp_path, ExitStatus(code=9, signal=None))
    assert record is not None
    assert (record["kind"], record["exit_code"]) == ("exit", 9)


@pytest.mark.parametrize("code", [0, 7])
def test_a_rank_that_left_well_or_with_its_run_is_no_death(tmp_path: Path, code: int) -> None:
    assert end(tmp_path, ExitStatus(code=code, signal=None)) is None


def test_what_a_rank_said_itself_is_not_written_over(tmp_path: Path) -> None:
    watch = recorder(tmp_path)
    death = DeathFacts(
        rank=2, world_size=4, host="red", kind=DeathKind.EXCEPTION, error="ValueError: no labels"
    )
    write_death_record(str(tmp_path / "model"), death, at="2026-01-01T00:00:00Z")
    watch.record(R, ExitStatus(code=1, signal=None), is_out_of_memory=False, evicted_for=None)
    record = record_of(tmp_path)
    assert record is not None
    assert record["error"] == "ValueError: no labels"
    assert record["unix_time_secs"] == 1_767_225_600


def test_what_an_earlier_run_left_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "model.rank2.death.json").write_text('{"error": "of another run"}')
    record = end(tmp_path, ExitStatus(code=1, signal=None))
    assert record is not None
    assert record["error"] == "its process ended with exit code 1"


def test_a_record_that_cannot_be_written_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    death = DeathFacts(rank=2, world_size=4, host="red", kind=DeathKind.EXIT, error="gone")
    at = "2026-01-01T00:00:00Z"
    assert write_death_record(str(tmp_path / "file" / "model"), death, at=at) is None
    assert write_death_record("", death, at=at) is None


def test_the_words_of_an_end_name_the_want_of_memory() -> None:
    assert end_words(RankExited(rank=2, code=-9, signal="SIGKILL")) == "SIGKILL"
    assert end_words(RankExited(rank=2, code=3)) == "exit code 3"
    told = RankExited(rank=2, code=-9, signal="SIGKILL", cause="out of memory")
    assert end_words(told) == "SIGKILL (out of memory)"


def machine(place: Path, cgroup: str, counters: dict[str, str]) -> Path:
    """A root of a file system with these control groups and counters."""
    files = {"proc/self/cgroup": cgroup, **counters}
    for name, text in files.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return place


GROUPS = {
    "unified": ("0::/job\n", "sys/fs/cgroup/job/memory.events", "oom 7\noom_kill {}\n"),
    "in a container": ("0::/../job\n", "sys/fs/cgroup/memory.events", "oom_kill {}\n"),
    "older": (
        "5:cpu,memory:/job\n0::/\n",
        "sys/fs/cgroup/memory/job/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n",
    ),
    "no groups": ("", "proc/vmstat", "pgfault 4\noom_kill {}\n"),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_a_count_that_rises_is_noticed_once(tmp_path: Path, kind: str) -> None:
    cgroup, name, text = GROUPS[kind]
    machine(tmp_path, cgroup, {name: text.format(3)})
    watch = MemoryWatch(tmp_path)
    assert not watch.take_kill(1.0)
    (tmp_path / name).write_text(text.format(4))
    assert watch.take_kill(1.0)
    assert not watch.take_kill(1.0)


def test_a_kill_elsewhere_on_the_machine_does_not_count_where_the_group_has_its_own(
    tmp_path: Path,
) -> None:
    cgroup, name, text = GROUPS["unified"]
    machine(tmp_path, cgroup, {name: text.format(0), "proc/vmstat": "oom_kill 0\n"})
    watch = MemoryWatch(tmp_path)
    (tmp_path / "proc/vmstat").write_text("oom_kill 1\n")
    assert not watch.take_kill(1.0)


@pytest.mark.parametrize(("later_s", "explains"), [(0.1, True), (29.0, True), (31.0, False)])
def test_a_kill_that_was_seen_waits_for_its_process_to_end(
    tmp_path: Path, later_s: float, explains: bool
) -> None:
    """The memory of a killed process is given back before its end is told."""
    cgroup, name, text = GROUPS["unified"]
    machine(tmp_path, cgroup, {name: text.format(0)})
    watch = MemoryWatch(tmp_path)
    (tmp_path / name).write_text(text.format(1))
    watch.look(100.0)
    assert watch.take_kill(100.0 + later_s) is explains


def test_two_kills_explain_two_ends(tmp_path: Path) -> None:
    cgroup, name, text = GROUPS["unified"]
    machine(tmp_path, cgroup, {name: text.format(0)})
    watch = MemoryWatch(tmp_path)
    (tmp_path / name).write_text(text.format(2))
    assert [watch.take_kill(1.0) for _ in range(3)] == [True, True, False]


def test_a_system_that_counts_nothing_never_says_so(tmp_path: Path) -> None:
    assert not MemoryWatch(tmp_path).take_kill(1.0)
