"""Real child processes: what they inherit, how they end, and that none outlives its parent."""

import os
import select
import signal
import subprocess
import sys
import textwrap

import anyio
import anyio.to_thread
import pytest
import trio
from trio.testing import MockClock

from flodl_core.errors import LocalProtocolError
from flodl_core.net.byte_stream import ByteStream
from flodl_core.net.children import Child, ExitStatus, own_environment, spawn
from flodl_core.net.local import socket_pair
from flodl_core.net.parent_tie import LIVENESS_FD_VARIABLE, tie_from_environment

pytestmark = [pytest.mark.anyio, pytest.mark.processes]

TIE = """
import os, sys
from flodl_core.net.children import own_environment
from flodl_core.net.parent_tie import LIVENESS_FD_VARIABLE, tie_from_environment
tie_from_environment(own_environment())
"""


def python(code):
    return [sys.executable, "-c", textwrap.dedent(code)]


class Started:
    """A child whose standard output is a socket of ours."""

    def __init__(self, code, **options):
        near, far = socket_pair()
        self.child = spawn(python(code), env=own_environment(), stdout=far.fileno(), **options)
        far.close()
        self.out = ByteStream(near)

    async def line(self):
        got = b""
        with anyio.fail_after(20):
            while not got.endswith(b"\n"):
                got += await self.out.receive(1)
        return got.decode().strip()

    async def rest(self):
        """Everything until nobody holds the other end of standard output any more."""
        got = b""
        with anyio.fail_after(20):
            while True:
                try:
                    got += await self.out.receive()
                except (anyio.EndOfStream, anyio.BrokenResourceError):
                    self.out.close()
                    return got.decode()


async def test_an_exit_code_is_reported():
    started = Started("raise SystemExit(7)")
    assert await started.child.wait() == ExitStatus(code=7, signal=None)
    assert str(started.child.status) == "exit code 7"
    assert await started.rest() == ""
    assert await started.child.wait() == ExitStatus(code=7, signal=None)


async def test_a_signal_is_reported_by_name():
    started = Started("import os; os.kill(os.getpid(), 11)")
    status = await started.child.wait()
    assert (status.code, status.signal, str(status)) == (-11, "SIGSEGV", "SIGSEGV")
    await started.rest()


async def test_a_child_gets_the_descriptors_named_and_no_other():
    passed_read, passed_write = os.pipe()
    other_read, other_write = os.pipe()
    os.set_inheritable(other_read, True)
    code = f"""
    import os
    tie = int(os.environ["{LIVENESS_FD_VARIABLE}"])
    fds = {{int(fd) for fd in os.listdir("/proc/self/fd")}}
    open_fds = {{fd for fd in fds if os.path.exists(f"/proc/self/fd/{{fd}}")}}
    print(sorted(open_fds - {{0, 1, 2, tie}}), os.read({passed_read}, 9).decode())
    """
    os.write(passed_write, b"inherited")
    started = Started(code, pass_fds=[passed_read])
    assert await started.rest() == f"[{passed_read}] inherited\n"
    await started.child.wait()
    for fd in (passed_read, passed_write, other_read, other_write):
        os.close(fd)


async def test_a_child_leads_a_session_of_its_own_and_is_deaf_to_ctrl_c():
    started = Started(
        TIE
        + """
import signal
print(os.getsid(0) == os.getpgid(0) == os.getpid(), flush=True)
signal.raise_signal(signal.SIGINT)
print("still here", sys.stdin.read(), flush=True)
"""
    )
    assert await started.rest() == "True\nstill here \n"
    assert (await started.child.wait()).code == 0


async def test_a_child_that_heeds_the_polite_signal_ends_by_it():
    started = Started("import signal; print('up', flush=True); signal.pause()")
    await started.line()
    with anyio.fail_after(20):
        assert await started.child.terminate_group(15)
    assert started.child.status.signal == "SIGTERM"
    await started.rest()


async def test_a_child_that_ignores_the_polite_signal_is_killed_after_the_grace():
    started = Started(
        """
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("up", flush=True)
        while True:
            signal.pause()
        """
    )
    await started.line()
    with anyio.fail_after(20):
        assert await started.child.terminate_group(0.05)
    assert started.child.status.signal == "SIGKILL"
    await started.rest()


class Stuck(Child):
    """A child that hangs in the kernel: it takes signals and never ends."""

    def __init__(self):
        self.sent = []

    async def wait(self):
        await anyio.sleep_forever()

    def _signal_group(self, number):
        self.sent.append(number)


