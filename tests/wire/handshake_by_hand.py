"""The key exchange from the words of its RFCs, in plain Python, to compare with.

X25519 is RFC 7748 (section 5), HKDF is RFC 5869; only SHA-256 is borrowed.
"""

import hashlib
import hmac

PRIME = 2**255 - 19


def x25519(scalar, point):
    """The Montgomery ladder of RFC 7748."""
    k = int.from_bytes(scalar, "little")
    k = (k & ~7 & ~(1 << 255)) | (1 << 254)
    u = int.from_bytes(point, "little") & ((1 << 255) - 1)
    x2, z2, x3, z3, swap = 1, 0, u, 1, 0
    for t in reversed(range(255)):
        bit = (k >> t) & 1
        if swap ^ bit:
            x2, x3, z2, z3 = x3, x2, z3, z2
        swap = bit
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb = d * a, c * b
        x3 = (da + cb) ** 2 % PRIME
        z3 = u * (da - cb) ** 2 % PRIME
        x2 = a * a * b * b % PRIME
        e = a * a - b * b
        z2 = e * (a * a + 121665 * e) % PRIME
    if swap:
        x2, z2 = x3, z3
    return (x2 * pow(z2, PRIME - 2, PRIME) % PRIME).to_bytes(32, "little")


def public_of(private):
    return x25519(private, (9).to_bytes(32, "little"))


def extract(salt, ikm):
    return hmac.new(salt, ikm, hashlib.sha256).digest()


def expand(prk, info, length):
    out, block, number = b"", b"", 0
    while len(out) < length:
        number += 1
        block = hmac.new(prk, block + info + bytes([number]), hashlib.sha256).digest()
        out += block
    return out[:length]


def exchange(magic, auth, psk, *, client_nonce, client_private, server_nonce, server_private):
    """Both hellos and all keys of a handshake that goes well, as a dict of bytes."""
    client = magic + bytes([1, auth]) + client_nonce + public_of(client_private)
    server = bytes([1, 0]) + server_nonce + public_of(server_private)
    shared = x25519(client_private, public_of(server_private))
    prk = extract(client_nonce + server_nonce, shared + psk)
    transcript = hashlib.sha256(client + server).digest()

    def key(use, length):
        return expand(prk, b"flodl 1 " + magic + use + transcript, length)

    return {
        "client_hello": client,
        "server_hello": server + extract(key(b" confirm ", 32), transcript),
        "up_hmac": key(b" up hmac ", 32),
        "down_hmac": key(b" down hmac ", 32),
        "up_gcm": key(b" up gcm ", 16),
        "down_gcm": key(b" down gcm ", 16),
    }
