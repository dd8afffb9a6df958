"""What a chatty child prints stays bounded, and its newest lines stay readable."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.roles.output_file import DROPPED, LIMIT_BYTES, shorten_output
from flodl_core.units import MIB


def test_a_file_within_its_limit_is_left_alone(tmp_path):
    path = tmp_path / "rank0.out"
    path.write_bytes(b"x" * 100)
    assert not shorten_output(path, limit_bytes=100)
    assert path.read_bytes() == b"x" * 100
    assert not shorten_output(tmp_path / "gone.out")


def test_the_limit_is_sixteen_mebibytes():
    assert LIMIT_BYTES == 16 * MIB


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=30).map(lambda line: line.replace(b"\n", b"")), max_size=60))
def test_the_newest_lines_stay_whole(tmp_path_factory, lines):
    path = tmp_path_factory.mktemp("out") / "rank0.out"
    text = b"".join(line + b"\n" for line in lines)
    path.write_bytes(text)
    dropped = shorten_output(path, limit_bytes=200)
    kept = path.read_bytes()
    assert dropped == (len(text) > 200)
    if dropped:
        assert len(kept) <= 100 + len(DROPPED)
        newest = kept.removeprefix(DROPPED)
        assert text.endswith(newest)
        assert text[: len(text) - len(newest)].endswith(b"\n"), "a line begins there"
        assert len(newest) >= 100 - 31
    else:
        assert kept == text


def test_a_single_endless_line_keeps_its_end(tmp_path):
    path = tmp_path / "rank0.out"
    path.write_bytes(b"a" * 500 + b"b" * 50)
    assert shorten_output(path, limit_bytes=100)
    assert path.read_bytes() == DROPPED + b"b" * 50


@pytest.mark.processes
def test_a_child_that_holds_the_file_open_writes_on_at_its_new_end(tmp_path):
    path = tmp_path / "rank0.out"
    code = (
        "import sys\n"
        "print('old line\\n' * 100, flush=True)\n"
        "sys.stdin.readline()\n"
        "print('new line', flush=True)\n"
    )
    with (
        path.open("ab") as output,
        subprocess.Popen(
            [sys.executable, "-u", "-c", code], stdin=subprocess.PIPE, stdout=output, bufsize=0
        ) as child,
    ):
        while path.stat().st_size < 900:
            assert child.poll() is None
        assert shorten_output(path, limit_bytes=100)
        child.stdin.write(b"\n")
        child.wait(20)
    text = path.read_bytes()
    assert text.startswith(DROPPED + b"old line\n")
    assert text.endswith(b"old line\n\nnew line\n")
    assert b"\0" not in text
    assert len(text) < 200
