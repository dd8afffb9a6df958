"""What proves a run and its hosts to each other: the join token, and a certificate under --tls.

What it is: one record. Token and certificate are made anew for each run, unless the user has
a token or a file with a certificate that every run is to show; the file is made where there
is none.
What it is not: the session salt, which is the window's, or the operator's token, which
comes out of the join token.
Who drives it: the launcher makes it; the run's room hands its parts on.
"""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flodl_core.config.join_token import JoinToken, read_join_token
from flodl_core.config.schema import JoinConfig
from flodl_core.config.sources import Resolved
from flodl_core.errors import ConfigError
from flodl_core.net.tls_identity import TlsIdentity, make_identity, make_pem, read_identity

TOKEN_BYTES: Final = 16
MAX_IDENTITY_BYTES: Final = 1 << 16

_FIELD: Final = "join.tls_identity"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSecrets:
    """The secrets of one run."""

    token: bytes = field(repr=False)
    """16 bytes."""
    identity: TlsIdentity | None = field(default=None, repr=False)
    """None where the run speaks no TLS."""

    @property
    def has_tls(self) -> bool:
        """Whether the run speaks TLS."""
        return self.identity is not None

    @property
    def join_token(self) -> JoinToken:
        """Return what hosts are given."""
        identity = self.identity
        return JoinToken(
            secret=self.token, fingerprint=None if identity is None else identity.fingerprint
        )


def make_secrets(
    join: JoinConfig, *, resolved: Mapping[str, Resolved[object]] | None = None
) -> RunSecrets:
    """Return the secrets of a new run; what the user has set is taken.

    Args:
        join: as configured.
        resolved: where each setting comes from, for an error.

    Raises:
        ConfigError: the file of the certificate cannot be used, or the token names another
            certificate than the run would show.
    """
    given = read_join_token(join.token) if join.token else None
    wanted = given.fingerprint if given is not None else None
    if wanted is not None and join.tls_identity is None:
        own = "makes one of its own" if join.tls else "has no tls"
        raise ConfigError(
            "join.token",
            "(hidden)",
            f"it names a certificate, and this run {own}",
            source=_source(resolved, "join.token"),
            fix="give its first 32 characters only, or set tls and the tls_identity that it names",
        )
    identity = _identity(join, wanted, _source(resolved, _FIELD)) if join.tls else None
    secret = given.secret if given is not None else secrets.token_bytes(TOKEN_BYTES)
    return RunSecrets(token=secret, identity=identity)


def _identity(join: JoinConfig, wanted: bytes | None, source: str) -> TlsIdentity:
    """Return the certificate that the run shows.

    Args:
        join: as configured.
        wanted: the fingerprint that the token names, if it names one.
        source: of `tls_identity`.
    """
    path = join.tls_identity
    if path is None:
        return make_identity()
    try:
        if wanted is None and not path.exists():
            _write(path)
        with path.open("rb") as file:
            identity = read_identity(file.read(MAX_IDENTITY_BYTES))
    except OSError as error:
        why = f"cannot be read or made ({error.strerror})"
        raise _refused(path, why, source, "give a file that this user may read") from error
    except ValueError as error:
        fix = "give a PEM file with both, or a path where there is no file, to have it made"
        raise _refused(path, str(error), source, fix) from error
    if wanted is not None and identity.fingerprint != wanted:
        why = f"its certificate is {identity.fingerprint.hex()[:8]}…, and the token names another"
        fix = "give the file that the token was made with, or the token's first 32 characters only"
        raise _refused(path, why, source, fix)
    return identity


def _write(path: Path) -> None:
    """Make a certificate and keep it there, for this user only.

    Raises:
        OSError: the file cannot be written, or appeared meanwhile.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(make_pem())
    except OSError:
        path.unlink(missing_ok=True)
        raise


def _source(resolved: Mapping[str, Resolved[object]] | None, name: str) -> str:
    return "given" if resolved is None else str(resolved[name].source)


def _refused(path: Path, why: str, source: str, fix: str) -> ConfigError:
    return ConfigError(_FIELD, str(path), why, source=source, fix=fix)
