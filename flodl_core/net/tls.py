"""TLS 1.3 as a run speaks it: a certificate that lives as long as the run, and its fingerprint.

The launcher makes the certificate and its key anew for each run and keeps both in
memory only; the SHA-256 of the certificate travels with the join token. Whoever
dials compares the fingerprint right after the handshake and before a byte of its
own: no authority, name or date is believed. A run speaks TLS or it does not; no
peer can ask for less.

No sockets here: contexts for `tls_stream`, for httpx and for tests.
"""

import datetime
import hashlib
import hmac
import os
import ssl
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from flodl_core.net import shared_memory

FINGERPRINT_BYTES: Final = 32

_NAME: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "flodl run")])
_BEGINS: Final = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
_ENDS: Final = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)


class WrongFingerprintError(ssl.SSLError):
    """The other end has another certificate than the one that was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsIdentity:
    """What a launcher shows: its certificate, with the key to it."""

    fingerprint: bytes
    """SHA-256 of the certificate, 32 bytes; no secret."""
    context: ssl.SSLContext = field(repr=False)
    """Accepts TLS 1.3 and nothing less."""


def make_identity() -> TlsIdentity:
    """Make a certificate and its key, for one run; the key is in this process's memory only."""
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        x509.CertificateBuilder()
        .subject_name(_NAME)
        .issuer_name(_NAME)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGINS)
        .not_valid_after(_ENDS)
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + certificate.public_bytes(serialization.Encoding.PEM)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    _load(context, pem)
    return TlsIdentity(
        fingerprint=fingerprint_of(certificate.public_bytes(serialization.Encoding.DER)),
        context=context,
    )


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


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Give a context its key and certificate, which it takes from a file only: one without a name.

    Raises:
        OSError: there is no memory or no descriptor left.
    """
    fd = shared_memory.create_memfd("flodl certificate", len(pem))
    try:
        os.pwrite(fd, pem, 0)
        context.load_cert_chain(f"/dev/fd/{fd}")
    finally:
        os.close(fd)
