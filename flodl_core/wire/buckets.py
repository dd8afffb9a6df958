"""Sealed buckets: values between hosts in pieces, through kept buffers.

A bucket is an encoded BucketFrame and the values that follow it. The frame is
the first piece, the values are the next ones, at most PIECE_BYTES each, so that
values are sealed straight from where they lie. A piece is

    header (kind BUCKET_KIND, counter, length) | index u32
    ciphertext (length bytes) | AES-128-GCM tag (16 bytes)

with header and index as associated data. The nonce is four zero bytes and the
direction's counter, the one that message frames of this connection take too, so
that no nonce occurs twice under a key and nothing can be moved or replayed. A
piece is numbered and sealed when it is asked for, never ahead.

Opened bytes land in a scratch first and go to their place only when the tag
held. No sockets, and no arithmetic on values: net writes and reads the pieces.
"""

from collections.abc import Callable, Iterator
from math import isfinite
from struct import Struct
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from flodl_core.errors import BadFrameError, FlodlError, LocalProtocolError
from flodl_core.messages import NUMBERS
from flodl_core.messages.data import BucketFrame
from flodl_core.units import BUCKET_BYTES, PIECE_BYTES
from flodl_core.wire.codec import decode_untrusted, encode
from flodl_core.wire.frame import (
    BUCKET_KIND,
    HEADER_BYTES,
    TAG_BYTES,
    Header,
    ReceiveCounter,
    SendCounter,
    TagError,
)

VALUE_BYTES: Final = {"f32": 4, "f64": 8, "bf16": 2}
"""The dtypes that travel and the bytes of one value."""

_INDEX: Final = Struct("!I")
_GCM_TAG_BYTES: Final = 16
_ASSOCIATED_BYTES: Final = HEADER_BYTES + _INDEX.size
PIECE_OVERHEAD_BYTES: Final = _INDEX.size + _GCM_TAG_BYTES
"""What follows the header besides the values: index and tag."""
MAX_PIECE_BODY_BYTES: Final = PIECE_BYTES + max(PIECE_OVERHEAD_BYTES, TAG_BYTES)
"""The largest body of a piece or a message frame; a receive buffer of this size fits all."""

_CLOSE: Final = "the connection is closed; if this repeats, look for what alters bytes on the way"


def piece_body_bytes(header: Header) -> int:
    """Bytes that follow this header of a piece: index, ciphertext and tag."""
    return header.length + PIECE_OVERHEAD_BYTES


class BucketSealer:
    """Seals the buckets of one direction of a connection.

    Args:
        gcm_key: 16 bytes, of this connection and direction.
        counter: the direction's counter, shared with its FrameSealer.
    """

    def __init__(self, gcm_key: bytes, counter: SendCounter) -> None:
        self._cipher = AESGCM(gcm_key)
        self._counter = counter
        self._out = memoryview(bytearray(_ASSOCIATED_BYTES + PIECE_BYTES + _GCM_TAG_BYTES))

    def iter_pieces(self, frame: BucketFrame, values: memoryview) -> Iterator[list[memoryview]]:
        """Seal a bucket piece by piece.

        Write the buffers of each step, in order, before taking the next step:
        they are reused. Message frames may be sealed and written between steps.

        Args:
            frame: what the bucket is; `nbytes` 0 declares that no values follow.
            values: `frame.nbytes` bytes, contiguous; unchanged until the last
                piece is written.

        Raises:
            LocalProtocolError: frame and values do not fit together, or the
                frame is one that a receiver refuses.
        """
        flat = _flatten(values)
        flaw = _flaw_of(frame)
        if flaw is None and flat.nbytes != frame.nbytes:
            flaw = f"it says {frame.nbytes} bytes and {flat.nbytes} were given"
        if flaw is not None:
            raise LocalProtocolError(f"a bucket cannot be sent: {flaw}", fix="send a valid bucket")
        return self._iter_sealed(encode(frame)[1], flat)

    def _iter_sealed(self, first: bytes, values: memoryview) -> Iterator[list[memoryview]]:
        total = values.nbytes
        yield [self._seal(first, 0, more=total > 0)]
        for index, start in enumerate(range(0, total, PIECE_BYTES), start=1):
            piece = values[start : start + PIECE_BYTES]
            yield [self._seal(piece, index, more=start + PIECE_BYTES < total)]

    def _seal(self, piece: bytes | memoryview, index: int, *, more: bool) -> memoryview:
        counter = self._counter.take()
        header = Header(BUCKET_KIND, more, counter, len(piece))
        associated = header.pack() + _INDEX.pack(index)
        end = _ASSOCIATED_BYTES + len(piece) + _GCM_TAG_BYTES
        self._out[:_ASSOCIATED_BYTES] = associated
        self._cipher.encrypt_into(
            _nonce(counter), piece, associated, self._out[_ASSOCIATED_BYTES:end]
        )
        return self._out[:end].toreadonly()


