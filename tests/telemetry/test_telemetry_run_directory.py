import contextlib
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

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


@pytest.mark.parametrize("word", ["night", ONE, f"night-{ONE}", ONE[:16]])
def test_a_run_that_is_named_exactly_goes_before_one_that_only_begins_so(tmp_path, word):
    one = RunDirectory.create(tmp_path, "night", ONE)
    two = RunDirectory.create(tmp_path, "night-2", TWO)
    age(one, 100)
    age(two, 50)
    assert find_run(tmp_path, name=word).run_id == ONE
    assert find_run(tmp_path, name="night-2").run_id == TWO
    one.close()
    if word == "night":
        with pytest.raises(NoLiveRunError, match=f"night-{ONE}, has ended"):
            find_run(tmp_path, name=word)
    two.close()


def test_a_name_is_compared_as_a_directory_has_it(tmp_path):
    with contextlib.closing(RunDirectory.create(tmp_path, "my run é!", ONE)) as run:
        assert run.path.name == f"my-run-{ONE}"
        assert find_run(tmp_path, name="my run é!").run_id == ONE
        assert find_run(tmp_path, name="my run").run_id == ONE


def test_a_word_that_names_several_live_runs_is_refused(tmp_path):
    runs = [RunDirectory.create(tmp_path, name, id_) for name, id_ in (("n1", ONE), ("n2", TWO))]
    with pytest.raises(ConfigError, match="2 live runs are named so") as caught:
        find_run(tmp_path, name="n")
    assert (caught.value.field, caught.value.value, caught.value.exit_code) == ("run", "n", 2)
    assert f"n1-{ONE}" in caught.value.fix
    assert f"n2-{TWO}" in caught.value.fix
    assert find_run(tmp_path) in runs
    runs[0].close()
    assert find_run(tmp_path, name="n").run_id == TWO
    runs[1].close()


def test_a_directory_that_may_not_be_looked_into_hides_no_other(tmp_path):
    """As another user's is, or one that is removed in the very moment."""
    run = RunDirectory.create(tmp_path, "mine", ONE)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone" / "live").mkdir(parents=True)
    (tmp_path / "gone" / "live").rmdir()
    (tmp_path / ("x" * 250) / ("y" * 250)).mkdir(parents=True)
    (tmp_path / "file").write_text("")
    assert [one.run_id for one in list_runs(tmp_path)] == [ONE]
    assert list_runs(tmp_path / "loop") == []
    run.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")
@pytest.mark.slow
@pytest.mark.processes
def test_another_users_runs_hide_none_of_ours():
    base = Path(tempfile.mkdtemp())
    base.chmod(0o777)
    code = (
        "import os, sys; from pathlib import Path; "
        "from flodl_core.telemetry.run_directory import RunDirectory as R, find_run, list_runs; "
        "name, id_, user = sys.argv[1:]; os.umask(0o077); "
        "os.setgroups([]); os.setgid(int(user)); os.setuid(int(user)); "
        "run = R.create(Path('.'), name, id_); "
        "print([run.path.name for run in list_runs(Path('.'))], find_run(Path('.')).name); "
        "print(list_runs(Path('theirs-' + 'a' * 16)))"
    )
    try:
        for user, name, letter in (("2000", "theirs", "a"), ("2001", "mine", "b")):
            words = [sys.executable, "-c", code, name, letter * 16, user]
            said = subprocess.run(
                words, cwd=base, capture_output=True, text=True, timeout=30, check=False
            )
        assert said.stdout == f"['mine-{'b' * 16}'] mine\n[]\n", said.stderr
    finally:
        shutil.rmtree(base)


def test_how_the_newest_run_ended_is_told_from_its_summary(tmp_path):
    run = RunDirectory.create(tmp_path, "charlm", ONE)
    run.write_summary(
        json.dumps({"exit_code": 1, "reason": "reduce_stall", "detail": "rank 1\nhangs"})
    )
    run.close()
    ended = r"charlm-00112233445566aa, has ended with exit code 1 \(reduce_stall: rank 1 hangs\)"
    with pytest.raises(NoLiveRunError, match=ended):
        find_run(tmp_path)
    for text in ("", "[]", "{"):
        run.summary_path.write_text(text)
        with pytest.raises(NoLiveRunError, match="has ended without a summary"):
            find_run(tmp_path)


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


def test_a_directory_whose_name_is_not_utf8_is_refused_by_name(tmp_path):
    base = tmp_path / os.fsdecode(b"caf\xe9")
    with pytest.raises(ConfigError, match="is not UTF-8") as caught:
        RunDirectory.create(base, "charlm", ONE)
    assert (caught.value.field, caught.value.exit_code) == ("run_dir", 2)
    assert str(caught.value).encode(), "the error itself can be printed"
    assert not base.exists()


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
