import json
import os
import resource
import stat
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.errors import ConfigError
from flodl_core.ids import RunId
from flodl_core.telemetry.run_directory import (
    NoLiveRunError,
    RunDirectory,
    find_run,
    list_runs,
    safe_name,
)

ONE = RunId("00112233445566aa")
TWO = RunId("00112233445566bb")


def age(run, seconds):
    at = 2_000_000_000 - seconds
    os.utime(run.path / "live", (at, at))


def test_a_run_has_a_directory_of_its_name_and_id(tmp_path):
    run = RunDirectory.create(tmp_path / "runs", "charlm", ONE)
    assert run.path == tmp_path / "runs" / "charlm-00112233445566aa"
    assert (run.name, run.run_id) == ("charlm", ONE)
    assert {path.name for path in run.path.iterdir()} == {"logs", "records", "checkpoints", "live"}
    run.close()


def test_the_token_is_readable_by_this_user_only(tmp_path):
    run = RunDirectory.create(tmp_path, "charlm", ONE)
    run.write_token("0f" * 16)
    assert stat.S_IMODE(run.token_path.stat().st_mode) == 0o600
    assert run.read_token() == "0f" * 16
    run.token_path.chmod(0o644)
    with pytest.raises(ConfigError, match="other users may read it"):
        run.read_token()
    run.close()


def test_no_token_reads_as_none(tmp_path):
    run = RunDirectory.create(tmp_path, "charlm", ONE)
    assert run.read_token() is None
    run.close()


def test_the_port_and_the_address_to_dial_read_back(tmp_path):
    run = RunDirectory.create(tmp_path, "charlm", ONE)
    assert run.read_port() is None
    assert run.read_address() is None
    run.write_port(40123)
    assert (run.read_port(), run.read_address()) == (40123, "127.0.0.1:40123")
    run.write_port(40124, address="[::1]:40124")
    assert (run.read_port(), run.read_address()) == (40124, "[::1]:40124")
    run.close()


def test_configuration_and_summary_are_written_whole(tmp_path):
    run = RunDirectory.create(tmp_path, "charlm", ONE)
    run.write_config({"epochs": 4, "run_dir": tmp_path})
    run.write_summary("{}")
    assert json.loads(run.config_path.read_text()) == {"epochs": 4, "run_dir": str(tmp_path)}
    assert run.summary_path.read_text() == "{}\n"
    assert not list(run.path.glob(".*"))
    run.close()


def test_logs_of_processes_have_files_of_their_own(tmp_path):
    run = RunDirectory.open(tmp_path, "charlm", ONE)
    assert run.log_path("rank3") == run.path / "logs" / "rank3.log"
    assert run.output_path("../../etc/x") == run.path / "logs" / "etc-x.out"


def test_a_run_is_live_until_it_is_closed(tmp_path):
    run = RunDirectory.create(tmp_path, "charlm", ONE)
    assert run.is_live()
    assert find_run(tmp_path) == run
    run.close()
    run.close()
    assert not run.is_live()


def test_a_directory_that_is_only_opened_is_not_live(tmp_path):
    RunDirectory.open(tmp_path, "charlm", ONE)
    with pytest.raises(NoLiveRunError):
        find_run(tmp_path)


def test_a_live_runs_directory_cannot_be_created_again(tmp_path):
    run = RunDirectory.create(tmp_path, "charlm", ONE)
    with pytest.raises(ConfigError, match="a live run holds it"):
        RunDirectory.create(tmp_path, "charlm", ONE)
    run.close()
    RunDirectory.create(tmp_path, "charlm", ONE).close()


def test_the_newest_live_run_is_found(tmp_path):
    older = RunDirectory.create(tmp_path, "charlm", ONE)
    newer = RunDirectory.create(tmp_path, "digits", TWO)
    age(older, 100)
    age(newer, 50)
    assert [run.run_id for run in list_runs(tmp_path)] == [TWO, ONE]
    assert find_run(tmp_path).run_id == TWO
    newer.close()
    assert find_run(tmp_path).run_id == ONE
    older.close()


def test_a_run_is_found_by_its_name_its_id_or_its_own_directory(tmp_path):
    one = RunDirectory.create(tmp_path, "char-lm", ONE)
    two = RunDirectory.create(tmp_path, "digits", TWO)
    age(one, 100)
    age(two, 50)
    assert find_run(tmp_path, name="char").run_id == ONE
    assert find_run(tmp_path, name="00112233445566a").run_id == ONE
    assert find_run(one.path).run_id == ONE
    assert find_run(one.path).name == "char-lm"
    one.close()
    two.close()


def test_no_live_run_names_the_newest_that_has_ended(tmp_path):
    RunDirectory.create(tmp_path, "charlm", ONE).close()
    with pytest.raises(NoLiveRunError, match="charlm-00112233445566aa, has ended"):
        find_run(tmp_path)
    with pytest.raises(NoLiveRunError, match="no live run named 'digits'"):
        find_run(tmp_path, name="digits")
    with pytest.raises(NoLiveRunError, match="Fix: give the run's address"):
        find_run(tmp_path / "missing")


def test_a_directory_that_cannot_be_made_is_a_configuration_error(tmp_path):
    (tmp_path / "runs").write_text("")
    with pytest.raises(ConfigError, match="run_dir"):
        RunDirectory.create(tmp_path / "runs", "charlm", ONE)


def test_a_file_that_the_disk_has_no_room_for_is_named_and_leaves_nothing_and_the_old_one(tmp_path):
    run = RunDirectory.create(tmp_path, "charlm", ONE)
    run.write_summary('{"whole": true}')
    before = sorted(run.path.iterdir())
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
    try:
        with pytest.raises(ConfigError, match=r"cannot write summary\.json there") as caught:
            run.write_summary("x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "make room" in caught.value.fix
    assert sorted(run.path.iterdir()) == before
    assert run.summary_path.read_text() == '{"whole": true}\n'
    run.close()


@settings(deadline=None)
@given(st.text(max_size=120))
def test_a_safe_name_is_one_part_of_a_path(text):
    name = safe_name(text)
    assert name
    assert len(name) <= 80
    assert not name.startswith(".")
    assert "/" not in name
    assert name.isascii()


@pytest.mark.slow
@pytest.mark.processes
def test_a_run_whose_launcher_was_killed_is_not_live(tmp_path):
    code = (
        "import sys; from pathlib import Path; "
        "from flodl_core.telemetry.run_directory import RunDirectory as R; "
        f"run = R.create(Path({str(tmp_path)!r}), 'charlm', {ONE!r}); print('up', flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout.readline() == b"up\n"
        assert find_run(tmp_path).run_id == ONE
        child.kill()
        child.wait(timeout=20)
    with pytest.raises(NoLiveRunError):
        find_run(tmp_path)
