"""The join token as text: the secret, and under --tls the fingerprint of the run's certificate.

    0f1e2d3c4b5a69788796a5b4c3d2e1f0                        a run without TLS
    0f1e2d3c4b5a69788796a5b4c3d2e1f0.4d5e…64 characters     a run with --tls

Only the first half is a secret. The second makes TLS a must for whoever holds the
token: it compares the certificate and never falls back to speaking plainly.

What it is: the form, read and written.
What it is not: where a token comes from, or a certificate.
Who drives it: the launcher writes one for each run; agents, commands and the console
read it.
"""

import re
from dataclasses import dataclass, field
from typing import Final

_SECRET: Final = re.compile(r"[0-9a-f]{32}")
_FINGERPRINT: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinToken:
    """What proves a host to the run, and the run to the host."""

    secret: bytes = field(repr=False)
    """16 bytes."""
    fingerprint: bytes | None = None
    """SHA-256 of the run's certificate, 32 bytes; None where the run speaks no TLS."""

    def text(self) -> str:
        """Return the token as it stands in a file."""
        if self.fingerprint is None:
            return self.secret.hex()
        return f"{self.secret.hex()}.{self.fingerprint.hex()}"


def is_join_token(text: str) -> bool:
    """Return whether a text is a token, with or without a fingerprint."""
    secret, dot, fingerprint = text.partition(".")
    if _SECRET.fullmatch(secret) is None:
        return False
    return not dot or is_fingerprint(fingerprint)


def is_secret(text: str) -> bool:
    """Return whether a text is the secret half of a token alone."""
    return _SECRET.fullmatch(text) is not None


def is_fingerprint(text: str) -> bool:
    """Return whether a text is the fingerprint of a certificate: 64 hex characters."""
    return _FINGERPRINT.fullmatch(text) is not None


def read_join_token(text: str) -> JoinToken:
    """Return what a token says.

    Raises:
        ValueError: it is no token; the text is not repeated.
    """
    if not is_join_token(text):
        raise ValueError(f"{len(text)} characters that are no join token")
    secret, _, fingerprint = text.partition(".")
    return JoinToken(
        secret=bytes.fromhex(secret),
        fingerprint=bytes.fromhex(fingerprint) if fingerprint else None,
    )
