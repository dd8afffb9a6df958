"""A mux connection with somebody between: bytes pass, until one bucket is spoiled or cut.

`Wire` copies frames in both directions and counts the buckets of each. What is inside a
bucket it cannot read; where one begins it can, as anybody on the way could.
"""

import contextlib
import os
import socket
import threading

from planes_links import Callbacks

from flodl_core.net.addresses import peer_of
from flodl_core.net.mux_end import MuxEnd
from flodl_core.net.mux_link import MuxLink
from flodl_core.wire.buckets import PIECE_OVERHEAD_BYTES
from flodl_core.wire.frame import BUCKET_KIND, HEADER_BYTES, TAG_BYTES, parse_header_untrusted
from flodl_core.wire.handshake import SessionKeys

UP, DOWN = "up", "down"


class Wire:
    """What lies between a relay and the root.

    Attributes:
        trouble: (direction, bucket since `arm`, "flip" or "cut"); None lets all pass.
    """

    def __init__(self, root_sock: socket.socket, relay_sock: socket.socket) -> None:
        self.trouble: tuple[str, int, str] | None = None
        self._counts = {UP: -1, DOWN: -1}
        self._socks = (root_sock, relay_sock)
        roads = ((UP, relay_sock, root_sock), (DOWN, root_sock, relay_sock))
        self._threads = [threading.Thread(target=self._carry, args=road) for road in roads]
        for thread in self._threads:
            thread.start()

    def arm(self, direction: str, bucket: int, kind: str) -> None:
        """Spoil the `bucket`th bucket from now on in this direction; no bucket is on its way."""
        self._counts = {UP: -1, DOWN: -1}
        self.trouble = (direction, bucket, kind)

    def close(self) -> None:
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        for sock in self._socks:
            sock.close()

    def _carry(self, direction: str, source: socket.socket, target: socket.socket) -> None:
        try:
            while header := _read(source, HEADER_BYTES):
                parsed = parse_header_untrusted(header)
                is_bucket = parsed.kind == BUCKET_KIND
                beside = PIECE_OVERHEAD_BYTES if is_bucket else TAG_BYTES
                body = bytearray(_read(source, parsed.length + beside))
                target.sendall(header)
                trouble = self._trouble_for(direction, body) if is_bucket else None
                if trouble == "flip":
                    body[-20] ^= 1
                elif trouble == "cut":
                    target.sendall(body[: len(body) // 2])
                    return
                target.sendall(body)
        except OSError:
            pass
        finally:
            for sock in (source, target):
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _trouble_for(self, direction: str, body: bytearray) -> str | None:
        """What to do to this piece: the last one of the chosen bucket that is full of values."""
        piece = int.from_bytes(body[:4], "big")
        if piece == 0:
            self._counts[direction] += 1
        if self.trouble is None or piece == 0:
            return None
        where, bucket, kind = self.trouble
        return kind if (direction, self._counts[direction]) == (where, bucket) else None


def _read(sock: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        got = sock.recv(size - len(data))
        if not got:
            return b""
        data += got
    return bytes(data)


def wired_pair(near: Callbacks, far: Callbacks) -> tuple[MuxLink, MuxLink, Wire]:
    """Both ends of a mux link over TCP, with a wire between."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        pairs = []
        for _ in range(2):
            outer = socket.create_connection(server.getsockname())
            inner, _ = server.accept()
            pairs.append((outer, inner))
    (root_sock, root_inner), (relay_sock, relay_inner) = pairs
    for sock in (root_sock, root_inner, relay_sock, relay_inner):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    down, up, down_gcm, up_gcm = (os.urandom(size) for size in (32, 32, 16, 16))
    keys = SessionKeys(send_hmac=down, receive_hmac=up, send_gcm=down_gcm, receive_gcm=up_gcm)
    far_keys = SessionKeys(send_hmac=up, receive_hmac=down, send_gcm=up_gcm, receive_gcm=down_gcm)
    peer = peer_of(root_sock.getpeername())
    return (
        MuxLink(MuxEnd(sock=root_sock, keys=keys, peer=peer), near, label="root"),
        MuxLink(MuxEnd(sock=relay_sock, keys=far_keys, peer=peer), far, label="relay"),
        Wire(root_inner, relay_inner),
    )
