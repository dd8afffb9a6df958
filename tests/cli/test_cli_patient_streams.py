"""A reader who takes nothing: who prints goes on, in order, and the end has a ceiling."""

import contextlib
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from flodl_core.cli.patient_streams import BEHIND_BYTES, PatientStreams

PIPE_BYTES = 4096


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read_end, write_end = os.pipe()
    fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    yield read_end, write_end
    for end in (read_end, write_end):
        with contextlib.suppress(OSError):
            os.close(end)


def read(descriptor: int, nbytes: int) -> bytes:
    got = b""
    while len(got) < nbytes:
        got += os.read(descriptor, nbytes - len(got))
    return got


def test_who_prints_goes_on_though_nobody_reads_and_all_arrives_in_order(pipe) -> None:
    read_end, write_end = pipe
    streams = PatientStreams()
    lines = [f"{number:07d}\n".encode() for number in range(20_000)]
    for line in lines:
        streams.put(write_end, line)
    assert streams.is_behind()
    assert read(read_end, 8 * 20_000) == b"".join(lines)
    assert streams.finish()
    assert not streams.is_behind()


def test_what_waits_is_bounded_and_what_came_first_is_kept(pipe) -> None:
    read_end, write_end = pipe
    streams = PatientStreams(most_bytes=10 * PIPE_BYTES)
    for number in range(1000):
        streams.put(write_end, bytes([number % 256]) * 1000)
    kept = 10 * PIPE_BYTES // 1000 * 1000
    assert read(read_end, kept) == b"".join(
        bytes([number]) * 1000 for number in range(kept // 1000)
    )


def test_a_reader_who_takes_nothing_is_given_up_at_the_ceiling(pipe) -> None:
    _, write_end = pipe
    streams = PatientStreams()
    streams.put(write_end, bytes(3 * PIPE_BYTES))
    assert not streams.finish(0.05)


def test_a_reader_who_has_left_is_told_once_and_the_other_descriptor_goes_on(
    pipe, tmp_path
) -> None:
    read_end, write_end = pipe
    os.close(read_end)
    streams = PatientStreams()
    streams.put(write_end, b"nobody\n")
    with (tmp_path / "errors").open("wb") as errors:
        streams.put(errors.fileno(), b"somebody\n")
        assert streams.finish()
    assert (tmp_path / "errors").read_bytes() == b"somebody\n"
    assert isinstance(streams.take_error(write_end), BrokenPipeError)
    assert streams.take_error(write_end) is None


PRINT = """
import sys
from flodl_core.cli.lines import fill_standard_streams, write_error_line, write_line
from flodl_core.cli.patient_streams import patient_streams
fill_standard_streams()
with patient_streams(idle_s=float(sys.argv[1])) as is_behind:
    for number in range(30_000):
        write_line(f"{number:07d} \\u2192")
    open("behind", "w").write(str(is_behind()))
    write_error_line("that was all")
sys.exit(7)
"""


def printing(place, idle_s: float, **given) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-c", PRINT, str(idle_s)], cwd=place, **given)


@pytest.mark.slow
def test_a_program_whose_output_nobody_takes_ends_with_its_own_code(tmp_path, pipe) -> None:
    with printing(tmp_path, 0.2, stdout=pipe[1], stderr=pipe[1]) as child:
        assert child.wait(60) == 7
    assert (tmp_path / "behind").read_text() == "True"


@pytest.mark.slow
def test_a_program_waits_for_a_reader_who_reads_late(tmp_path) -> None:
    with printing(tmp_path, 30, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        while not (tmp_path / "behind").exists():
            assert child.poll() is None
        out, errors = child.communicate(timeout=60)
    whole = "".join(f"{number:07d} →\n" for number in range(30_000))
    assert out.decode() == whole
    assert errors == b"that was all\n"
    assert child.returncode == 7
    assert len(whole) > BEHIND_BYTES


@pytest.mark.slow
def test_a_reader_who_leaves_is_no_fault(tmp_path) -> None:
    with printing(tmp_path, 30, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        child.stdout.close()
        assert child.stderr.read() == b"that was all\n"
        assert child.wait(60) == 7
