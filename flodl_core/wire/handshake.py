"""The first bytes of a JOIN or MUX connection: keys out of X25519 and a shared secret.

    client → magic (4) | version u8 | auth u8 | nonce (32) | X25519 public (32)
    server → version u8 | status u8 | nonce (32) | X25519 public (32) | confirm (32)

    transcript = SHA-256(client hello | server hello without confirm)
    prk        = HKDF-Extract(salt = client nonce | server nonce, ikm = X25519 | psk)
    key        = HKDF-Expand(prk, "flodl 1 " | magic | direction | use | transcript)
    confirm    = HMAC-SHA256(Expand(… " confirm " …), transcript)

`auth` is 1 when the client has the secret (the join token, or the session salt
on MUX) and 0 when it asks for open admission; it is part of the transcript and
a client that has a secret never asks for less. `confirm` depends on the secret,
so a client with another token knows it at once. Keys live as long as the
connection.

Nothing is drawn or sent here: nonces and private keys are passed in, whole
hellos go in and out. net drives it, within the handshake budget.
"""

import hashlib
import hmac
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from flodl_core.errors import (
    BadFrameError,
    LocalProtocolError,
    RefusedError,
    TlsRequiredError,
    TokenRequiredError,
    WrongTokenError,
)

HANDSHAKE_VERSION: Final = 1
CLIENT_HELLO_BYTES: Final = 70
SERVER_HELLO_BYTES: Final = 98
NONCE_BYTES: Final = 32
PRIVATE_KEY_BYTES: Final = 32
TOKEN_BYTES: Final = 16

_OPEN_PSK: Final = bytes(16)
_CONFIRM_BYTES: Final = 32
_HMAC_KEY_BYTES: Final = 32
_GCM_KEY_BYTES: Final = 16
_NOT_FLODL: Final = "check that the address and port are those of a flodl controller"


class Channel(Enum):
    """Which connection this is; the value is its first four bytes."""

    JOIN = b"JOIN"
    MUX = b"MUX1"


class _Auth(IntEnum):
    OPEN = 0
    TOKEN = 1


class _Status(IntEnum):
    OK = 0
    TOKEN_REQUIRED = 1
    VERSION = 2
    TLS_REQUIRED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKeys:
    """The keys of one connection, as this end uses them. Never printed."""

    send_hmac: bytes = field(repr=False)
    """32 bytes, for FrameSealer."""
    receive_hmac: bytes = field(repr=False)
    """32 bytes, for FrameOpener."""
    send_gcm: bytes = field(repr=False)
    """16 bytes, for BucketSealer or SaltSealer."""
    receive_gcm: bytes = field(repr=False)
    """16 bytes, for BucketOpener or SaltOpener."""


