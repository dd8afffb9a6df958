"""TLS 1.3 as a run speaks it, for who dials: one certificate is trusted, by its fingerprint.

Whoever dials compares the fingerprint right after the handshake and before a byte of its
own: no authority, name or date is believed. A run speaks TLS or it does not; no peer can
ask for less. The launcher's side is `tls_identity`, which nobody else loads.

No sockets here: contexts for `tls_stream`, for httpx and for tests.
"""

import hashlib
import hmac
import ssl
from typing import Final

FINGERPRINT_BYTES: Final = 32


class WrongFingerprintError(ssl.SSLError):
    """The other end has another certificate than the one that was asked for."""


def fingerprint_of(certificate: bytes) -> bytes:
    """Return the fingerprint of a certificate in DER."""
    return hashlib.sha256(certificate).digest()


def pinned_context(fingerprint: bytes | None) -> ssl.SSLContext:
    """Return a client's context that trusts one certificate and nothing else.

    A handshake with any other end raises `WrongFingerprintError` before the client
    has sent a byte of its own; httpx may be given the context as it is.

    Args:
        fingerprint: 32 bytes. None trusts anybody, for asking who is there.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if fingerprint is None:
        return context
    wanted = fingerprint

    class PinnedSocket(ssl.SSLSocket):
        """For clients that block, such as httpx.Client."""

        def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - ssl's own
            super().do_handshake(block)
            _compare(self.getpeercert(binary_form=True), wanted)

    class PinnedObject(ssl.SSLObject):
        """For event loops."""

        def do_handshake(self) -> None:
            super().do_handshake()
            _compare(self.getpeercert(binary_form=True), wanted)

    context.sslsocket_class = PinnedSocket
    context.sslobject_class = PinnedObject
    return context


def _compare(shown: bytes | None, wanted: bytes) -> None:
    if shown is None or not hmac.compare_digest(fingerprint_of(shown), wanted):
        raise WrongFingerprintError("another certificate than the one that the token names")
