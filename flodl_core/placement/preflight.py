"""What hosts found out about themselves, judged before anybody waits: one table, and why not.

What it is: rules on reports, each with its reason and its fix, and the rows of the table.
What it is not: the way to the hosts (`session`), or what a host finds out (`flodl_core.probe`).
Who drives it: `placed_hosts`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flodl_core.config.agent_schema import AgentConfig
from flodl_core.config.placement import place_agent
from flodl_core.errors import ConfigError
from flodl_core.placement.dialog import HostReport
from flodl_core.placement.roads import PlacedHost
from flodl_core.telemetry.quantities import show_bytes
from flodl_core.units import MIB, Seconds

SKEW_S: Final = 5.0
"""Of two clocks, from which logs and records no longer tell what came first."""
LEAST_DISK_BYTES: Final = 256 * MIB
COLUMNS: Final = ("host", "verdict", "flodl", "torch", "devices", "memory", "disk", "clock")


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherFacts:
    """What the launcher compares hosts with."""

    flodl: str
    torch: str
    job_sha256: str | None
    """Of the job's file; None where the job is no file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostVerdict:
    """One host, judged."""

    host: str
    report: HostReport | None
    """None where none came."""
    devices: tuple[str, ...] = ()
    """One a rank; empty where the host cannot take part."""
    skew_s: Seconds = 0.0
    """Its clock minus ours, as well as the way lets it be measured."""
    problem: str = ""
    """Why it cannot take part, one clause; empty if it can."""
    fix: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def is_fit(self) -> bool:
        """Whether the host can take part."""
        return not self.problem


def judge_host(
    host: PlacedHost, report: HostReport, facts: LauncherFacts, *, skew_s: Seconds
) -> HostVerdict:
    """Return whether a host can take part, by the first rule that fails.

    Args:
        host: as configured.
        report: of the host.
        facts: of the launcher.
        skew_s: the host's clock minus ours.
    """
    is_file = host.worker.job is None or file_of(host.worker.job) is not None
    problem, fix = _first_problem(report, facts, is_file=is_file)
    devices: tuple[str, ...] = ()
    if not problem:
        wanted = AgentConfig(devices=host.worker.devices, ranks=host.worker.ranks)
        try:
            devices = place_agent(wanted, report.devices, source=f"worker {host.label}")
        except ConfigError as error:
            problem, fix = error.reason, error.fix
    return HostVerdict(
        host=host.label,
        report=report,
        devices=devices,
        skew_s=skew_s,
        problem=problem,
        fix=fix,
        warnings=_warnings(report, facts, skew_s=skew_s),
    )


def table_rows(verdicts: Sequence[HostVerdict]) -> list[tuple[str, ...]]:
    """Return the table, its heading first."""
    rows: list[tuple[str, ...]] = [COLUMNS]
    for one in verdicts:
        report = one.report
        verdict = "ready" if one.is_fit else "cannot join"
        if report is None:
            rows.append((one.host, verdict, *("-",) * (len(COLUMNS) - 2)))
            continue
        rows.append(
            (
                one.host,
                verdict,
                report.flodl,
                report.torch or "-",
                ",".join(one.devices or report.devices) or "-",
                show_bytes(report.memory_free_bytes),
                show_bytes(report.disk_free_bytes),
                f"{one.skew_s:+.1f} s",
            )
        )
    return rows


def complaint_lines(verdicts: Sequence[HostVerdict]) -> list[str]:
    """Return what is to be said of each host, problems first."""
    lines = [f"{one.host}: {one.problem}; {one.fix}" for one in verdicts if not one.is_fit]
    return lines + [f"{one.host}: {said}" for one in verdicts for said in one.warnings]


def file_of(job: str) -> str | None:
    """Return the file that a job's name means on its host; None where it is a module there."""
    path = job.rpartition(":")[0] if ":" in job else job
    return path if path.endswith(".py") else None


def _first_problem(report: HostReport, facts: LauncherFacts, *, is_file: bool) -> tuple[str, str]:
    """Return why a host cannot take part, and what to do; two empty texts if it can."""
    if report.complaints:
        return report.complaints[0], "mend that on the host, and launch again"
    if report.flodl != facts.flodl:
        return (
            f"it has flodl {report.flodl}, the launcher {facts.flodl}",
            "install the same flodl version on every host",
        )
    if is_file and facts.job_sha256 is not None and report.job_sha256 is None:
        return (
            "the job's file is not there, and nobody fetches code",
            "copy it there, and give job and directory in [[workers]]",
        )
    if report.disk_free_bytes is not None and report.disk_free_bytes < LEAST_DISK_BYTES:
        return (
            f"its disk has {show_bytes(report.disk_free_bytes)} left",
            f"free {show_bytes(LEAST_DISK_BYTES)} for logs and checkpoints there",
        )
    return "", ""


def _warnings(report: HostReport, facts: LauncherFacts, *, skew_s: Seconds) -> tuple[str, ...]:
    said = []
    if facts.job_sha256 is not None and report.job_sha256 not in (None, facts.job_sha256):
        said.append("its copy of the job's file is another one than the launcher's")
    if report.torch is not None and report.torch != facts.torch:
        said.append(f"it has torch {report.torch}, the launcher {facts.torch}")
    if abs(skew_s) > SKEW_S:
        where = "ahead of" if skew_s > 0 else "behind"
        said.append(f"its clock is {abs(skew_s):.0f} s {where} the launcher's")
    return tuple(said)