class ClientHandshake:
    """The dialling end: an agent on JOIN, a relay on MUX.

    Args:
        channel: which connection is opened.
        psk: the join token or the session salt, 16 bytes; None asks a JOIN port
            for open admission.
        nonce: 32 fresh random bytes.
        private_key: 32 fresh random bytes, this connection's X25519 key.
    """

    def __init__(
        self, channel: Channel, psk: bytes | None, *, nonce: bytes, private_key: bytes
    ) -> None:
        if channel is Channel.MUX and psk is None:
            raise LocalProtocolError(
                "a MUX connection was begun without the session salt", fix="pass the run's salt"
            )
        self._channel = channel
        self._psk = psk
        self._private = _private_key(nonce, private_key)
        auth = _Auth.OPEN if psk is None else _Auth.TOKEN
        self._hello = b"".join(
            (
                channel.value,
                bytes((HANDSHAKE_VERSION, auth)),
                nonce,
                _public_bytes(self._private),
            )
        )

    def hello(self) -> bytes:
        """The CLIENT_HELLO_BYTES bytes to send first."""
        return self._hello

    def finish_untrusted(self, reply: bytes) -> SessionKeys:
        """Judge the server's SERVER_HELLO_BYTES bytes.

        Raises:
            WrongTokenError: the server holds another secret.
            TokenRequiredError: the server admits nobody without the token.
            TlsRequiredError: the server admits nobody without TLS.
            RefusedError: the server speaks another version.
            BadFrameError: this is no reply of a flodl port.
        """
        if len(reply) != SERVER_HELLO_BYTES:
            raise BadFrameError(
                f"a reply of {len(reply)} bytes came, not of {SERVER_HELLO_BYTES}", fix=_NOT_FLODL
            )
        version, status = reply[0], reply[1]
        if status == _Status.VERSION and version != HANDSHAKE_VERSION:
            raise RefusedError(
                f"the controller speaks wire version {version}, this is {HANDSHAKE_VERSION}",
                fix="run the same flodl version on every host",
            )
        if version == HANDSHAKE_VERSION and status == _Status.TOKEN_REQUIRED:
            raise TokenRequiredError(
                "the controller admits nobody without the join token",
                fix="give --token-file or set FLODL_TOKEN; the launcher keeps the token in "
                "the file `token` of its run directory",
            )
        if version == HANDSHAKE_VERSION and status == _Status.TLS_REQUIRED:
            raise TlsRequiredError(
                "the run was started with --tls, and this end knows no fingerprint to trust",
                fix="copy the file `token` of the run's directory anew: the fingerprint is in it; "
                "or give --tls-fingerprint as the launcher prints it",
            )
        if version != HANDSHAKE_VERSION or status != _Status.OK:
            raise BadFrameError("the reply is not one of a flodl port", fix=_NOT_FLODL)
        derived = _derive(
            channel=self._channel,
            psk=_OPEN_PSK if self._psk is None else self._psk,
            private=self._private,
            client_hello=self._hello,
            server_hello=reply[:-_CONFIRM_BYTES],
            peer_public=reply[34:66],
        )
        if not hmac.compare_digest(derived.confirm, reply[-_CONFIRM_BYTES:]):
            raise self._wrong_secret()
        return SessionKeys(
            send_hmac=derived.up_hmac,
            receive_hmac=derived.down_hmac,
            send_gcm=derived.up_gcm,
            receive_gcm=derived.down_gcm,
        )

    def _wrong_secret(self) -> Exception:
        if self._psk is None:
            return BadFrameError(
                "the controller's confirmation of an open join does not hold",
                fix="join with --token-file, which also proves that nobody sits in between",
            )
        if self._channel is Channel.MUX:
            return WrongTokenError(
                "the controller holds another session salt",
                fix="it runs another run by now; join that one anew",
            )
        return WrongTokenError(
            "the controller holds another join token",
            fix="copy the token of this run from the file `token` of its run directory",
        )


class ServerHandshake:
    """The accepting end, in the launcher.

    Args:
        channel: which connection the peeked first bytes announced.
        psk: the run's join token (JOIN) or session salt (MUX).
        open_admission: whether a JOIN without the token is let in.
        nonce: 32 fresh random bytes.
        private_key: 32 fresh random bytes, this connection's X25519 key.
    """

    def __init__(
        self,
        channel: Channel,
        psk: bytes,
        *,
        open_admission: bool = False,
        nonce: bytes,
        private_key: bytes,
    ) -> None:
        self._channel = channel
        self._psk = psk
        self._open_admission = open_admission and channel is Channel.JOIN
        self._nonce = nonce
        self._private = _private_key(nonce, private_key)

    def reply_untrusted(self, hello: bytes) -> tuple[bytes, SessionKeys | None]:
        """Answer the client's CLIENT_HELLO_BYTES bytes.

        Returns:
            The reply to send, and the keys; None means that the connection is
            refused and closed after the reply. That the client knows the secret
            shows only in the tag of its first frame.

        Raises:
            BadFrameError: this is no hello of this channel; nothing is sent.
        """
        if len(hello) != CLIENT_HELLO_BYTES or hello[:4] != self._channel.value:
            raise BadFrameError(
                f"{len(hello)} bytes came that are no hello of {self._channel.name}",
                fix=_NOT_FLODL,
            )
        version, auth = hello[4], hello[5]
        if version != HANDSHAKE_VERSION:
            return _refusal(_Status.VERSION), None
        if auth not in (_Auth.OPEN, _Auth.TOKEN):
            raise BadFrameError(f"a hello asks for the unknown admission {auth}", fix=_NOT_FLODL)
        if auth == _Auth.OPEN and not self._open_admission:
            return _refusal(_Status.TOKEN_REQUIRED), None
        begin = b"".join(
            (
                bytes((HANDSHAKE_VERSION, _Status.OK)),
                self._nonce,
                _public_bytes(self._private),
            )
        )
        derived = _derive(
            channel=self._channel,
            psk=_OPEN_PSK if auth == _Auth.OPEN else self._psk,
            private=self._private,
            client_hello=hello,
            server_hello=begin,
            peer_public=hello[38:70],
        )
        keys = SessionKeys(
            send_hmac=derived.down_hmac,
            receive_hmac=derived.up_hmac,
            send_gcm=derived.down_gcm,
            receive_gcm=derived.up_gcm,
        )
        return begin + derived.confirm, keys


