"""Collectives over loopback sockets: what stands in for NVIDIA's library where no GPU is.

It has the traits that the plane must live with: forming and every collective go on in the
background, a dead peer is silence and no error, and a collective that is aborted leaves
half of its target changed. The maker of a uid serves it: it takes one connection of each
member, sums in the order of places, and sends everybody the same bytes.

What it is not: a way to train. It serves tests, on one machine, without secrets; no
setting chooses it.
"""

import contextlib
import math
import queue
import secrets
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import torch

from flodl_core.planes.nccl.collective import (
    UID_BYTES,
    Collective,
    CommState,
    Mark,
    Mirror,
    Pair,
)
from flodl_core.planes.segment import F64

_HOST: Final = "127.0.0.1"
_HEADER: Final = struct.Struct("<4sq")
_GREETING: Final = struct.Struct("<16sqq")
_SUM: Final = b"sum "
_SEND: Final = b"send"
_LISTEN_S: Final = 120.0

Numbers: TypeAlias = "np.ndarray[tuple[int, ...], np.dtype[np.float32 | np.float64]]"


class LoopbackFabric:
    """Communicators of one process; the device is the CPU."""

    def __init__(self) -> None:
        self._pending = _Pending()

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return torch.device("cpu")

    @property
    def why_not_recorded(self) -> str:
        """Nothing needs to be recorded."""
        return ""

    def bind(self) -> None:
        """Do nothing: a CPU needs no choosing."""

    def new_uid(self) -> bytes:
        """Return a uid; a thread of this process serves it from now on."""
        listener = socket.create_server((_HOST, 0))
        listener.settimeout(_LISTEN_S)
        nonce = secrets.token_bytes(16)
        hub = threading.Thread(target=_serve, args=(listener, nonce), name="hub", daemon=True)
        hub.start()
        port: int = listener.getsockname()[1]
        return (nonce + port.to_bytes(2, "little")).ljust(UID_BYTES, b"\0")

    def join(self, uid: bytes, *, place: int, size: int) -> Collective:
        """Begin to connect to the uid's maker."""
        return LoopbackCollective(uid, place, size, self._pending)

    def begin(self, *, is_behind: bool = False) -> None:
        """Do nothing: on a CPU the caller's order is the order."""

    def end(self) -> None:
        """Do nothing, as `begin`."""

    def syncing(self) -> AbstractContextManager[None]:
        """Do nothing, as `begin`."""
        return contextlib.nullcontext()

    def repeated(self, work: Callable[[], None]) -> Callable[[], None]:
        """Return it."""
        return work

    def mirror(self, count: int) -> Mirror:
        """Return numbers with one side."""
        return _OneSide(torch.zeros(count, dtype=torch.float64))

    def mark(self) -> Mark:
        """Return a mark behind everything that was enqueued so far."""
        return _PendingMark(self._pending, self._pending.enqueued)


@dataclass(frozen=True, slots=True)
class _OneSide:
    device: torch.Tensor

    @property
    def sent(self) -> F64:
        """The same memory."""
        array: F64 = self.device.numpy()
        return array

    @property
    def fetched(self) -> F64:
        """The same memory."""
        return self.sent

    def send(self) -> None:
        """Do nothing: it is there."""

    def fetch(self) -> None:
        """Do nothing: it is there."""


class _Pending:
    """How many operations were enqueued and have ended, whichever communicator had them."""

    def __init__(self) -> None:
        self.enqueued = 0
        self.ended = 0
        self.lock = threading.Lock()

    def end(self, count: int) -> None:
        with self.lock:
            self.ended += count


@dataclass(frozen=True, slots=True)
class _PendingMark:
    pending: _Pending
    at: int

    def is_done(self) -> bool:
        """Return whether as many operations have ended."""
        return self.pending.ended >= self.at


