"""A rank's loader workers, seen from the rank: asked, heard, and replaced when one dies.

One thread gives each worker one batch to read at a time, receives it into memory
where it stays, and keeps it by its place until the training thread takes it. The
order of the answers does not matter, and a batch that is not wanted any more is
dropped. A worker that dies is named and replaced; the second death over one batch,
or one too many, is an error that names the last.
"""

import contextlib
import selectors
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from flodl_core.errors import FlodlError, JobError, LocalProtocolError
from flodl_core.planes.nccl.device_thread import enter_device
from flodl_core.training.batch_codec import decode_batch
from flodl_core.training.batches import Batch
from flodl_core.training.event_log import EventLog
from flodl_core.training.load import describe_error
from flodl_core.training.loader_process import LoaderProcess
from flodl_core.training.loader_wire import (
    LoaderOrder,
    NewsKind,
    Reply,
    ReplyKind,
    WorkerNews,
    receive_reply,
    send_request,
)
from flodl_core.training.read_ahead import DEPTH, JOIN_S
from flodl_core.training.samples import BatchPlace, PassOrder
from flodl_core.units import Seconds

MAX_DEATHS = 8
"""Workers that a rank replaces in a run."""

LAST_WORDS_S: Seconds = 1.0
"""Longest wait for the end of a dead worker's socket, which a process of the job may hold."""

_Hear = Callable[[selectors.BaseSelector], None]


class WorkerTraceback(Exception):
    """The traceback of an error in a loader worker, as text; the cause of the rank's error."""

    def __str__(self) -> str:
        """Return the traceback."""
        return f"in a loader worker:\n{self.args[0]}" if self.args[0] else "in a loader worker"


@dataclass(slots=True)
class _Worker:
    """One worker as the pool's thread knows it."""

    index: int
    sock: socket.socket
    pid: int = 0
    is_ready: bool = False
    is_heard: bool = True
    """Whether it may still say something."""
    place: BatchPlace | None = None
    """What it reads now."""

    def __str__(self) -> str:
        return f"loader worker {self.index} (process {self.pid})"


