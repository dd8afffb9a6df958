"""What attackers of the tests share: a run's port that counts, links to break, memory to watch."""

import contextlib
import os
import random
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
from net_pairs import SALT, TOKEN, Recorder, RunningPort, mux_ends, running_port

from flodl_core.messages.join import Accept, Knock
from flodl_core.net.http import HttpApp, PostRoute, Publisher
from flodl_core.net.http_trust import TrustPolicy
from flodl_core.net.join_link import accept_join, connect_join
from flodl_core.net.mux_end import MuxEnd
from flodl_core.net.mux_link import MuxLink

GROWTH_BYTES = 64 * 10**6
"""What any attack may make a process grow by."""
KNOCK = Knock(version="0.1.0")
ACCEPT = Accept(ranks=(), salt=SALT, formation_wait_s=1.0)
SESAME = "5e5a" * 16
FUZZ_FRAMES = int(os.environ.get("FLODL_ATTACK_FRAMES", "20000"))
"""A million takes minutes: FLODL_ATTACK_FRAMES=1000000 python -m pytest tests/attacks"""


def chance(seed: int) -> random.Random:
    return random.Random(seed)


def resident_bytes() -> int:
    """Of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@contextlib.contextmanager
def bounded_growth(most_bytes: int = GROWTH_BYTES) -> Iterator[None]:
    before = resident_bytes()
    yield
    grown = resident_bytes() - before
    assert grown <= most_bytes, f"grew by {grown:,} bytes"


def flips(data: bytes, seed: int) -> Iterator[tuple[int, bytes]]:
    """The same bytes with one bit changed, at every position."""
    dice = chance(seed)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << dice.randrange(8)
        yield at, bytes(changed)


class Victim:
    """A real MuxLink at one end; the attacker has the other end's socket."""

    def __init__(self, *, is_sealed: bool = False) -> None:
        end, far = mux_ends()
        self.seen = Recorder()
        self.sock: socket.socket = far.sock
        self.link = MuxLink(
            MuxEnd(sock=end.sock, keys=end.keys, peer=end.peer, is_sealed=is_sealed), self.seen
        )
        self.link.start()

    def hear(self, data: bytes) -> "Victim":
        """Say all of it, end the direction, and wait until the link has ended."""
        with contextlib.suppress(OSError):
            self.sock.sendall(data)
            self.sock.shutdown(socket.SHUT_WR)
        self.seen.wait(lambda seen: seen.closed)
        self.link.close()
        self.sock.close()
        return self

    @property
    def error(self) -> Exception | None:
        return self.seen.closed[0]


class Run:
    """A port with everything behind it, as a run has; it counts what had an effect."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.acted: list[str] = []
        publisher = Publisher()
        publisher.publish(b'{"run": {"id": "0123456789abcdef"}}')
        self.app = HttpApp(
            publisher,
            trust=TrustPolicy(operator_token=SESAME),
            posts=[PostRoute(path="/stop", action=self._act)],
        )

    async def _act(self, asked: object) -> tuple[int, dict[str, object]]:
        self.acted.append(str(asked))
        return 200, {"stopping": True}

    async def on_join(self, connection: Any) -> None:
        link = await accept_join(connection, token=TOKEN, open_admission=False)
        self.heard.append(await link.receive())
        await link.send_accept(ACCEPT)
        while True:
            self.heard.append(await link.receive())

    def port(self, **given: Any) -> contextlib.AbstractAsyncContextManager[RunningPort]:
        return running_port(on_join=self.on_join, on_http=self.app.serve, **given)


async def joins(at: tuple[str, int], **given: Any) -> bool:
    """Whether an honest agent gets in now, within five seconds."""
    with anyio.fail_after(5):
        link = await connect_join(*at, token=TOKEN, **given)
        await link.send(KNOCK)
        answer = await link.receive()
        await link.aclose()
    return answer == ACCEPT


@contextlib.asynccontextmanager
async def recorded_join(at: tuple[str, int]) -> AsyncIterator[bytearray]:
    """A road to `at` that keeps every byte an honest agent says on its way in."""
    said = bytearray()

    async def carry(near: Any) -> None:
        async def back() -> None:
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                async for data in far:
                    await near.send(data)

        async with near, await anyio.connect_tcp(*at) as far, anyio.create_task_group() as tasks:
            tasks.start_soon(back)
            with contextlib.suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                async for data in near:
                    said.extend(data)
                    await far.send(data)
            tasks.cancel_scope.cancel()

    async with (
        await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(listener.serve, carry)
        assert await joins(listener.extra(anyio.abc.SocketAttribute.local_address))
        tasks.cancel_scope.cancel()
    yield said