def test_a_child_that_cannot_be_killed_is_left_behind():
    """On a clock that jumps to the next ceiling."""
    child = Stuck()
    assert not trio.run(child.terminate_group, 3.0, clock=MockClock(autojump_threshold=0))
    assert child.sent == [signal.SIGTERM, signal.SIGKILL]


@pytest.mark.parametrize("by_kill", [True, False])
async def test_the_whole_group_ends_with_its_leader(by_kill):
    started = Started(
        f"""
        import signal, subprocess, sys
        subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        print("up", flush=True)
        if {by_kill}:
            signal.pause()
        """
    )
    await started.line()
    if by_kill:
        started.child.kill_group()
    with anyio.fail_after(20):
        status = await started.child.wait()
    assert status.signal == ("SIGKILL" if by_kill else None)
    assert await started.rest() == ""


async def test_many_may_wait_and_a_cancelled_wait_harms_nothing():
    started = Started("import signal; signal.pause()")
    with anyio.move_on_after(0.01):
        await started.child.wait()
    assert started.child.status is None
    got = []

    async def wait():
        got.append(await started.child.wait())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        tasks.start_soon(wait)
        await anyio.wait_all_tasks_blocked()
        started.child.kill_group()
    assert [status.signal for status in got] == ["SIGKILL", "SIGKILL"]
    started.child.kill_group()
    await started.rest()


async def test_a_child_is_started_by_the_main_thread_only():
    def start():
        spawn(python("pass"), env={})

    with pytest.raises(LocalProtocolError, match="from the main thread"):
        await anyio.to_thread.run_sync(start)


async def test_a_program_that_does_not_exist_leaves_no_descriptor():
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with pytest.raises(FileNotFoundError):
        spawn(["/no/such/program"], env={})
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


async def test_a_child_started_by_hand_says_what_to_do():
    with pytest.raises(LocalProtocolError, match="started by hand"):
        tie_from_environment({})


async def test_a_child_whose_parent_is_already_gone_leaves_at_once():
    started = Started(
        """
        import os
        from flodl_core.net.parent_tie import tie_to_parent
        tie_to_parent(1, 0)
        print("stayed")
        """
    )
    assert (await started.child.wait()).code == 7
    assert await started.rest() == ""


KERNEL_ONLY = "from flodl_core.net import parent_tie; parent_tie._watch = lambda *a: None\n"
PIPE_ONLY = "from flodl_core.net import parent_tie; parent_tie.die_with_parent = lambda: None\n"


@pytest.mark.slow
@pytest.mark.parametrize("road", ["", KERNEL_ONLY, PIPE_ONLY], ids=["both", "kernel", "pipe"])
async def test_no_child_outlives_its_killed_parent(road):
    grandchild = road + TIE + "import signal; print(os.getpid(), flush=True); signal.pause()"
    parent = f"""
import signal, sys
from flodl_core.net.children import own_environment, spawn
child = spawn([sys.executable, "-c", {grandchild!r}], env=own_environment())
signal.pause()
"""
    near, far = socket_pair()
    command = [sys.executable, "-c", parent]
    process = subprocess.Popen(command, stdout=far.fileno())  # noqa: ASYNC220
    far.close()
    out = ByteStream(near)
    with anyio.fail_after(30):
        grandchild_pid = int(await out.receive())
        ended = os.pidfd_open(grandchild_pid)
        assert select.select([ended], [], [], 0)[0] == []
        process.kill()
        await anyio.wait_readable(ended)
    os.close(ended)
    out.close()
    assert process.wait() == -signal.SIGKILL


@pytest.mark.slow
async def test_a_process_may_say_goodbye_when_its_parent_is_gone():
    """The pipe's road can run code of the child's, here to write one line."""
    code = """
import os, signal
from flodl_core.net import parent_tie
from flodl_core.net.children import own_environment
parent_tie.die_with_parent = lambda: None
def leave():
    os.write(1, b"goodbye\\n")
    os._exit(0)
parent_tie.tie_from_environment(own_environment(), on_gone=leave)
print("up", flush=True)
signal.pause()
"""
    started = Started(code)
    assert await started.line() == "up"
    os.close(started.child._liveness)
    started.child._liveness = -1
    assert await started.rest() == "goodbye\n"
    assert (await started.child.wait()).code == 0
