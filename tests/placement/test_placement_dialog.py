"""The dialog of launcher and placed process: its lines, its pipes, and the word of the port."""

import os
import subprocess
import sys
from dataclasses import replace

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.placement.dialog import (
    LINE_BYTES,
    REPORT_MARK,
    HostReport,
    JoinOrder,
    PlaceOrder,
    line_of,
    read_line,
)
from flodl_core.placement.greeter import WORD_CHARS, Greeter, hear_word
from flodl_core.placement.line_pipe import LineReader, LineWriter
from flodl_core.placement.roads import PLACED_MODULE, Approach
from flodl_core.placement.session import HostSession

ORDER = PlaceOrder(
    host="blue\n", controller="127.0.0.1:1", word="w" * WORD_CHARS, env={"A": "b\nc"}, timeout_s=9
)
REPORT = HostReport(
    host="blue",
    machine="ü",
    flodl="1",
    python="3",
    torch=None,
    devices=(),
    gpus=(),
    driver=None,
    memory_free_bytes=None,
    disk_free_bytes=None,
    job_sha256=None,
    utc_s=1.5,
    complaints=("a", "b"),
)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (ORDER, PlaceOrder),
        (REPORT, HostReport),
        (JoinOrder(token="0" * 32, words=("--host", "blue")), JoinOrder),
    ],
)
def test_every_message_is_one_line_and_comes_back_whole(message, kind):
    line = line_of(message)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert read_line(line.rstrip(b"\n"), kind) == message


def test_a_report_is_found_behind_what_a_login_prints():
    assert line_of(REPORT).startswith(REPORT_MARK)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
@pytest.mark.parametrize("greeting", ["", "Welcome\\n", "\\033]0;me@blue\\007", "no end: "])
def test_a_report_is_heard_whatever_the_login_printed_before_it(anyio_backend, greeting, tmp_path):
    (tmp_path / "report").write_bytes(line_of(REPORT))
    words = f"read order; printf '{greeting}'; cat {tmp_path}/report; read end"

    async def ask():
        approach = Approach(command=("sh", "-c", words), controller="red:1337")
        session = HostSession(approach, env=dict(os.environ), output=tmp_path / "said")
        try:
            with anyio.fail_after(30):
                return await session.ask(ORDER)
        finally:
            await session.finish(1.0)

    assert anyio.run(ask, backend=anyio_backend) == REPORT


@pytest.mark.slow
@pytest.mark.processes
def test_the_placed_process_ends_the_line_of_a_login_before_its_report(tmp_path):
    said = subprocess.run(
        [sys.executable, "-P", "-m", PLACED_MODULE, "--host", "blue"],
        input=line_of(replace(ORDER, timeout_s=60)),
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert said.stdout.startswith(b"\n" + REPORT_MARK), said.stderr


@given(st.binary(max_size=200))
def test_no_line_of_another_kind_is_taken_for_a_message(line):
    for kind in (PlaceOrder, HostReport, JoinOrder):
        with pytest.raises(ValueError, match="no "):
            read_line(line, kind)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
def test_lines_arrive_whole_whatever_their_size(anyio_backend):
    lines = [b"", b"a", b"b" * 200_000, b"c"]

    async def talk():
        read_end, write_end = os.pipe()
        reader, writer = LineReader(read_end), LineWriter(write_end)
        async with anyio.create_task_group() as tasks:

            async def speak():
                for line in lines:
                    await writer.write(line + b"\n")
                writer.close()

            tasks.start_soon(speak)
            heard = await read_all(reader)
        reader.close()
        return heard

    assert anyio.run(talk, backend=anyio_backend) == lines


async def read_all(reader):
    heard = []
    while True:
        try:
            heard.append(await reader.next_line())
        except anyio.EndOfStream:
            return heard


def test_a_line_without_an_end_is_refused_and_a_closed_pipe_is_told():
    async def talk():
        read_end, write_end = os.pipe()
        reader, writer = LineReader(read_end), LineWriter(write_end)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(writer.write, b"x" * (LINE_BYTES + 2))
            with pytest.raises(ValueError, match="more than"):
                await reader.next_line()
            tasks.cancel_scope.cancel()
        reader.close()
        with pytest.raises(anyio.BrokenResourceError):
            await writer.write(b"y")
        writer.close()

    anyio.run(talk)


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
def test_whoever_reaches_the_launcher_hears_its_word(anyio_backend):
    async def talk():
        greeter = Greeter("127.0.0.1", 0, word="0123456789abcdef" * 2)
        heard = []
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(greeter.serve)
                for _ in range(3):
                    heard.append(await hear_word("127.0.0.1", greeter.port))
                tasks.cancel_scope.cancel()
        finally:
            greeter.close()
        return heard

    assert anyio.run(talk, backend=anyio_backend) == ["0123456789abcdef" * 2] * 3
