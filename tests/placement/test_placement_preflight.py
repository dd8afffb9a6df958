"""Hosts judged by what they report: who can take part, why not, and what to do."""

import pytest

from flodl_core.config.workers import WorkerConfig
from flodl_core.placement.dialog import HostReport
from flodl_core.placement.preflight import (
    HostVerdict,
    LauncherFacts,
    complaint_lines,
    file_of,
    judge_host,
    table_rows,
)
from flodl_core.placement.roads import PlacedHost
from flodl_core.units import MIB

FACTS = LauncherFacts(flodl="1", torch="2.6.0+cu124", job_sha256="aa")


def report(**given):
    facts = {
        "host": "blue",
        "machine": "blue.lan",
        "flodl": "1",
        "python": "3.11.7",
        "torch": "2.6.0+cu124",
        "devices": ("cuda:0", "cuda:1"),
        "gpus": ("H200", "H200"),
        "driver": "560",
        "memory_free_bytes": 2**34,
        "disk_free_bytes": 2**34,
        "job_sha256": "aa",
        "utc_s": 1.9e9,
    }
    return HostReport(**{**facts, **given})


def judge(given=None, *, skew_s=0.0, facts=FACTS, **worker):
    host = PlacedHost(label="blue", worker=WorkerConfig(host="blue", **worker))
    return judge_host(host, report(**(given or {})), facts, skew_s=skew_s)


def test_a_fit_host_brings_a_rank_for_each_of_its_devices():
    verdict = judge()
    assert verdict.is_fit
    assert verdict.devices == ("cuda:0", "cuda:1")
    assert judge(devices="cuda:1").devices == ("cuda:1",)
    assert judge(devices="cpu", ranks=3).devices == ("cpu:0", "cpu:1", "cpu:2")
    assert not verdict.warnings


@pytest.mark.parametrize(
    ("given", "problem", "fix"),
    [
        ({"complaints": ("it cannot reach the launcher: no answer",)}, "cannot reach", "mend"),
        ({"flodl": "2"}, "it has flodl 2, the launcher 1", "same flodl version"),
        ({"job_sha256": None}, "the job's file is not there", "copy it there"),
        ({"disk_free_bytes": 5 * MIB}, "its disk has 5 MiB left", "free 256 MiB"),
        ({"devices": ("cpu:0",)}, "this machine has no GPU", "devices"),
    ],
)
def test_an_unfit_host_is_refused_with_the_reason_and_the_fix(given, problem, fix):
    verdict = judge(given, devices="cuda:0" if "devices" in given else "all")
    assert not verdict.is_fit
    assert problem in verdict.problem
    assert fix in verdict.fix
    assert not verdict.devices


def test_a_host_that_has_the_job_as_a_module_needs_no_copy_of_the_launchers_file():
    bare = {"job_sha256": None}
    assert judge(bare, job="package.train:job").is_fit
    for job in ("train.py", "train.py:job", None):
        assert "file is not there" in judge(bare, job=job).problem
    found = [
        file_of(job) for job in ("a/train.py", "train.py:model", "package.train:job", "charlm")
    ]
    assert found == ["a/train.py", "train.py", None, None]


def test_what_may_mislead_is_only_a_warning():
    verdict = judge({"job_sha256": "bb", "torch": "2.5.0"}, skew_s=-61.0)
    assert verdict.is_fit
    assert len(verdict.warnings) == 3
    assert verdict.warnings[-1] == "its clock is 61 s behind the launcher's"
    recipe = LauncherFacts(flodl="1", torch="2.6.0+cu124", job_sha256=None)
    assert not judge({"job_sha256": None}, facts=recipe).warnings


def test_the_table_has_a_row_for_each_host_also_for_those_that_said_nothing():
    silent = HostVerdict(host="red", report=None, problem="ssh ended", fix="try ssh red")
    rows = table_rows([judge(), silent])
    assert [row[0] for row in rows] == ["host", "blue", "red"]
    assert len({len(row) for row in rows}) == 1
    assert rows[1][1] == "ready"
    assert rows[2][1] == "cannot join"
    assert complaint_lines([judge(skew_s=9.0), silent]) == [
        "red: ssh ended; try ssh red",
        "blue: its clock is 9 s ahead of the launcher's",
    ]
