"""The rank's hold on its loader server: started by exec, spoken to by one socket, waited for.

It owns the process and every socket of the loader in this process, and keeps them out
of whatever code of the job forks here.
"""

import os
import signal
import socket
import subprocess

from flodl_core.errors import JobError
from flodl_core.net.children import python_command
from flodl_core.net.shared_memory import guard_from_forks, unguard
from flodl_core.training.loader_wire import (
    LoaderOrder,
    WorkerNews,
    receive_news,
    send_order,
    send_start,
)
from flodl_core.units import Seconds

_SERVER = "flodl_core.training.loader_server"

END_S: Seconds = 5.0
"""From goodbye to the end of the server by force; it ends lingering workers earlier."""


class LoaderProcess:
    """One loader server.

    Attributes:
        control: the rank's end; readable when there is news.
    """

    def __init__(self, order: LoaderOrder, *, name: str) -> None:
        """Start it; it loads the tensor library while the caller goes on.

        Args:
            order: what its workers read.
            name: of the rank, for `ps`.
        """
        self.control, theirs = socket.socketpair()
        guard_from_forks(self.control.fileno())
        with theirs:
            words = ["--parent", str(os.getpid()), "--control-fd", str(theirs.fileno())]
            self._process = subprocess.Popen(
                python_command(_SERVER, name, *words),
                stdin=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
            )
        try:
            send_order(self.control, order)
        except ConnectionError as error:
            gone = self._gone()
            self.close()
            raise gone from error

    @property
    def pid(self) -> int:
        """The server's process."""
        return self._process.pid

    def start_worker(self, index: int) -> socket.socket:
        """Have a worker started and return the socket to it.

        Raises:
            JobError: the server is gone.
        """
        mine, theirs = socket.socketpair()
        with theirs:
            try:
                send_start(self.control, index, theirs)
            except ConnectionError as error:
                mine.close()
                raise self._gone() from error
        guard_from_forks(mine.fileno())
        return mine

    def receive_news(self) -> WorkerNews:
        """Return what became of a worker.

        Raises:
            JobError: the server is gone.
        """
        try:
            return receive_news(self.control)
        except (EOFError, ConnectionError) as error:
            raise self._gone() from error

    def forget(self, sock: socket.socket) -> None:
        """Close a socket of a worker; repeatable."""
        if sock.fileno() >= 0:
            unguard(sock.fileno())
            sock.close()

    def say_goodbye(self) -> None:
        """Tell the server that no worker is needed any more."""
        try:
            self.control.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        """Wait until the server, and with it every worker, has ended."""
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.forget(self.control)

    def _gone(self) -> JobError:
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return JobError(f"the loader's server (process {self.pid}) closed its socket")
        end = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return JobError(
            f"the loader's server (process {self.pid}) was ended by {end}",
            fix="look into this rank's output file and the system's log for the cause",
        )
