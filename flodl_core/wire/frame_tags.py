"""How the body of a frame is proved, and under --tls hidden: no tag, HMAC-SHA256, AES-128-GCM.

    none   payload                                inherited socketpairs
    HMAC   payload | HMAC-SHA256 (32 bytes)       JOIN, and MUX as a rule
    GCM    ciphertext | tag (16 bytes)            MUX of a run with --tls

Each covers header and payload. GCM's nonce is four zero bytes and the frame's
number, the numbers and the key being those of the pieces of buckets too, so that
no nonce occurs twice under a key.

No peer chooses among them: which one a connection has is known to both ends before
its first byte. What a failure means is said by `flodl_core.wire.frame`, which drives
it.
"""

import hmac
from typing import Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

HMAC_TAG_BYTES: Final = 32
GCM_TAG_BYTES: Final = 16


class FrameGuard(Protocol):
    """What proves the frames of one direction."""

    tag_bytes: int
    """Bytes that it adds to a payload."""

    def close(self, header: bytes, counter: int, payload: bytes) -> bytes:
        """Return the whole frame."""
        ...

    def open_untrusted(
        self, header: bytes, counter: int, body: memoryview
    ) -> bytes | memoryview | None:
        """Return the payload of a body, or None where its tag does not hold."""
        ...


class NoTag:
    """Frames within one machine, between processes that started each other."""

    tag_bytes = 0

    def close(self, header: bytes, counter: int, payload: bytes) -> bytes:
        """Return the whole frame."""
        return header + payload

    def open_untrusted(
        self, header: bytes, counter: int, body: memoryview
    ) -> bytes | memoryview | None:
        """Return the body, which is the payload."""
        return body


class HmacTag:
    """Frames that everybody on the way may read and nobody may change.

    Args:
        key: 32 bytes, of this connection and direction.
    """

    tag_bytes = HMAC_TAG_BYTES

    def __init__(self, key: bytes) -> None:
        self._mac = hmac.new(key, digestmod="sha256")

    def close(self, header: bytes, counter: int, payload: bytes) -> bytes:
        """Return the whole frame."""
        return b"".join((header, payload, self._digest(header, payload)))

    def open_untrusted(
        self, header: bytes, counter: int, body: memoryview
    ) -> bytes | memoryview | None:
        """Return the payload of a body, or None where its tag does not hold."""
        payload, tag = body[:-HMAC_TAG_BYTES], body[-HMAC_TAG_BYTES:]
        return payload if hmac.compare_digest(self._digest(header, payload), tag) else None

    def _digest(self, header: bytes, payload: bytes | memoryview) -> bytes:
        mac = self._mac.copy()
        mac.update(header)
        mac.update(payload)
        return mac.digest()


class GcmSeal:
    """Frames whose payload only the other end can read.

    Args:
        key: 16 bytes, of this connection and direction; the one of its buckets.
    """

    tag_bytes = GCM_TAG_BYTES

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    def close(self, header: bytes, counter: int, payload: bytes) -> bytes:
        """Return the whole frame."""
        return header + self._cipher.encrypt(counter.to_bytes(12, "big"), payload, header)

    def open_untrusted(
        self, header: bytes, counter: int, body: memoryview
    ) -> bytes | memoryview | None:
        """Return the payload of a body, or None where its tag does not hold."""
        try:
            return self._cipher.decrypt(counter.to_bytes(12, "big"), body, header)
        except InvalidTag:
            return None


def frame_guard(hmac_key: bytes | None, gcm_key: bytes | None = None) -> FrameGuard:
    """Return the guard of a direction: GCM where its key is given, else HMAC, else none."""
    if gcm_key is not None:
        return GcmSeal(gcm_key)
    return NoTag() if hmac_key is None else HmacTag(hmac_key)
