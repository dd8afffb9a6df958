"""The session salt on its way to an agent: sealed with the JOIN connection's gcm key.

Nonces are "salt" and a number of their own, so that they never meet those of
bucket pieces, which begin with four zero bytes. JoinLink drives it.
"""

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from flodl_core.wire.frame import SendCounter, TagError

SALT_BYTES: Final = 16
SEALED_SALT_BYTES: Final = SALT_BYTES + 16

_ASSOCIATED: Final = b"flodl 1 session salt"


class SaltSealer:
    """Seals the salts that one end of a connection sends; keep one a connection."""

    def __init__(self, gcm_key: bytes) -> None:
        self._cipher = AESGCM(gcm_key)
        self._counter = SendCounter()

    def seal(self, salt: bytes) -> bytes:
        """The sealed salt, for Accept.salt."""
        return self._cipher.encrypt(_nonce(self._counter.take()), salt, _ASSOCIATED)


class SaltOpener:
    """Opens the salts that the other end sends, in their order."""

    def __init__(self, gcm_key: bytes) -> None:
        self._cipher = AESGCM(gcm_key)
        self._next = 0

    def open_untrusted(self, sealed: bytes) -> bytes:
        """The salt.

        Raises:
            BadFrameError: it was not sealed with this connection's key, or not
                as the next one.
        """
        try:
            salt = self._cipher.decrypt(_nonce(self._next), sealed, _ASSOCIATED)
        except InvalidTag:
            raise TagError("the seal of the session salt does not hold", fix="join again") from None
        self._next += 1
        return salt


def _nonce(number: int) -> bytes:
    return b"salt" + number.to_bytes(8, "big")
