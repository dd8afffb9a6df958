"""The process from which a rank's loader workers are forked.

It loads the tensor library once and runs nothing of the job, so that a worker starts
in milliseconds, from a process with one thread and none of the rank's descriptors.
The rank starts it by exec and tells it by its socket which workers to start; it tells
the rank how one ended. When the rank closes the socket, or dies, so do they all.

    rank ──exec──▶ server ──fork──▶ worker 0, worker 1 …
"""

import argparse
import contextlib
import faulthandler
import os
import selectors
import signal
import socket
import sys
import traceback
import warnings
from typing import Final

from flodl_core.ids import ExitCode
from flodl_core.net import clock
from flodl_core.net.parent_tie import die_with_parent
from flodl_core.training.loader_wire import (
    LoaderOrder,
    NewsKind,
    WorkerNews,
    receive_order,
    receive_start,
    send_news,
)
from flodl_core.training.loader_worker import serve
from flodl_core.units import Seconds

GRACE_S: Final[Seconds] = 1.0
"""From the rank's goodbye to the end of a worker by force."""


class LoaderServer:
    """Forks workers, and waits for each of them."""

    def __init__(self, control: socket.socket, order: LoaderOrder) -> None:
        self._control = control
        self._order = order
        self._workers: dict[int, int] = {}
        """Number of a worker by its process."""
        self._wake, self._waker = socket.socketpair()

    def run(self) -> None:
        """Serve until the rank closes its end; every worker has ended then."""
        for sock in (self._wake, self._waker):
            sock.settimeout(0)
        signal.signal(signal.SIGCHLD, _note_signal)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            with contextlib.suppress(ConnectionError, EOFError):
                while self._serve_one(selector):
                    pass
            selector.unregister(self._control)
            self._end_all(selector)

    def _serve_one(self, selector: selectors.BaseSelector) -> bool:
        for key, _ in selector.select():
            if key.fileobj is self._wake:
                self._reap()
            elif (start := receive_start(self._control)) is None:
                return False
            else:
                self._start(*start)
        return True

    def _start(self, index: int, fd: int) -> None:
        server = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._become_worker(socket.socket(fileno=fd), server)
        os.close(fd)
        self._workers[pid] = index
        send_news(self._control, WorkerNews(NewsKind.STARTED, index, pid, 0))

    def _become_worker(self, sock: socket.socket, server: int) -> None:
        """Serve the socket and end the process, whatever happens; in the forked process."""
        code: int = ExitCode.FAILED
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for mine in (self._control, self._wake, self._waker):
                mine.close()
            die_with_parent()
            code = serve(sock, self._order) if os.getppid() == server else ExitCode.DONE
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)
        while self._workers:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            index = self._workers.pop(pid, None)
            if index is not None:
                code = os.waitstatus_to_exitcode(status)
                with contextlib.suppress(ConnectionError):
                    send_news(self._control, WorkerNews(NewsKind.ENDED, index, pid, code))

    def _end_all(self, selector: selectors.BaseSelector) -> None:
        """Wait for the workers, whose sockets the rank has closed, and kill those that linger."""
        ceiling = clock.now() + GRACE_S
        while self._workers and (left := ceiling - clock.now()) > 0:
            selector.select(left)
            self._reap()
        for pid in self._workers:
            os.kill(pid, signal.SIGKILL)
        for pid in self._workers:
            os.waitpid(pid, 0)


def _note_signal(*_: object) -> None:
    """Take the signal; the wakeup descriptor has told the loop."""


def main() -> int:
    """Run the process; return its exit code."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("process")
    arguments.add_argument("--parent", type=int, required=True)
    arguments.add_argument("--control-fd", type=int, required=True)
    words = arguments.parse_args()
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    if os.getppid() != words.parent:
        return ExitCode.JOIN_RUN_LOST
    # newer interpreters warn of a fork beside the idle threads of a numeric library
    warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
    with socket.socket(fileno=words.control_fd) as control:
        control.set_inheritable(False)
        try:
            order = receive_order(control)
        except (EOFError, ConnectionError):
            return ExitCode.DONE
        LoaderServer(control, order).run()
    return ExitCode.DONE


if __name__ == "__main__":
    # the rank waits for this end, and unloading the tensor library takes long
    code = main()
    sys.stderr.flush()
    os._exit(code)