class LoopbackCollective:
    """One member's end of a hub."""

    def __init__(self, uid: bytes, place: int, size: int, pending: _Pending) -> None:
        self._place, self._size, self._pending = place, size, pending
        self._address = (_HOST, int.from_bytes(uid[16:18], "little"))
        self._nonce = uid[:16]
        self._sock: socket.socket | None = None
        self._state = CommState.IN_PROGRESS
        self._aborted = threading.Event()
        self._is_over = False
        self._lock = threading.Lock()
        self._unended = 0
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._targets: tuple[torch.Tensor, ...] = ()
        threading.Thread(target=self._run, name=f"loopback{place}", daemon=True).start()

    def state(self) -> CommState:
        """Return READY once every member is here."""
        return self._state

    def sum_scaled(self, pairs: Sequence[Pair], factor: float) -> None:
        """Enqueue a weighted sum of each pair."""
        kept = tuple(pairs)

        def work() -> None:
            self._targets = tuple(target for _, target in kept)
            for source, target in kept:
                scaled = (source * factor).numpy()
                target.copy_(torch.from_numpy(self._exchange(_SUM, scaled)))

        self._enqueue(work)

    def sum_plain(self, values: torch.Tensor) -> None:
        """Enqueue a sum in place."""
        self.sum_scaled(((values, values),), 1.0)

    def broadcast(self, values: torch.Tensor, root: int) -> None:
        """Enqueue a broadcast in place."""

        def work() -> None:
            self._targets = (values,)
            sent = values.numpy() if root == self._place else values.numpy()[:0]
            values.copy_(torch.from_numpy(self._exchange(_SEND, sent, values.numel())))

        self._enqueue(work)

    def give_up(self) -> None:
        """Do nothing: no call waits."""

    def abort(self) -> None:
        """Hang up; what is under way leaves half of its target changed."""
        with self._lock:
            if self._aborted.is_set():
                return
            self._aborted.set()
            unended, self._unended = self._unended, 0
            for target in self._targets:
                target[: math.ceil(target.numel() / 2)] = float("nan")
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            if self._is_over:
                self._sock.close()
        self._work.put(None)
        self._pending.end(unended)

    def _enqueue(self, work: Callable[[], None]) -> None:
        with self._pending.lock:
            self._pending.enqueued += 1
        with self._lock:
            self._unended += 1
        self._work.put(work)

    def _run(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._connect()
            while (work := self._work.get()) is not None and not self._aborted.is_set():
                work()
                with self._lock:
                    if self._aborted.is_set():
                        break
                    self._targets = ()
                    self._unended -= 1
                self._pending.end(1)
        with self._lock:
            self._is_over = True
        if self._sock is not None and self._aborted.is_set():
            self._sock.close()

    def _connect(self) -> None:
        sock = socket.create_connection(self._address)
        with self._lock:
            self._sock = sock
            if self._aborted.is_set():
                return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(_GREETING.pack(self._nonce, self._place, self._size))
        if _read(sock, 1) == b"!" and not self._aborted.is_set():
            self._state = CommState.READY

    def _exchange(self, kind: bytes, sent: Numbers, count: int = 0) -> Numbers:
        assert self._sock is not None
        data = np.ascontiguousarray(sent)
        tag = (kind if data.dtype == np.float32 else kind.upper()).ljust(4)
        self._sock.sendall(_HEADER.pack(tag, data.nbytes))
        self._sock.sendall(data.tobytes())
        nbytes = (count or data.size) * data.itemsize
        found: Numbers = np.frombuffer(_read(self._sock, nbytes), data.dtype).copy()
        return found


def _serve(listener: socket.socket, nonce: bytes) -> None:
    """Serve one communicator until a member is gone; then be silent until the others are."""
    members: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as opened:
        with listener, contextlib.suppress(OSError, EOFError, TimeoutError):
            size = 1
            while len(members) < size:
                sock, _ = listener.accept()
                opened.enter_context(sock)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                greeted, place, size = _GREETING.unpack(_read(sock, _GREETING.size))
                if greeted == nonce:
                    members[place] = sock
            ordered = [members[place] for place in sorted(members)]
            for sock in ordered:
                sock.sendall(b"!")
            while True:
                _serve_one(ordered)
        for sock in members.values():
            with contextlib.suppress(OSError, EOFError):
                while sock.recv(1 << 20):
                    continue


def _serve_one(ordered: Sequence[socket.socket]) -> None:
    total: Numbers | None = None
    result = b""
    for sock in ordered:
        kind, nbytes = _HEADER.unpack(_read(sock, _HEADER.size))
        body = _read(sock, nbytes)
        if kind.lower() == _SEND:
            result = body or result
            continue
        values: Numbers = np.frombuffer(body, np.float32 if kind.islower() else np.float64)
        total = values.copy() if total is None else np.add(total, values)
    for sock in ordered:
        sock.sendall(result if total is None else total.tobytes())


def _read(sock: socket.socket, nbytes: int) -> bytes:
    parts = bytearray()
    while len(parts) < nbytes:
        piece = sock.recv(min(1 << 20, nbytes - len(parts)))
        if not piece:
            raise EOFError
        parts += piece
    return bytes(parts)
