"""The command as a process: what it loads, closed streams, a terminal, signals."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading

import pytest
from cli_world import in_training, launcher_at, run_directory

pytestmark = [pytest.mark.processes, pytest.mark.slow]

FLODL = [sys.executable, "-m", "flodl_core.cli.main"]
HEAVY = ("torch", "rich", "anyio", "httpx", "numpy", "cryptography", "msgpack")

SHOW = """
import sys
sys.path.insert(0, sys.argv[1])
from cli_world import document, ended, in_training
from flodl_core.cli.display import open_display
from flodl_core.telemetry.summary import summarize
with open_display(as_json=False) as display:
    for one in (document(), in_training()):
        display.show(one)
    display.say("a line")
    display.finish(summarize(ended(), exit_code=0, reason="finished"))
print("rich" in sys.modules, file=sys.stderr)
"""


def run(*words, **given):
    return subprocess.run([*FLODL, *words], timeout=50, check=False, text=True, **given)


def on_a_terminal(**environ):
    """Run SHOW with its output on a terminal; return what it wrote there and its errors."""
    here = os.path.dirname(__file__)  # noqa: PTH120 - a word of a command
    own, other = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS")}
    with subprocess.Popen(
        [sys.executable, "-c", SHOW, here],
        stdout=other,
        stderr=subprocess.PIPE,
        env={**env, "TERM": "xterm-256color", **environ},
    ) as child:
        os.close(other)
        shown = bytearray()
        while select.select([own], [], [], 30)[0]:
            try:
                data = os.read(own, 4096)
            except OSError:
                break
            if not data:
                break
            shown += data
        errors = child.stderr.read()
        assert child.wait(30) == 0
    os.close(own)
    return shown.decode().replace("\r\n", "\n"), errors.decode()


@pytest.mark.parametrize("words", [["--version"], ["--help"]])
def test_help_and_version_load_nothing_heavy(words):
    code = (
        "import sys\nfrom flodl_core.cli.main import main\n"
        f"code = main({words!r})\n"
        f"print(code, [name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=30, check=False, text=True
    )
    assert done.stderr == "0 []\n"


@pytest.mark.parametrize("name", ["headless", "join", "status", "config", "inspect-job"])
def test_no_command_loads_torch_or_a_terminal_library_for_its_help(name):
    code = (
        "import sys\nfrom flodl_core.cli.main import main\n"
        f"code = main([{name!r}, '--help'])\n"
        "print(code, [n for n in ('torch', 'rich') if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=30, check=False, text=True
    )
    assert done.stderr == "0 []\n"


def test_a_wrong_word_ends_the_process_with_two_and_no_traceback():
    done = run("headless", "charlm", "--port", "70000", capture_output=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: join.port = '70000'")
    assert "Traceback" not in done.stderr


def test_a_pipe_that_nobody_reads_is_no_error():
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = run("config", stdout=write_end, stderr=subprocess.PIPE)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_closed_standard_output_is_no_error():
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *FLODL, "config"],
        stderr=subprocess.PIPE,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize(
    "words",
    [("config",), ("manifests", "charlm", "--image", "i"), ("--version",), ()],
)
def test_a_full_disk_is_told_once_and_what_is_printed_is_not_taken_for_whole(words):
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = run(*words, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr.count("standard output is lost (No space left on device)") == 1
    named = f"flodl {words[0]}" if words and words[0] != "--version" else "flodl"
    assert f"error: what `{named}` prints is not whole (No space left on device)" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_encoding_without_our_signs_is_no_error(tmp_path):
    with launcher_at() as (port, answers), run_directory(tmp_path / "runs", port):
        answers.set("/state.json", in_training())
        done = run(
            "status",
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)},
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert "train    epoch 1/3" in done.stdout


def test_a_terminal_gets_the_live_view_and_then_the_summary():
    shown, errors = on_a_terminal()
    assert errors == "True\n"
    assert "\x1b[" in shown
    assert "a line" in shown
    assert "━" in shown
    assert shown.rstrip().endswith("done: finished")


def test_a_dumb_terminal_gets_plain_lines():
    shown, errors = on_a_terminal(TERM="dumb")
    assert "\x1b" not in shown
    assert errors.splitlines()[0] == "a line"
    assert shown.rstrip().endswith("done: finished")


def test_no_color_means_no_colour():
    shown, _ = on_a_terminal(NO_COLOR="1")
    codes = {code for found in re.findall(r"\x1b\[([\d;]*)m", shown) for code in found.split(";")}
    assert not {code for code in codes if code.isdecimal() and 30 <= int(code) <= 107}


def test_ctrl_c_ends_a_watch_without_a_traceback(tmp_path):
    with launcher_at() as (port, answers), run_directory(tmp_path / "runs", port):
        answers.set("/state.json", in_training())
        with subprocess.Popen(
            [*FLODL, "status", "--watch"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as child:
            assert child.stdout.readline().startswith("run      night")
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=30)
    assert child.returncode == 130
    assert errors == ""


INTERRUPT = """
import sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt
        return None

sys.meta_path.insert(0, Interrupt())
from flodl_core.cli.main import main
sys.exit(main({words!r}))
"""


@pytest.mark.parametrize(
    "module", ["flodl_core.cli.app", "typer", "flodl_core.config.load", "anyio", "asyncio"]
)
def test_an_interrupt_while_a_command_loads_is_one_line(module, tmp_path):
    code = INTERRUPT.format(module=module, words=["headless", "charlm", "--port", "0"])
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        timeout=30,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.removeprefix("error: ") == "interrupted; nothing was started\n"
    assert not (tmp_path / "runs").exists()


ENDLESS = """
import threading
from pathlib import Path

Path("begun").touch()
threading.Event().wait()
"""


@pytest.mark.parametrize("words", [["headless", "--port", "0"], ["inspect-job"]])
def test_an_interrupt_while_the_job_is_inspected_is_one_line(words, tmp_path):
    (tmp_path / "endless.py").write_text(ENDLESS)
    with subprocess.Popen(
        [*FLODL, words[0], "endless.py", *words[1:]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        pause = threading.Event()
        for _ in range(900):
            if (tmp_path / "begun").exists() or child.poll() is not None:
                break
            pause.wait(0.05)
        child.send_signal(signal.SIGINT)
        output, errors = child.communicate(timeout=30)
    assert (child.returncode, output) == (130, "")
    assert errors == "error: interrupted while the job was inspected; nothing was started\n"
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("size", [(39, 24), (80, 7)])
def test_a_tiny_terminal_gets_plain_lines(size):
    columns, rows = size
    shown, errors = on_a_terminal(COLUMNS=str(columns), LINES=str(rows))
    assert "\x1b" not in shown
    assert errors.splitlines()[0] == "a line"
    assert shown.rstrip().endswith("done: finished")