def operator_token(token: bytes) -> str:
    """The bearer token of operator actions: 64 hex characters out of the join token."""
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=b"operator").derive(token).hex()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Derived:
    up_hmac: bytes = field(repr=False)
    down_hmac: bytes = field(repr=False)
    up_gcm: bytes = field(repr=False)
    down_gcm: bytes = field(repr=False)
    confirm: bytes = field(repr=False)


def _derive(
    *,
    channel: Channel,
    psk: bytes,
    private: X25519PrivateKey,
    client_hello: bytes,
    server_hello: bytes,
    peer_public: bytes,
) -> _Derived:
    """All keys of a connection; the same on both ends.

    Raises:
        BadFrameError: the peer's public key is one that shares nothing.
    """
    try:
        shared = private.exchange(X25519PublicKey.from_public_bytes(peer_public))
    except ValueError as error:
        raise BadFrameError("the peer's X25519 key is of low order", fix=_NOT_FLODL) from error
    nonces = client_hello[6:38] + server_hello[2:34]
    prk = hmac.digest(nonces, shared + psk, "sha256")
    transcript = hashlib.sha256(client_hello + server_hello).digest()

    def expand(use: bytes, length: int) -> bytes:
        info = b"flodl 1 " + channel.value + use + transcript
        return HKDFExpand(algorithm=SHA256(), length=length, info=info).derive(prk)

    return _Derived(
        up_hmac=expand(b" up hmac ", _HMAC_KEY_BYTES),
        down_hmac=expand(b" down hmac ", _HMAC_KEY_BYTES),
        up_gcm=expand(b" up gcm ", _GCM_KEY_BYTES),
        down_gcm=expand(b" down gcm ", _GCM_KEY_BYTES),
        confirm=hmac.digest(expand(b" confirm ", _HMAC_KEY_BYTES), transcript, "sha256"),
    )


def tls_refusal() -> bytes:
    """The SERVER_HELLO_BYTES bytes that answer a hello which came without TLS where it must not."""
    return _refusal(_Status.TLS_REQUIRED)


def _refusal(status: _Status) -> bytes:
    return bytes((HANDSHAKE_VERSION, status)) + bytes(SERVER_HELLO_BYTES - 2)


def _private_key(nonce: bytes, private_key: bytes) -> X25519PrivateKey:
    if len(nonce) != NONCE_BYTES or len(private_key) != PRIVATE_KEY_BYTES:
        raise LocalProtocolError(
            f"a nonce of {len(nonce)} and a key of {len(private_key)} bytes were given",
            fix="pass 32 fresh random bytes for each",
        )
    return X25519PrivateKey.from_private_bytes(private_key)


def _public_bytes(private: X25519PrivateKey) -> bytes:
    return private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
