"""Frames: header, payload, tag; one counter a direction; a bounded assembler.

    magic "FLO1" | version u8 | flags u8 | kind u16 | counter u64 | length u32
    payload (length bytes) | HMAC-SHA256 over header and payload (32 bytes)

All numbers are big endian. On inherited socketpairs there is no key and no
tag; on MUX connections of a run with --tls the payload is sealed instead
(flodl_core.wire.frame_tags).

A payload above PIECE_BYTES travels as consecutive frames of its kind, all but the
last with the flag MORE; each takes its own number and has its own tag, and pieces
of buckets (flodl_core.wire.buckets) may go in between, so that one connection has
one counter in each direction. A receiver accepts exactly the next number, so that
a lost, doubled, moved or foreign frame is an error.

No sockets: `seal` and `pieces` give bytes to write, `feed_untrusted` takes bytes
that came. A thread that reads a socket itself reads HEADER_BYTES, then
`parse_header_untrusted`, then `body_bytes`, then `open_untrusted`.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from flodl_core.errors import BadFrameError, LocalProtocolError
from flodl_core.units import MAX_PAYLOAD_BYTES, PIECE_BYTES
from flodl_core.wire.frame_tags import HMAC_TAG_BYTES, frame_guard

MAGIC: Final = b"FLO1"
VERSION: Final = 1
MORE: Final = 0x01
"""Flag: the next frame of this kind goes on with this payload."""
TAG_BYTES: Final = HMAC_TAG_BYTES
BUCKET_KIND: Final = 0xFFFF
"""Kind of a sealed piece of a bucket; no message has it."""

_HEADER: Final = Struct("!4sBBHQI")
HEADER_BYTES: Final = _HEADER.size

_SAME_VERSION: Final = "run the same flodl version on every host"
_CLOSE: Final = "the connection is closed; if this repeats, look for what alters bytes on the way"


class TagError(BadFrameError):
    """A frame of our magic and version whose tag does not hold."""


class Frame(NamedTuple):
    """One whole payload, verified."""

    kind: int
    payload: bytes


class Header(NamedTuple):
    """What stands before each payload or piece."""

    kind: int
    more: bool
    """More pieces of this payload or bucket follow."""
    counter: int
    length: int
    """Bytes of payload, without index, tag or header."""

    def pack(self) -> bytes:
        """The HEADER_BYTES bytes of it."""
        flags = MORE if self.more else 0
        return _HEADER.pack(MAGIC, VERSION, flags, self.kind, self.counter, self.length)


class SendCounter:
    """Numbers for what one direction of a connection sends."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def take(self) -> int:
        """The next number; it must be written before another is taken."""
        number = self._next
        if number >= 2**64:
            raise LocalProtocolError(
                "a connection has used up its 64-bit counter", fix="reconnect for new keys"
            )
        self._next = number + 1
        return number


