"""The examples of the page on several machines, as whoever copies them meets them."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flodl_core.config.load import load_run
from flodl_core.config.workers import PlacementKind
from flodl_core.ids import ExitCode

PAGE = Path(__file__).resolve().parents[2] / "docs" / "placement.md"


def block(kind: str) -> str:
    """The page's only example of a kind."""
    (text,) = re.findall(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    return text


def test_the_settings_file_of_the_page_is_taken_as_it_stands(tmp_path):
    (tmp_path / "flodl.toml").write_text(block("toml"))
    loaded = load_run({}, environ={}, directory=tmp_path)
    blue, green = (worker for worker, _ in loaded.workers)
    assert loaded.run.placement is PlacementKind.SSH
    assert (blue.destination, blue.job, blue.data) == (
        "me@blue.lan",
        "train.py:job",
        "/data/images",
    )
    assert (green.destination, green.devices, green.micro_batch) == ("green", ("cuda:0",), 8)
    assert green.env == {"OMP_NUM_THREADS": "4"}


def test_a_host_that_systemd_stops_has_not_failed():
    assert f"SuccessExitStatus={ExitCode.JOIN_RUN_LOST}\n" in block("ini")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="not installed: systemd")
def test_the_unit_of_the_page_is_one_that_systemd_takes(tmp_path):
    text = block("ini")
    for theirs, ours in (
        ("User=train\n", ""),
        ("WorkingDirectory=/srv/train\n", f"WorkingDirectory={tmp_path}\n"),
        ("ExecStart=/srv/train/venv/bin/flodl", f"ExecStart={sys.executable}"),
    ):
        assert text.count(theirs) == 1, theirs
        text = text.replace(theirs, ours)
    unit = tmp_path / "flodl.service"
    unit.write_text(text)
    said = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert "flodl.service" not in said.stderr, said.stderr