class LoaderPool:
    """Reads for a rank in processes of their own.

    Args:
        order: what the workers read.
        workers: how many, at least 1.
        name: of the rank, for `ps`.
        device: where batches go; for CUDA they are received into pinned memory.
        log: takes the deaths of workers.

    Attributes:
        depth: how many batches ahead the pool wants to know.
    """

    def __init__(
        self,
        order: LoaderOrder,
        workers: int,
        *,
        name: str,
        device: torch.device,
        log: EventLog,
    ) -> None:
        self.depth = DEPTH + workers
        self._passes = PassOrder(order.n_samples, order.seed)
        self._count = workers
        self._device = device
        self._log = log
        self._changed = threading.Condition()
        self._wanted: tuple[BatchPlace, ...] = ()
        self._ready: dict[BatchPlace, Batch | JobError] = {}
        self._failure: FlodlError | None = None
        self._is_over = False
        self._workers: dict[int, _Worker] = {}
        self._deaths: Counter[BatchPlace | None] = Counter()
        self._wake, self._waker = socket.socketpair()
        for sock in (self._wake, self._waker):
            sock.settimeout(0)
        self._server = LoaderProcess(order, name=name)
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)
        self._thread.start()

    # -- the training thread ---------------------------------------------------------

    def take(self, place: BatchPlace, ahead: Sequence[BatchPlace]) -> Batch:
        """Return a batch, waiting until a worker has read it.

        Raises:
            JobError: reading it failed, or a worker died once too often; both are named.
            FlodlError: the pool is broken.
        """
        with self._changed:
            self._want((place, *ahead))
            self._changed.wait_for(lambda: place in self._ready or self._failure is not None)
            if place not in self._ready:
                assert self._failure is not None
                raise self._failure
            batch = self._ready.pop(place)
            self._wanted = tuple(ahead)
        if isinstance(batch, JobError):
            raise batch
        return batch

    def expect(self, ahead: Sequence[BatchPlace]) -> None:
        """Say which batches come next."""
        with self._changed:
            self._want(tuple(ahead))

    def catch_up(self, timeout_s: Seconds) -> bool:
        """Wait for the next batch, for a while; processes read whatever this thread does."""
        with self._changed:
            return self._changed.wait_for(
                lambda: (
                    not self._wanted or self._wanted[0] in self._ready or self._failure is not None
                ),
                timeout=timeout_s,
            )

    def close(self) -> None:
        """End the workers, their server and the thread."""
        with self._changed:
            self._is_over = True
            workers = tuple(self._workers.values())
        for worker in workers:
            with contextlib.suppress(OSError):
                worker.sock.shutdown(socket.SHUT_RDWR)
        self._server.say_goodbye()
        self._nudge()
        self._thread.join(JOIN_S)
        self._server.close()
        for worker in self._workers.values():
            self._server.forget(worker.sock)
        self._wake.close()
        self._waker.close()

    def _want(self, places: tuple[BatchPlace, ...]) -> None:
        self._wanted = places
        if places:
            self._ready = {place: kept for place, kept in self._ready.items() if place in places}
        if any(place not in self._ready for place in places):
            self._nudge()

    def _nudge(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"\0")

    # -- the thread ------------------------------------------------------------------

    def _run(self) -> None:
        try:
            enter_device(self._device)
            with selectors.DefaultSelector() as selector:
                selector.register(self._wake, selectors.EVENT_READ, self._hear_nudge)
                selector.register(self._server.control, selectors.EVENT_READ, self._hear_server)
                for index in range(self._count):
                    self._start(selector, index)
                while not self._is_over:
                    self._assign()
                    for hear in self._select(selector):
                        hear(selector)
        except Exception as error:
            self._fail(
                error
                if isinstance(error, FlodlError)
                else LocalProtocolError(f"the loader's thread ended: {describe_error(error)}")
            )

    def _select(self, selector: selectors.BaseSelector) -> list[_Hear]:
        """Wait for something to hear; what workers said comes before how they ended."""
        ready: list[_Hear] = [key.data for key, _ in selector.select()]
        return sorted(ready, key=lambda hear: hear == self._hear_server)

    def _start(self, selector: selectors.BaseSelector, index: int) -> None:
        worker = _Worker(index, self._server.start_worker(index))
        with self._changed:
            self._workers[index] = worker
        selector.register(worker.sock, selectors.EVENT_READ, self._hearer(worker))

    def _assign(self) -> None:
        """Give every idle worker the first batch that is wanted and that nobody reads."""
        with self._changed:
            taken = {worker.place for worker in self._workers.values()}
            open_places = [p for p in self._wanted if p not in self._ready and p not in taken]
        idle = [w for w in self._workers.values() if w.is_ready and w.place is None]
        for worker, place in zip(idle, open_places, strict=False):
            worker.place = place
            with contextlib.suppress(ConnectionError):
                send_request(worker.sock, place, self._passes.ids(place))

    def _hear_nudge(self, _: selectors.BaseSelector) -> None:
        with contextlib.suppress(BlockingIOError):
            self._wake.recv(4096)

    def _hearer(self, worker: _Worker) -> _Hear:
        return lambda selector: self._hear_worker(selector, worker)

    def _hear_worker(self, selector: selectors.BaseSelector, worker: _Worker) -> None:
        """Take one answer, or note that there will be none any more."""
        try:
            reply = receive_reply(worker.sock, self._allocate)
        except (EOFError, ConnectionError, TimeoutError):
            selector.unregister(worker.sock)
            worker.is_heard = False
            return
        if reply.kind is ReplyKind.READY:
            worker.is_ready = True
        elif worker.place is None:
            line, traceback = reply.texts()
            self._fail(_caused(JobError(f"{worker} could not open the data: {line}"), traceback))
        else:
            place, worker.place = worker.place, None
            self._keep(place, self._content(worker, place, reply))

    def _content(self, worker: _Worker, place: BatchPlace, reply: Reply) -> Batch | JobError:
        if reply.kind is ReplyKind.BATCH:
            try:
                return decode_batch(reply.head, reply.buffers)
            except Exception as error:
                line = f"a batch could not be put together again: {describe_error(error)}"
                failed = JobError(
                    f"{line} ({self._where(worker, place)})",
                    fix="let collate give built-in containers, or run with --loader-workers 0",
                )
                failed.__cause__ = error
                return failed
        line, traceback = reply.texts()
        return _caused(JobError(f"{line} ({self._where(worker, place)})"), traceback)

    def _where(self, worker: _Worker, place: BatchPlace) -> str:
        ids = ", ".join(map(str, self._passes.ids(place)[:8]))
        more = ", …" if place.size > 8 else ""
        return f"in {worker}, reading {place}: samples {ids}{more}"

    def _keep(self, place: BatchPlace, content: Batch | JobError) -> None:
        with self._changed:
            if place in self._wanted:
                self._ready[place] = content
                self._changed.notify_all()

    def _hear_server(self, selector: selectors.BaseSelector) -> None:
        news = self._server.receive_news()
        if self._is_over:
            return
        worker = self._workers[news.index]
        if news.kind is NewsKind.STARTED:
            worker.pid = news.pid
        else:
            self._bury(selector, worker, news)

    def _bury(self, selector: selectors.BaseSelector, worker: _Worker, news: WorkerNews) -> None:
        """Hear a dead worker's last words, then replace it or give up."""
        worker.sock.settimeout(LAST_WORDS_S)
        while worker.is_heard:
            self._hear_worker(selector, worker)
        self._server.forget(worker.sock)
        if self._is_over or self._failure is not None:
            return
        end = signal.Signals(-news.code).name if news.code < 0 else f"exit code {news.code}"
        self._log.warning("loader_worker_died", worker=worker.index, pid=worker.pid, ended=end)
        self._deaths[worker.place] += 1
        again = worker.place is not None and self._deaths[worker.place] > 1
        if worker.is_ready and not again and self._deaths.total() <= MAX_DEATHS:
            self._start(selector, worker.index)
            return
        doing = f"while it read {worker.place}" if worker.place else "between two batches"
        self._fail(
            JobError(
                f"{worker} was ended by {end} "
                f"{doing if worker.is_ready else 'while it opened the data'}",
                fix="look into this rank's output file and the system's log for the cause; "
                "where memory ran out, use fewer --loader-workers",
            )
        )

    def _fail(self, error: FlodlError) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def _allocate(self, nbytes: int) -> torch.Tensor:
        is_pinned = self._device.type == "cuda" and nbytes > 0
        return torch.empty(nbytes, dtype=torch.uint8, device="cpu", pin_memory=is_pinned)


def _caused(error: JobError, traceback: str) -> JobError:
    error.__cause__ = WorkerTraceback(traceback)
    return error
