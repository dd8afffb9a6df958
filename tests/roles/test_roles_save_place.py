"""The hold of a run on the place that it saves to, and what ends it."""

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from flodl_core.errors import ConfigError
from flodl_core.roles.save_place import LOCK_SUFFIX, SaveHold, place_of

HOLDER = "run night-0123456789abcdef, process 7 on red"


def hold(said=None, holder=HOLDER):
    return SaveHold(holder, (said if said is not None else []).append)


@pytest.mark.anyio
async def test_a_place_is_one_runs_until_that_lets_go(tmp_path):
    stem = tmp_path / "out" / "model"
    one, two = hold(), hold(holder="run other")
    one.take(stem, source="flag --save-path")
    one.take(stem, source="flag --save-path")
    with pytest.raises(ConfigError, match="another live run saves there") as caught:
        two.take(stem, source="flag --save-path")
    error = caught.value
    assert (error.field, error.value, error.exit_code) == ("save_path", str(stem), 2)
    assert HOLDER in error.reason
    assert error.source == "flag --save-path"
    assert "--save-path" in error.fix
    two.take(stem.with_name("other"), source="default")
    await one.release()
    await one.release()
    two.take(stem, source="default")
    await two.release()
    assert list(stem.parent.iterdir()) == [], "nothing is left beside the checkpoints"


def test_what_a_killed_run_left_is_taken_over(tmp_path):
    stem = tmp_path / "model"
    code = (
        "import sys; from pathlib import Path; "
        "from flodl_core.roles.save_place import SaveHold; "
        f"SaveHold({HOLDER!r}, print).take(Path({str(stem)!r}), source='default'); "
        "print('up', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", code]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"up\n"
        mine = hold(holder="run mine")
        with pytest.raises(ConfigError, match="process 7 on red"):
            mine.take(stem, source="default")
        child.send_signal(signal.SIGKILL)
        child.wait(timeout=20)
    assert stem.with_name(f"model{LOCK_SUFFIX}").exists()
    mine.take(stem, source="default")
    assert stem.with_name(f"model{LOCK_SUFFIX}").read_text() == "run mine\n"
    anyio.run(mine.release)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.anyio
async def test_a_place_that_takes_no_lock_is_noted_and_used(tmp_path):
    said: list[str] = []

    def lock(_descriptor, _operation):
        raise OSError(errno.ENOLCK, "No locks available")

    mine = SaveHold(HOLDER, said.append, lock=lock)
    mine.take(tmp_path / "model", source="default")
    (note,) = said
    assert note.startswith(f"warning: {tmp_path} takes no locks (No locks available)")
    await mine.release()


@pytest.mark.anyio
async def test_a_place_that_cannot_be_written_is_left_to_the_trial(tmp_path):
    said: list[str] = []
    mine = hold(said)
    (tmp_path / f"model{LOCK_SUFFIX}").symlink_to("elsewhere")
    mine.take(tmp_path / "model", source="default")
    (tmp_path / "deep").write_text("a file where a directory should be")
    mine.take(tmp_path / "deep" / "model", source="default")
    assert not (tmp_path / "elsewhere").exists(), "a link is never followed"
    await mine.release()
    assert said == []


@pytest.mark.anyio
async def test_a_long_story_of_a_holder_is_cut(tmp_path):
    one = hold(holder="x" * 5000)
    one.take(tmp_path / "model", source="default")
    with pytest.raises(ConfigError) as caught:
        hold().take(tmp_path / "model", source="default")
    assert len(caught.value.reason) < 500
    await one.release()


@pytest.mark.anyio
async def test_no_descriptor_is_kept(tmp_path):
    before = sorted(os.listdir("/proc/self/fd"))  # noqa: PTH208
    mine, other = hold(), hold()
    mine.take(tmp_path / "model", source="default")
    with contextlib.suppress(ConfigError):
        other.take(tmp_path / "model", source="default")
    await mine.release()
    assert sorted(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_a_save_path_that_is_a_directory_takes_the_bundle_inside(tmp_path):
    assert place_of(None) is None
    assert place_of(str(tmp_path)) == tmp_path / "consensus"
    assert place_of(f"{tmp_path}/new/") == tmp_path / "new" / "consensus"
    assert place_of(f"{tmp_path}/model.safetensors") == tmp_path / "model"


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.mark.anyio
async def test_where_only_files_for_writing_take_locks_the_place_is_held_all_the_same(tmp_path):
    def as_nfs_does(descriptor, operation):
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        fcntl.flock(descriptor, operation)

    said = []
    one = SaveHold(HOLDER, said.append, lock=as_nfs_does)
    two = SaveHold("run other", said.append, lock=as_nfs_does)
    one.take(tmp_path / "model", source="default")
    with pytest.raises(ConfigError, match="another live run saves there"):
        two.take(tmp_path / "model", source="default")
    assert said == []
    await one.release()


def test_nothing_is_open_for_writing_so_that_the_disk_can_be_made_read_only(tmp_path):
    one = hold()
    one.take(tmp_path / "model", source="default")
    path = tmp_path / f"model{LOCK_SUFFIX}"
    flags = [
        fcntl.fcntl(int(entry.name), fcntl.F_GETFL) & os.O_ACCMODE
        for entry in Path("/proc/self/fd").iterdir()
        if os.path.realpath(entry) == str(path.resolve())
    ]
    assert flags == [os.O_RDONLY]
    assert path.read_text() == f"{HOLDER}\n"
    anyio.run(one.release)