class ReceiveCounter:
    """What one direction of a connection must send next."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def check_untrusted(self, counter: int) -> None:
        """Check that a header has exactly the next number; changes nothing.

        Raises:
            BadFrameError: it has another.
        """
        if counter != self._next:
            raise BadFrameError(f"frame {counter} came, {self._next} was next", fix=_CLOSE)

    def advance(self) -> None:
        """The frame with the next number was verified."""
        self._next += 1


def parse_header_untrusted(data: bytes | bytearray | memoryview) -> Header:
    """Read the first HEADER_BYTES of `data`.

    Raises:
        BadFrameError: not our magic, another version, an unknown flag, or a
            length above PIECE_BYTES.
    """
    magic, version, flags, kind, counter, length = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BadFrameError(
            f"{magic!r} came where a frame begins with {MAGIC!r}",
            fix="check that the address and port are those of a flodl process",
        )
    if version != VERSION:
        raise BadFrameError(f"a frame of version {version} came, not {VERSION}", fix=_SAME_VERSION)
    if flags & ~MORE:
        raise BadFrameError(f"a frame has the unknown flags 0x{flags:02x}", fix=_SAME_VERSION)
    if length > PIECE_BYTES:
        raise BadFrameError(
            f"a frame claims {length} bytes, at most {PIECE_BYTES} travel in one piece",
            fix=_SAME_VERSION,
        )
    return Header(kind, bool(flags & MORE), counter, length)


class FrameSealer:
    """Turns payloads into frames of one direction.

    Args:
        hmac_key: 32 bytes, or None on an inherited socketpair.
        counter: the direction's counter, when bucket pieces share it.
        gcm_key: 16 bytes, where payloads are sealed instead of tagged.
    """

    def __init__(
        self,
        hmac_key: bytes | None,
        counter: SendCounter | None = None,
        *,
        gcm_key: bytes | None = None,
    ) -> None:
        self._guard = frame_guard(hmac_key, gcm_key)
        self._counter = SendCounter() if counter is None else counter

    def seal(self, kind: int, payload: bytes) -> bytes:
        """All frames of one payload, to be written at once and in order.

        Raises:
            LocalProtocolError: see `pieces`.
        """
        return b"".join(self.pieces(kind, payload))

    def pieces(self, kind: int, payload: bytes) -> Iterator[bytes]:
        """One frame after the other, each numbered when it is asked for.

        Write each before asking for the next; pieces of buckets may go in
        between, frames of other payloads may not.

        Raises:
            LocalProtocolError: the payload is above MAX_PAYLOAD_BYTES, or the
                kind is not that of a message.
        """
        if not 0 <= kind < BUCKET_KIND:
            raise LocalProtocolError(f"{kind} is no kind of a message", fix="use codec.encode")
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise LocalProtocolError(
                f"a payload of {len(payload)} bytes is above the {MAX_PAYLOAD_BYTES} allowed",
                fix="send less in one message",
            )
        return self._frames(kind, payload)

    def _frames(self, kind: int, payload: bytes) -> Iterator[bytes]:
        for start in range(0, max(len(payload), 1), PIECE_BYTES):
            piece = payload[start : start + PIECE_BYTES]
            more = start + PIECE_BYTES < len(payload)
            counter = self._counter.take()
            header = Header(kind, more, counter, len(piece)).pack()
            yield self._guard.close(header, counter, piece)


class FrameOpener:
    """Turns the bytes of one direction back into payloads.

    It holds at most one piece and one unfinished payload, and never more bytes
    than came. After an error it stays in error.

    Args:
        hmac_key: 32 bytes, or None on an inherited socketpair.
        counter: the direction's counter, when bucket pieces share it.
        max_payload: largest payload accepted, in bytes.
        gcm_key: 16 bytes, where payloads are sealed instead of tagged.
    """

    def __init__(
        self,
        hmac_key: bytes | None,
        counter: ReceiveCounter | None = None,
        *,
        max_payload: int = MAX_PAYLOAD_BYTES,
        gcm_key: bytes | None = None,
    ) -> None:
        self._guard = frame_guard(hmac_key, gcm_key)
        self._counter = ReceiveCounter() if counter is None else counter
        self._max_payload = max_payload
        self._buffer = bytearray()
        self._header: Header | None = None
        self._unfinished: tuple[int, bytearray] | None = None
        self._error: str | None = None

    @property
    def at_boundary(self) -> bool:
        """Whether an end of the stream here is a clean end."""
        return not self._buffer and self._unfinished is None and self._error is None

    def body_bytes(self, header: Header) -> int:
        """Bytes that follow this header of a message: payload and tag."""
        return header.length + self._guard.tag_bytes

    def feed_untrusted(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Take bytes as they came and return the payloads that are now whole.

        Raises:
            BadFrameError: the bytes are no frames of this direction; the
                connection must be closed.
        """
        self._raise_if_failed()
        self._buffer += data
        frames: list[Frame] = []
        position = 0
        with memoryview(self._buffer) as view:
            while True:
                if self._header is None:
                    if len(view) - position < HEADER_BYTES:
                        break
                    self._header = self._begin_untrusted(view[position : position + HEADER_BYTES])
                end = position + HEADER_BYTES + self.body_bytes(self._header)
                if len(view) < end:
                    break
                with view[position + HEADER_BYTES : end] as body:
                    frame = self.open_untrusted(self._header, body)
                self._header = None
                position = end
                if frame is not None:
                    frames.append(frame)
        del self._buffer[:position]
        return frames

    def open_untrusted(self, header: Header, body: bytes | bytearray | memoryview) -> Frame | None:
        """Verify one frame, `body` being its `body_bytes(header)` bytes.

        Returns:
            The payload if this was its last piece, else None.

        Raises:
            BadFrameError: it is not the next frame, its tag does not hold, or
                it does not go on with the payload that was begun.
        """
        try:
            return self._open(header, body)
        except BadFrameError as error:
            self._fail(error)
            raise

    def _begin_untrusted(self, data: memoryview) -> Header:
        """Refuse a frame from its header, before its body has come."""
        try:
            header = parse_header_untrusted(data)
            self._check(header)
        except BadFrameError as error:
            self._fail(error)
            raise
        return header

    def _check(self, header: Header) -> None:
        if header.kind == BUCKET_KIND:
            raise BadFrameError("a piece of a bucket came on a channel without", fix=_SAME_VERSION)
        self._counter.check_untrusted(header.counter)
        begun = 0
        if self._unfinished is not None:
            if header.kind != self._unfinished[0]:
                raise BadFrameError(
                    f"a frame of kind {header.kind} came inside one of kind {self._unfinished[0]}",
                    fix=_CLOSE,
                )
            begun = len(self._unfinished[1])
        if header.more and header.length != PIECE_BYTES:
            raise BadFrameError(
                f"a piece of {header.length} bytes says that more follow; only full ones may",
                fix=_SAME_VERSION,
            )
        if begun + header.length > self._max_payload:
            raise BadFrameError(
                f"a payload of {begun + header.length} bytes or more came, "
                f"at most {self._max_payload} are accepted here",
                fix=_SAME_VERSION,
            )

    def _open(self, header: Header, body: bytes | bytearray | memoryview) -> Frame | None:
        self._raise_if_failed()
        self._check(header)
        if len(body) != self.body_bytes(header):
            raise LocalProtocolError(
                f"{len(body)} bytes were given as the body of a frame with "
                f"{self.body_bytes(header)}",
                fix="read body_bytes(header) bytes",
            )
        with memoryview(body) as view:
            payload = self._guard.open_untrusted(header.pack(), header.counter, view)
            if payload is None:
                raise TagError(f"the tag of frame {header.counter} does not hold", fix=_CLOSE)
            self._counter.advance()
            return self._join(header, payload)

    def _join(self, header: Header, payload: bytes | memoryview) -> Frame | None:
        if self._unfinished is None:
            if not header.more:
                return Frame(header.kind, bytes(payload))
            self._unfinished = (header.kind, bytearray(payload))
            return None
        kind, begun = self._unfinished
        begun += payload
        if header.more:
            return None
        self._unfinished = None
        return Frame(kind, bytes(begun))

    def _fail(self, error: BadFrameError) -> None:
        if self._error is None:
            self._error = error.happened
            self._header = None
            self._unfinished = None

    def _raise_if_failed(self) -> None:
        if self._error is not None:
            raise BadFrameError(f"the connection failed before: {self._error}", fix=_CLOSE)
