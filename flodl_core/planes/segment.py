"""One mapped memory file seen as arrays: what slots and staging segments have in common.

A `MappedSegment` knows byte offsets and hands out numpy views; it knows nothing of
rounds. The owner of the views closes it; a view that somebody still holds keeps
its pages alive and nothing else.
"""

import contextlib
import mmap
import os
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from flodl_core.errors import RemoteProtocolError
from flodl_core.net.shared_memory import create_memfd, map_fd

PAGE_BYTES: Final = 4096

F32: TypeAlias = npt.NDArray[np.float32]
F64: TypeAlias = npt.NDArray[np.float64]
I64: TypeAlias = npt.NDArray[np.int64]
U8: TypeAlias = npt.NDArray[np.uint8]
BF16: TypeAlias = npt.NDArray[np.uint16]
"""As 16-bit integers; numpy has no such type."""


def pages(nbytes: int) -> int:
    """Round `nbytes` up to whole pages."""
    return -(-nbytes // PAGE_BYTES) * PAGE_BYTES


class MappedSegment:
    """A memory file, mapped whole.

    Attributes:
        nbytes: size of the mapping.
        writable: whether its views may be written.
    """

    def __init__(self, mapping: mmap.mmap, *, fd: int | None, writable: bool) -> None:
        self._mapping: mmap.mmap | None = mapping
        self._fd = fd
        self.nbytes = len(mapping)
        self.writable = writable

    @classmethod
    def create(cls, name: str, nbytes: int) -> "MappedSegment":
        """Make a zeroed memory file and map it writable; the descriptor is kept for passing on."""
        fd = create_memfd(name, nbytes)
        try:
            return cls(map_fd(fd, nbytes, writable=True), fd=fd, writable=True)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def attach(cls, fd: int, nbytes: int) -> "MappedSegment":
        """Map a file made elsewhere, read-only. `fd` stays the caller's.

        Raises:
            RemoteProtocolError: the file does not have exactly `nbytes`.
        """
        size = os.fstat(fd).st_size
        if size != nbytes:
            raise RemoteProtocolError(
                f"a shared segment has {size} bytes, expected {nbytes} for this run's geometry",
                fix="start every process of the run from the same version of flodl and of the job",
            )
        return cls(map_fd(fd, nbytes, writable=False), fd=None, writable=False)

    @property
    def fd(self) -> int:
        """The descriptor to pass on; only where the file was made here and not yet forgotten."""
        if self._fd is None:
            raise RemoteProtocolError("this segment's descriptor is not held here")
        return self._fd

    def f32(self, offset_bytes: int, count: int) -> F32:
        """Return `count` f32 values that begin at `offset_bytes`."""
        return np.frombuffer(self._alive(), np.float32, count, offset_bytes)

    def f64(self, offset_bytes: int, count: int) -> F64:
        """Return `count` f64 values that begin at `offset_bytes`."""
        return np.frombuffer(self._alive(), np.float64, count, offset_bytes)

    def i64(self, offset_bytes: int, count: int) -> I64:
        """Return `count` 64-bit integers that begin at `offset_bytes`."""
        return np.frombuffer(self._alive(), np.int64, count, offset_bytes)

    def u8(self, offset_bytes: int, count: int) -> U8:
        """Return `count` bytes that begin at `offset_bytes`."""
        return np.frombuffer(self._alive(), np.uint8, count, offset_bytes)

    def forget_fd(self) -> None:
        """Close the descriptor; the mapping stays."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)

    def close(self) -> None:
        """Close the descriptor and the mapping; views still held keep the pages until they go."""
        self.forget_fd()
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            with contextlib.suppress(BufferError):
                mapping.close()

    def _alive(self) -> mmap.mmap:
        if self._mapping is None:
            raise RemoteProtocolError("this segment is closed")
        return self._mapping
