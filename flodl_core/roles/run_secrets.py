"""What proves a run and its hosts to each other: the join token, and a certificate under --tls.

What it is: one record, made anew for each run.
What it is not: the session salt, which is the window's, or the operator's token, which
comes out of the join token.
Who drives it: the launcher makes it; the run's room hands its parts on.
"""

import secrets
from dataclasses import dataclass, field

from flodl_core.config.join_token import JoinToken
from flodl_core.config.schema import JoinConfig
from flodl_core.net.tls_identity import TlsIdentity, make_identity

TOKEN_BYTES = 16


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


def make_secrets(join: JoinConfig) -> RunSecrets:
    """Return the secrets of a new run; the token is the user's where one is set."""
    return RunSecrets(
        token=bytes.fromhex(join.token) if join.token else secrets.token_bytes(TOKEN_BYTES),
        identity=make_identity() if join.tls else None,
    )
