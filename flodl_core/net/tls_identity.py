"""The certificate that a launcher shows, with the key to it.

The launcher makes the certificate and its key anew for each run and keeps both in memory
only, unless it was given a pair to show in every run; the SHA-256 of the certificate travels
with the join token. Who dials compares it (`tls`).

No sockets and no files of the user's here: a context for `tls_stream` and for tests.
"""

import datetime
import os
import ssl
from dataclasses import dataclass, field
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from flodl_core.net import shared_memory
from flodl_core.net.tls import fingerprint_of

_NAME: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "flodl run")])
_BEGINS: Final = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)
_ENDS: Final = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsIdentity:
    """What a launcher shows: its certificate, with the key to it."""

    fingerprint: bytes
    """SHA-256 of the certificate, 32 bytes; no secret."""
    context: ssl.SSLContext = field(repr=False)
    """Accepts TLS 1.3 and nothing less."""


def make_identity() -> TlsIdentity:
    """Make a certificate and its key, for one run; the key is in this process's memory only."""
    return read_identity(make_pem())


def make_pem() -> bytes:
    """Make a key and a certificate that it signed itself; return both as PEM, the key first."""
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
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + certificate.public_bytes(serialization.Encoding.PEM)


def read_identity(pem: bytes) -> TlsIdentity:
    """Return what a PEM holds: a certificate and the key to it, in any order.

    Raises:
        ValueError: it holds no certificate, or no key to its first one that can be used.
        OSError: there is no memory or no descriptor left.
    """
    try:
        certificate = x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise ValueError("it holds no certificate") from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0
    _load(context, pem)
    return TlsIdentity(
        fingerprint=fingerprint_of(certificate.public_bytes(serialization.Encoding.DER)),
        context=context,
    )


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    """Give a context its key and certificate, which it takes from a file only: one without a name.

    Raises:
        ValueError: the two cannot be used.
        OSError: there is no memory or no descriptor left.
    """

    def refuse() -> str:
        raise ValueError("its key is locked with a passphrase, which nobody is here to type")

    fd = shared_memory.create_memfd("flodl certificate", len(pem))
    try:
        os.pwrite(fd, pem, 0)
        context.load_cert_chain(f"/dev/fd/{fd}", password=refuse)
    except ssl.SSLError as error:
        why = (error.reason or "unusable").replace("_", " ").lower()
        raise ValueError(f"it holds no key to its certificate ({why})") from None
    finally:
        os.close(fd)
