"""What a rank and its loader's processes say to each other, over inherited stream sockets.

Three short languages: rank → server (an order, then one record for each worker to
start, with its socket), server → rank (which worker runs as which process, and how
one ended), rank ⇄ worker (which samples to read; the batch, or why not). Not the
wire of the run: these sockets have no name, and both ends are one rank's own.
"""

import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import torch
from pydantic import TypeAdapter

from flodl_core.errors import LocalProtocolError
from flodl_core.messages.job import JobRef
from flodl_core.training.batch_codec import MAX_BUFFERS, MAX_HEAD_BYTES, EncodedBatch
from flodl_core.training.samples import BatchPlace

_ORDER_LENGTH = struct.Struct("<I")
_START = struct.Struct("<i")
_NEWS = struct.Struct("<Biii")
_REQUEST = struct.Struct("<qqI")
_REPLY = struct.Struct("<BII")

Allocate = Callable[[int], torch.Tensor]
"""Gives flat memory of so many bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderOrder:
    """What a rank's loader workers read."""

    job: JobRef
    job_path: Path | None
    seed: int
    """Of the run."""
    dataset_seed: int
    """What the generators are seeded with before the data are built."""
    n_samples: int
    threads: int
    """Of the tensor library, as the rank has."""


class NewsKind(IntEnum):
    """What the server tells of a worker."""

    STARTED = 1
    ENDED = 2


@dataclass(frozen=True, slots=True)
class WorkerNews:
    """One word of the server.

    Attributes:
        kind: started or ended.
        index: of the worker, 0 … workers - 1.
        pid: its process.
        code: how it ended: exit code, or minus the signal's number; 0 when it started.
    """

    kind: NewsKind
    index: int
    pid: int
    code: int


class ReplyKind(IntEnum):
    """What a worker answers."""

    READY = 1
    BATCH = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a worker.

    Attributes:
        kind: ready with its data, a batch, or a failure.
        head: of the batch, or the packed texts of the failure.
        buffers: of the batch.
    """

    kind: ReplyKind
    head: bytes
    buffers: tuple[torch.Tensor, ...]

    def texts(self) -> tuple[str, str]:
        """Return a failure's line and its traceback."""
        line, traceback = msgpack.unpackb(self.head)
        return line, traceback


# -- rank and server -----------------------------------------------------------------


def send_order(control: socket.socket, order: LoaderOrder) -> None:
    """Tell the server what its workers read; once, first."""
    body = TypeAdapter(LoaderOrder).dump_json(order)
    control.sendall(_ORDER_LENGTH.pack(len(body)) + body)


def receive_order(control: socket.socket) -> LoaderOrder:
    """Return what the workers read.

    Raises:
        EOFError: the rank is gone.
    """
    (length,) = _ORDER_LENGTH.unpack(receive_exactly(control, _ORDER_LENGTH.size))
    return TypeAdapter(LoaderOrder).validate_json(receive_exactly(control, length))


def send_start(control: socket.socket, index: int, worker: socket.socket) -> None:
    """Have the server start a worker that serves the socket; the caller closes its own copy."""
    socket.send_fds(control, [_START.pack(index)], [worker.fileno()])


def receive_start(control: socket.socket) -> tuple[int, int] | None:
    """Return the number and the socket's descriptor of a worker to start; None at the end."""
    data, fds, _, _ = socket.recv_fds(control, _START.size, 1)
    if not data:
        return None
    if len(data) < _START.size:
        data += receive_exactly(control, _START.size - len(data))
    (index,) = _START.unpack(data)
    if len(fds) != 1:
        raise LocalProtocolError(f"a loader worker to start came with {len(fds)} sockets, not 1")
    return index, fds[0]


def send_news(control: socket.socket, news: WorkerNews) -> None:
    """Tell the rank what became of a worker."""
    control.sendall(_NEWS.pack(news.kind, news.index, news.pid, news.code))


def receive_news(control: socket.socket) -> WorkerNews:
    """Return the server's next word.

    Raises:
        EOFError: the server is gone.
    """
    kind, index, pid, code = _NEWS.unpack(receive_exactly(control, _NEWS.size))
    return WorkerNews(NewsKind(kind), index, pid, code)


# -- rank and worker -----------------------------------------------------------------


def send_request(sock: socket.socket, place: BatchPlace, ids: list[int]) -> None:
    """Ask a worker for a batch."""
    packed = np.asarray(ids, np.int64).tobytes()
    sock.sendall(_REQUEST.pack(place.pass_index, place.offset, place.size) + packed)


def receive_request(sock: socket.socket) -> tuple[BatchPlace, list[int]] | None:
    """Return the next batch to read and its samples' ids; None when there will be none."""
    try:
        place = BatchPlace(*_REQUEST.unpack(receive_exactly(sock, _REQUEST.size)))
        packed = receive_exactly(sock, 8 * place.size)
    except (EOFError, ConnectionError):
        return None
    ids: list[int] = np.frombuffer(packed, np.int64).tolist()
    return place, ids


def send_ready(sock: socket.socket) -> None:
    """Say that the data are there."""
    sock.sendall(_REPLY.pack(ReplyKind.READY, 0, 0))


def send_batch(sock: socket.socket, batch: EncodedBatch) -> None:
    """Hand over a batch, whole or not at all while both ends live."""
    lengths = np.asarray([len(buffer) for buffer in batch.buffers], np.int64).tobytes()
    header = _REPLY.pack(ReplyKind.BATCH, len(batch.head), len(batch.buffers))
    sock.sendall(header + lengths + batch.head)
    for buffer in batch.buffers:
        sock.sendall(buffer)


def send_failure(sock: socket.socket, line: str, traceback: str) -> None:
    """Say in one line why there is no batch, or no data; the traceback goes to the rank's log."""
    head = msgpack.packb([line, traceback], unicode_errors="backslashreplace")
    sock.sendall(_REPLY.pack(ReplyKind.FAILED, len(head), 0) + head)


def receive_reply(sock: socket.socket, allocate: Allocate) -> Reply:
    """Return a worker's next answer, its values received into memory of `allocate`.

    Raises:
        EOFError: the worker is gone.
        ConnectionError: the same, in the middle.
        LocalProtocolError: the answer is of no form that a worker gives.
    """
    kind, head_bytes, count = _REPLY.unpack(receive_exactly(sock, _REPLY.size))
    if head_bytes > MAX_HEAD_BYTES or count > MAX_BUFFERS:
        raise LocalProtocolError(
            f"a loader worker announced a head of {head_bytes} bytes and {count} buffers"
        )
    lengths: Any = np.frombuffer(receive_exactly(sock, 8 * count), np.int64).tolist()
    head = receive_exactly(sock, head_bytes)
    buffers = []
    for length in lengths:
        memory = allocate(length)
        _receive_into(sock, memory.numpy().data)
        buffers.append(memory)
    return Reply(ReplyKind(kind), bytes(head), tuple(buffers))


def receive_exactly(sock: socket.socket, count: int) -> bytes:
    """Return `count` bytes.

    Raises:
        EOFError: the other end closed before.
    """
    data = bytearray(count)
    _receive_into(sock, memoryview(data))
    return bytes(data)


def _receive_into(sock: socket.socket, target: memoryview) -> None:
    while len(target):
        received = sock.recv_into(target)
        if not received:
            raise EOFError("the other end of a loader's socket closed")
        target = target[received:]
