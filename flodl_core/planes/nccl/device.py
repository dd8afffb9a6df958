"""Collectives on GPUs through NVIDIA's binding `nccl4py`, on the library that torch ships.

Communicators are non-blocking: after every call the library is polled until it has
launched what it was given, with the interpreter lock let go in between; an event recorded
before that could be done before the collective has begun. Everything lies on one stream
of its own, which waits for training, as training waits for it.

Needs the extra `flodl[nccl]`. Traffic between hosts is the library's own: it needs open
TCP between them, and nothing encrypts it.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from flodl_core.planes.nccl.collective import (
    UID_BYTES,
    Collective,
    CollectiveError,
    CommState,
    Mark,
    Mirror,
    Pair,
)
from flodl_core.planes.nccl.device_thread import enter_device
from flodl_core.planes.nccl.waiting import looks
from flodl_core.planes.segment import F64

_KEPT_OPS: Final = 8
_KEPT_MARKS: Final = 4
_RECORDED_RUN: Final = 3
_SUCCESS: Final = 0
_IN_PROGRESS: Final = 7
_FIX: Final = "pip install 'flodl[nccl]' on this host, or train with --mode cpu_cadence"


def load_library() -> Any:  # noqa: ANN401 - a module without annotations
    """Return the binding.

    Raises:
        CollectiveError: it is not installed, or the library that it binds is missing.
    """
    try:
        import nccl.core as library
    except (ImportError, OSError, RuntimeError) as error:
        raise CollectiveError(f"nccl4py cannot be loaded ({error})", fix=_FIX) from error
    return library


class DeviceFabric:
    """Communicators of one GPU.

    Args:
        device: such as cuda:1, as this process sees it.

    Raises:
        CollectiveError: nccl4py is not installed.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._library = load_library()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._behind, self._ahead, *self._marks = (_new_event() for _ in range(2 + _KEPT_MARKS))
        self._turn = 0
        self._why_not_recorded: list[str] = []
        self._training = torch.cuda.current_stream(device)

    @property
    def device(self) -> torch.device:
        """The GPU."""
        return self._device

    @property
    def why_not_recorded(self) -> str:
        """Why work is not recorded, if a recording failed."""
        return "; ".join(self._why_not_recorded)

    def bind(self) -> None:
        """Make the GPU the calling thread's own."""
        enter_device(self._device)

    def new_uid(self) -> bytes:
        """Return a uid; the library serves it from a thread of this process."""
        return bytes(self._library.get_unique_id()).ljust(UID_BYTES, b"\0")

    def join(self, uid: bytes, *, place: int, size: int) -> Collective:
        """Begin to form a communicator."""
        return DeviceCollective(self._library, uid, place, size=size, stream=self._stream)

    def begin(self, *, is_behind: bool = False) -> None:
        """Go over to the plane's stream, behind training."""
        self._training = torch.cuda.current_stream(self._device)
        if not is_behind:
            self._behind.record(self._training)
            self._stream.wait_event(self._behind)
        torch.cuda.set_stream(self._stream)

    def end(self) -> None:
        """Go back to training's stream, behind what was enqueued."""
        self._ahead.record(self._stream)
        self._training.wait_event(self._ahead)
        torch.cuda.set_stream(self._training)

    @contextlib.contextmanager
    def syncing(self) -> Iterator[None]:
        """Put what is enqueued inside on the plane's stream, between training and training."""
        self.begin()
        try:
            yield
        finally:
            self.end()

    def mark(self) -> Mark:
        """Record an event on the plane's stream."""
        event = self._marks[self._turn]
        self._turn = (self._turn + 1) % _KEPT_MARKS
        event.record(self._stream)
        return _EventMark(event)

    def repeated(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return it as a graph: one launch, however many operations it has."""
        return _Repeated(work, self._why_not_recorded)

    def mirror(self, count: int) -> Mirror:
        """Return numbers in pinned memory and on the GPU."""
        return _PinnedMirror(count, self._device)


def _new_event() -> torch.cuda.Event:
    return torch.cuda.Event()  # type: ignore[no-untyped-call,no-any-return,unused-ignore]


class _Repeated:
    """Runs a work as it is at first, so that all is loaded; then records it, and replays that."""

    def __init__(self, work: Callable[[], None], why_not: list[str]) -> None:
        self._work, self._why_not = work, why_not
        self._graph: torch.cuda.CUDAGraph | None = None
        self._runs = 0

    def __call__(self) -> None:
        self._runs += 1
        if self._runs == _RECORDED_RUN and not self._why_not:
            self._record()
        if self._graph is None:
            self._work()
        else:
            self._graph.replay()

    def _record(self) -> None:
        """Record the work; where this torch and driver cannot, nothing is recorded any more."""
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        try:
            with _no_collection():
                _capture(graph, pool, self._work)
        except RuntimeError as error:
            self._why_not.append(str(error.__context__ or error))
            _clear_up(pool)
            return
        self._graph = graph


def _capture(graph: torch.cuda.CUDAGraph, pool: Any, work: Callable[[], object]) -> None:  # noqa: ANN401 - torch's own
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        work()
    finally:
        graph.capture_end()


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage inside: a graph that is thrown away meanwhile spoils a recording."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _clear_up(pool: Any) -> None:  # noqa: ANN401 - torch's own
    """Take away what a recording that failed leaves.

    That is an error not yet told, for which whatever this thread does next on the GPU fails;
    a pool that is open, for which memory of two streams never comes back; and a generator that
    believes it is being recorded, until a recording ends well.
    """
    device = torch.cuda.current_device()
    with contextlib.suppress(RuntimeError):
        torch.zeros(1, device=device)
    with contextlib.suppress(RuntimeError):
        torch._C._cuda_endAllocateToPool(device, pool)
        torch._C._cuda_releasePool(device, pool)
    number = torch.zeros(1, device=device)
    with contextlib.suppress(RuntimeError):
        _capture(torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle(), number.zero_)


class _PinnedMirror:
    """Pinned memory for either way: what an aborted cycle brings back late harms no later one."""

    def __init__(self, count: int, device: torch.device) -> None:
        pinned = torch.zeros((2, count), dtype=torch.float64, device="cpu", pin_memory=True)
        self._out, self._back = pinned.unbind()
        self.sent: F64 = self._out.numpy()
        self.fetched: F64 = self._back.numpy()
        self.device = torch.zeros_like(self._out, device=device)

    def send(self) -> None:
        """Enqueue pinned ▶ GPU."""
        self.device.copy_(self._out, non_blocking=True)

    def fetch(self) -> None:
        """Enqueue GPU ▶ pinned."""
        self._back.copy_(self.device, non_blocking=True)


@dataclass(frozen=True, slots=True)
class _EventMark:
    event: torch.cuda.Event

    def is_done(self) -> bool:
        """Return whether the stream has passed the event."""
        return bool(self.event.query())  # type: ignore[no-untyped-call]


class DeviceCollective:
    """One communicator of the library."""

    def __init__(
        self,
        library: Any,  # noqa: ANN401 - a module without annotations
        uid: bytes,
        place: int,
        *,
        size: int,
        stream: torch.cuda.Stream,
    ) -> None:
        self._library, self._stream = library, stream
        self._comm: Any = library.Communicator.init(
            size,
            place,
            library.UniqueId.from_bytes(uid),
            library.NCCLConfig(blocking=False),
        )
        self._ops: dict[float, Any] = {}
        self._is_aborted = False
        self._is_given_up = False

    def state(self) -> CommState:
        """Return how the library says that it stands."""
        if self._is_aborted:
            return CommState.FAILED
        code = int(self._comm.get_async_error())
        if code == _SUCCESS:
            return CommState.READY
        return CommState.IN_PROGRESS if code == _IN_PROGRESS else CommState.FAILED

    def sum_scaled(self, pairs: Sequence[Pair], factor: float) -> None:
        """Enqueue a weighted sum of each pair, in one launch."""
        op = self._weighing(factor)
        if len(pairs) == 1:
            source, target = pairs[0]
            self._launch(lambda: self._comm.allreduce(source, target, op, stream=self._stream))
            return

        def enqueue() -> None:
            with self._library.group():
                for source, target in pairs:
                    self._comm.allreduce(source, target, op, stream=self._stream)

        self._launch(enqueue)

    def sum_plain(self, values: torch.Tensor) -> None:
        """Enqueue a sum in place."""
        op = self._library.SUM
        self._launch(lambda: self._comm.allreduce(values, values, op, stream=self._stream))

    def broadcast(self, values: torch.Tensor, root: int) -> None:
        """Enqueue a broadcast in place."""
        self._launch(lambda: self._comm.broadcast(values, values, root, stream=self._stream))

    def give_up(self) -> None:
        """Have `_launch` raise at its next look."""
        self._is_given_up = True

    def abort(self) -> None:
        """Abort; kernels that wait for a dead peer end."""
        if not self._is_aborted:
            self._is_aborted = True
            self._comm.abort()

    def _weighing(self, factor: float) -> Any:  # noqa: ANN401 - the library's own
        """Return the operator of a factor; the newest few are kept."""
        op = self._ops.pop(factor, None)
        if op is None:
            scalar = np.array([factor], dtype=np.float32)
            made: list[Any] = []
            self._launch(lambda: made.append(self._comm.create_pre_mul_sum(scalar)))
            op = made[0]
            while len(self._ops) >= _KEPT_OPS:
                self._forget(self._ops.pop(next(iter(self._ops))))
        self._ops[factor] = op
        return op

    def _forget(self, op: Any) -> None:  # noqa: ANN401 - the library's own
        """Destroy an operator; the binding keeps a list of them until the communicator ends."""
        op.close()
        with contextlib.suppress(AttributeError, ValueError):
            self._comm._resources.remove(op)

    def _launch(self, enqueue: Callable[[], object]) -> None:
        """Call the library and wait until it has launched that.

        The first use of a communicator connects it to its peers. One of them may be in a batch
        as long as ranks may have, so that this has no end of its own: who waits for a dead one
        is told to give up.

        Raises:
            CollectiveError: it refused, or was given up.
        """
        try:
            enqueue()
        except Exception as error:  # whatever the binding raises
            raise CollectiveError(f"NCCL refused: {error}") from error
        for _ in looks():
            state = self.state()
            if state is CommState.READY:
                return
            if state is CommState.FAILED:
                raise CollectiveError(f"NCCL refused: {self._comm.get_last_error()}")
            if self._is_given_up:
                raise CollectiveError("the communicator was given up while NCCL was launching")