class BucketOpener:
    """Opens the buckets of one direction of a connection.

    Args:
        gcm_key: 16 bytes, of this connection and direction.
        counter: the direction's counter, shared with its FrameOpener.
        place: called once a bucket that has values, before any of them is
            opened; gives `frame.nbytes` writable contiguous bytes for them.
        max_bucket: largest bucket accepted, in bytes.
    """

    def __init__(
        self,
        gcm_key: bytes,
        counter: ReceiveCounter,
        *,
        place: Callable[[BucketFrame], memoryview],
        max_bucket: int = BUCKET_BYTES,
    ) -> None:
        self._cipher = AESGCM(gcm_key)
        self._counter = counter
        self._place = place
        self._max_bucket = max_bucket
        self._scratch = memoryview(bytearray(PIECE_BYTES))
        self._frame: BucketFrame | None = None
        self._target = memoryview(b"")
        self._index = 0
        self._filled = 0
        self._error: str | None = None

    @property
    def at_boundary(self) -> bool:
        """Whether no bucket is unfinished, so that an end here is a clean end."""
        return self._frame is None and self._error is None

    def open_piece_untrusted(
        self, header: Header, body: bytes | bytearray | memoryview
    ) -> BucketFrame | None:
        """Verify one piece, `body` being its `piece_body_bytes(header)` bytes.

        Returns:
            The frame if the bucket is complete now, else None.

        Raises:
            BadFrameError: the piece is not the next one, its tag does not hold,
                or it does not fit the bucket; the connection must be closed.
            LocalProtocolError: `place` gave no room of the right size.
        """
        if self._error is not None:
            raise BadFrameError(f"the connection failed before: {self._error}", fix=_CLOSE)
        try:
            return self._advance(header, self._open(header, body))
        except FlodlError as error:
            self._error = error.happened
            raise

    def _open(self, header: Header, body: bytes | bytearray | memoryview) -> memoryview:
        """Decrypt into the scratch and return the opened part of it."""
        if header.kind != BUCKET_KIND or len(body) != piece_body_bytes(header):
            raise LocalProtocolError(
                f"{len(body)} bytes were given as a piece of a bucket for {header}",
                fix="read piece_body_bytes(header) bytes after a header of BUCKET_KIND",
            )
        self._counter.check_untrusted(header.counter)
        if self._frame is not None and header.length > self._frame.nbytes - self._filled:
            raise BadFrameError("a bucket has more values than its frame says", fix=_CLOSE)
        view = memoryview(body)
        (index,) = _INDEX.unpack_from(view)
        if index != self._index:
            raise BadFrameError(f"piece {index} of a bucket came, not {self._index}", fix=_CLOSE)
        opened = self._scratch[: header.length]
        associated = header.pack() + _INDEX.pack(index)
        try:
            self._cipher.decrypt_into(
                _nonce(header.counter), view[_INDEX.size :], associated, opened
            )
        except InvalidTag:
            raise TagError(f"the tag of piece {header.counter} does not hold", fix=_CLOSE) from None
        self._counter.advance()
        return opened

    def _advance(self, header: Header, opened: memoryview) -> BucketFrame | None:
        if self._frame is None:
            self._begin(bytes(opened), more=header.more)
        else:
            if len(opened) == 0:
                raise BadFrameError("an empty piece of a bucket came", fix=_CLOSE)
            self._target[self._filled : self._filled + len(opened)] = opened
            self._filled += len(opened)
        frame = self._frame
        assert frame is not None
        self._index += 1
        if header.more:
            if self._filled == frame.nbytes:
                raise BadFrameError("a bucket goes on after its last value", fix=_CLOSE)
            return None
        if self._filled != frame.nbytes:
            raise BadFrameError(
                f"a bucket ended with {self._filled} of {frame.nbytes} bytes", fix=_CLOSE
            )
        self._frame, self._target = None, memoryview(b"")
        self._index = self._filled = 0
        return frame

    def _begin(self, payload: bytes, *, more: bool) -> None:
        frame = decode_untrusted(NUMBERS[BucketFrame], payload)
        assert isinstance(frame, BucketFrame)
        flaw = _flaw_of(frame)
        if flaw is None and frame.nbytes > self._max_bucket:
            flaw = f"it says {frame.nbytes} bytes, at most {self._max_bucket} are accepted"
        if flaw is None and more != (frame.nbytes > 0):
            flaw = "its frame and its first piece disagree on whether values follow"
        if flaw is not None:
            raise BadFrameError(
                f"a bucket cannot be used: {flaw}", fix="run the same flodl version on every host"
            )
        if frame.nbytes > 0:
            target = _flatten(self._place(frame))
            if target.readonly or target.nbytes != frame.nbytes:
                raise LocalProtocolError(
                    f"{target.nbytes} bytes of room were given for a bucket of {frame.nbytes}",
                    fix="give exactly frame.nbytes writable bytes",
                )
            self._target = target
        self._frame = frame


def _nonce(counter: int) -> bytes:
    return counter.to_bytes(12, "big")


def _flatten(values: memoryview) -> memoryview:
    """The same memory as single bytes."""
    if not values.c_contiguous:
        raise LocalProtocolError(
            "the values of a bucket are not contiguous", fix="give a contiguous buffer"
        )
    # A buffer of no bytes has no shape that cast could keep.
    return values.cast("B") if values.nbytes else memoryview(b"")


def _flaw_of(frame: BucketFrame) -> str | None:
    """Why nobody can use this frame, or None."""
    width = VALUE_BYTES.get(frame.dtype)
    if width is None:
        return f"dtype {frame.dtype[:20]!r} is none of {', '.join(VALUE_BYTES)}"
    if frame.nbytes < 0 or frame.nbytes % width:
        return f"{frame.nbytes} bytes are no whole number of {frame.dtype} values"
    if not 0 <= frame.index < frame.count:
        return f"it is bucket {frame.index} of {frame.count}"
    if not isfinite(frame.mass) or frame.mass < 0:
        return f"its mass is {frame.mass}"
    if frame.cycle < 0:
        return f"it belongs to cycle {frame.cycle}"
    if any(low >= high for low, high in zip(frame.ranks, frame.ranks[1:], strict=False)):
        return "its ranks are not ascending"
    if frame.ranks and frame.ranks[0] < 0:
        return f"it holds rank {frame.ranks[0]}"
    return None
