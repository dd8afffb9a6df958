"""The named scenarios of the demo.

What it is: a script for each name, for any number of ranks.
What it is not: the numbers that follow from a script.
Who drives it: the demo feed, tests, screenshots: `open_scenario("late").document_at(139)`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from flodl_console.demo.cohort import Cohort, make_cohort
from flodl_console.demo.night import night_faults
from flodl_console.demo.recording import DemoRun
from flodl_console.demo.schedule import Schedule
from flodl_console.demo.script import (
    BATCH_SAMPLES,
    STALL_CEILING_S,
    Ending,
    Fault,
    Loss,
    NonFinite,
    Refusal,
    Save,
    Script,
    Silence,
    Slow,
    Stall,
    StopAsked,
)
from flodl_core.errors import ConfigError
from flodl_core.ids import ExitCode, StartMode
from flodl_core.units import Seconds

DEFAULT_SCENARIO: Final = "night"
DEFAULT_RANKS: Final = 4
MAX_RANKS: Final = 4096
TRAINED_FROM_S: Final = 12.0
NEVER_S: Final = 1e9
NIGHT_S: Final = 8 * 3600.0

REFUSALS: Final = (
    Refusal(
        at_s=9.0,
        host="gray",
        address="10.0.0.31",
        reason="dataset signature mismatch: the run has 60000 samples, this host 50000",
        fix="give this host the run's data, in the same order, and the same dataset_version",
    ),
    Refusal(
        at_s=21.5,
        host="red",
        address="10.0.0.32",
        reason="a host named 'red' already joined from 127.0.0.1",
        fix="give this host another name with --host, or end the agent that has it",
    ),
    Refusal(
        at_s=33.0,
        host="white",
        address="10.0.0.33",
        reason="model mismatch: the run has '3f9c1a20', this host '77b0e4d1'; first difference: "
        "the run has 'param|head.weight|f32|(10, 256)', this host "
        "'param|head.weight|f32|(10, 128)'",
        fix="build the same model on this host: the same code, arguments and versions",
    ),
)


def open_scenario(name: str, *, seed: int = 0, ranks: int = DEFAULT_RANKS) -> DemoRun:
    """Return a scenario's whole course; the same arguments give the same course.

    Args:
        name: one of SCENARIOS.
        seed: varies speeds, noise and durations.
        ranks: 0 … MAX_RANKS; with none, nobody ever joins.

    Raises:
        ConfigError: there is no such scenario, or the number is out of range.
    """
    check_scenario(name, ranks)
    return DemoRun(SCENARIOS[name](name, seed, ranks) if ranks else _empty(name, seed, ranks))


def check_scenario(name: str, ranks: int) -> None:
    """Refuse what `open_scenario` cannot make.

    Raises:
        ConfigError: there is no such scenario, or the number is out of range.
    """
    if name not in SCENARIOS:
        raise ConfigError(
            "demo",
            name,
            "there is no such scenario",
            source="command line",
            fix=f"give one of {', '.join(SCENARIOS)}",
        )
    if not 0 <= ranks <= MAX_RANKS:
        raise ConfigError(
            "demo_ranks",
            ranks,
            "the number of ranks is out of range",
            source="command line",
            fix=f"give 0 to {MAX_RANKS}",
        )


def _gathering(name: str, seed: int, ranks: int) -> Script:
    """Three hosts, of which the first is in; the operator starts the run."""
    cohort = make_cohort(ranks, seed=seed, fewest_hosts=3)
    return Script(
        name=name,
        seed=seed,
        cohort=cohort,
        length_s=240.0,
        begin_s=40.0,
        showcase_s=47.0,
        start_mode=StartMode.MANUAL,
        min_rank_start=max(2, len(cohort.ranks) - len(cohort.hosts[-1].ranks)),
        target_ranks=None,
        joins_s=(0.4, *[NEVER_S] * (len(cohort.hosts) - 1)),
    )


def _staging(name: str, seed: int, ranks: int) -> Script:
    script = _gathering(name, seed, ranks)
    hosts = len(script.cohort.hosts)
    joins_s = tuple(0.4 + 11.3 * index for index in range(hosts - 1))
    all_s = joins_s[-1] if joins_s else 0.0
    return replace(
        script,
        joins_s=(*joins_s, NEVER_S) if joins_s else (0.4,),
        begin_s=all_s + 20.0,
        showcase_s=all_s + 50.0,
        length_s=all_s + 240.0,
        window_s=all_s + 300.0,
        cap_s=86_400.0,
    )


def _refused(name: str, seed: int, ranks: int) -> Script:
    return replace(_gathering(name, seed, ranks), refusals=REFUSALS)


def _empty(name: str, seed: int, ranks: int) -> Script:
    """Nobody has joined."""
    return Script(
        name=name,
        seed=seed,
        cohort=make_cohort(ranks and 0, seed=seed),
        length_s=240.0,
        begin_s=20.0,
        showcase_s=30.0,
        min_rank_start=2,
        target_ranks=None,
        joins_s=(),
    )


def _training(name: str, seed: int, ranks: int) -> Script:
    return _trained(name, make_cohort(ranks, seed=seed), seed=seed)


def _trained(
    name: str,
    cohort: Cohort,
    *,
    seed: int,
    trained_from_s: Seconds = TRAINED_FROM_S,
    length_s: Seconds = 1800.0,
    faults: tuple[Fault, ...] = (),
) -> Script:
    """A run in which every host joins soon and training begins."""
    is_solo = len(cohort.ranks) == 1
    spacing_s = (trained_from_s - 4.0) / max(2, len(cohort.hosts))
    return Script(
        name=name,
        seed=seed,
        cohort=cohort,
        length_s=length_s,
        begin_s=600.0,
        showcase_s=612.3,
        min_rank_start=1 if is_solo else len(cohort.ranks),
        target_ranks=None if is_solo else len(cohort.ranks),
        joins_s=tuple(0.4 + spacing_s * index for index in range(len(cohort.hosts))),
        trained_from_s=trained_from_s,
        faults=faults,
    )


def _late(name: str, seed: int, ranks: int) -> Script:
    slow = Slow(
        rank=min(1, ranks - 1), from_s=120.0, until_s=400.0, factor=10.0, noticed_after_s=40.0
    )
    script = replace(_training(name, seed, ranks), faults=(slow,))
    return replace(script, length_s=480.0, begin_s=110.0, showcase_s=139.0)


def _stalled(name: str, seed: int, ranks: int) -> Script:
    rank = min(2, ranks - 1)
    script = replace(_training(name, seed, ranks), faults=(Stall(rank=rank, from_s=60.0),))
    window = Schedule(replace(script, length_s=70.0)).open_window
    assert window is not None
    end_s = window.computed_s + STALL_CEILING_S
    detail = f"cycle {window.cycle} is reducing; not acknowledged by ranks: {rank}"
    return replace(
        script,
        length_s=end_s + 30.0,
        begin_s=end_s - 25.0,
        showcase_s=end_s - 18.6,
        trained_until_s=end_s,
        ending=Ending(at_s=end_s, exit_code=ExitCode.FAILED, reason="reduce_stall", detail=detail),
    )


def _lost(name: str, seed: int, ranks: int) -> Script:
    faults: tuple[Fault, ...] = ()
    if ranks > 1:
        faults = (
            Loss(rank=1, at_s=80.0, signal="SIGKILL"),
            Silence(host=1, from_s=150.0),
        )
    script = replace(_training(name, seed, ranks), faults=faults)
    return replace(script, length_s=420.0, begin_s=70.0, showcase_s=171.0)


def _nonfinite(name: str, seed: int, ranks: int) -> Script:
    rank = min(2, ranks - 1)
    faults = tuple(NonFinite(rank=rank, at_s=at_s) for at_s in (100.0, 104.0, 131.0))
    script = replace(_training(name, seed, ranks), faults=faults)
    return replace(script, length_s=240.0, begin_s=90.0, showcase_s=110.0)


def _saving(name: str, seed: int, ranks: int) -> Script:
    faults = (
        Save(from_s=60.0, until_s=62.4),
        Save(from_s=100.0, until_s=118.0, who="operator at 127.0.0.1"),
    )
    script = replace(_training(name, seed, ranks), faults=faults)
    return replace(script, length_s=240.0, begin_s=92.0, showcase_s=109.0)


def _stopping(name: str, seed: int, ranks: int) -> Script:
    script = replace(
        _training(name, seed, ranks),
        faults=(Save(from_s=203.0, until_s=213.0),),
        stop=StopAsked(at_s=200.0, who="operator at 127.0.0.1"),
        trained_until_s=203.0,
        ending=Ending(
            at_s=215.0,
            exit_code=ExitCode.STOPPED_SAVED,
            reason="stopped",
            detail="stopped by operator at 127.0.0.1 and saved",
        ),
    )
    return replace(script, length_s=240.0, begin_s=190.0, showcase_s=208.0)


def _done(name: str, seed: int, ranks: int) -> Script:
    script = _finished(_training(name, seed, ranks), trained_until_s=600.0)
    return replace(script, begin_s=585.0, showcase_s=612.0)


def _finished(script: Script, *, trained_until_s: Seconds) -> Script:
    """Return a script that ends with every sample trained."""
    script = replace(script, trained_until_s=trained_until_s, done_fraction=1.0)
    schedule = Schedule(script)
    detail = (
        f"{schedule.batches * BATCH_SAMPLES} samples trained, 0 dropped, "
        f"syncs: {len(schedule.windows)}"
    )
    ending = Ending(
        at_s=trained_until_s + 6.0, exit_code=ExitCode.DONE, reason="finished", detail=detail
    )
    last = Save(from_s=trained_until_s + 0.5, until_s=trained_until_s + 4.5)
    return replace(
        script,
        length_s=trained_until_s + 60.0,
        faults=(*script.faults, last),
        ending=ending,
    )


def _failed(name: str, seed: int, ranks: int) -> Script:
    rank = min(1, ranks - 1)
    script = _training(name, seed, ranks)
    lost = f"{script.cohort.where(rank)} was lost: its process ended with SIGKILL"
    script = replace(
        script,
        faults=(Loss(rank=rank, at_s=150.0, signal="SIGKILL"),),
        trained_until_s=150.0,
        ending=Ending(
            at_s=152.0,
            exit_code=ExitCode.FAILED,
            reason="max_failure_exceeded",
            detail=f"1 of {ranks} ranks is lost, at most 0 may be; first cause: {lost}",
        ),
    )
    return replace(script, length_s=240.0, begin_s=140.0, showcase_s=160.0)


def _night(name: str, seed: int, ranks: int) -> Script:
    cohort = make_cohort(ranks, seed=seed)
    script = _trained(
        name, cohort, seed=seed, trained_from_s=45.0, length_s=NIGHT_S, faults=night_faults(cohort)
    )
    script = replace(script, refusals=REFUSALS[:2], epochs=24)
    script = _finished(script, trained_until_s=NIGHT_S - 300.0)
    return replace(script, length_s=NIGHT_S, begin_s=0.0, showcase_s=18_030.0)


SCENARIOS: Final[dict[str, Callable[[str, int, int], Script]]] = {
    "waiting": _gathering,
    "staging": _staging,
    "refused": _refused,
    "training": _training,
    "late": _late,
    "stalled": _stalled,
    "lost": _lost,
    "nonfinite": _nonfinite,
    "saving": _saving,
    "stopping": _stopping,
    "done": _done,
    "failed": _failed,
    "empty": _empty,
    "night": _night,
}
"""What makes each script, of name, seed and number of ranks."""
