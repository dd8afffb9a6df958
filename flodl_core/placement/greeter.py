"""A port that says one word to whoever connects: how a host proves that it reaches us.

What it is: the launcher's own address and port, before the run listens there.
What it is not: the run's port; nothing is read, nobody is admitted.
Who drives it: `roles.placing`, from before the first host is started to the last report.
"""

import contextlib
import socket

import anyio

from flodl_core.net import tcp
from flodl_core.units import Seconds

WORD_CHARS = 32
REACH_S: Seconds = 3.0


class Greeter:
    """Listens at an address and says its word.

    Args:
        bind: address.
        port: 0 for any free one.
        word: of `WORD_CHARS` characters.

    Raises:
        ConfigError, OSError: the address or port cannot be used.
    """

    def __init__(self, bind: str, port: int, *, word: str) -> None:
        self.word = word
        self._listener = tcp.listen(bind, port, source="join.port")

    @property
    def port(self) -> int:
        """The real port."""
        return int(self._listener.getsockname()[1])

    async def serve(self) -> None:
        """Greet until cancelled."""
        while True:
            await anyio.wait_readable(self._listener)
            with contextlib.suppress(OSError):
                connection, _ = self._listener.accept()
                self._greet(connection)

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _greet(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(0)
            connection.send(self.word.encode())


async def hear_word(host: str, port: int) -> str:
    """Return the word that is said at an address; what else is there is returned as it came.

    Raises:
        TransientJoinError: nobody listens, no answer, unknown host; a class each.
    """
    stream = await tcp.open_tcp(host, port, connect_s=REACH_S - 0.5)
    said = bytearray()
    try:
        with anyio.move_on_after(REACH_S):
            while len(said) < WORD_CHARS:
                said += await stream.receive(WORD_CHARS - len(said))
    except (anyio.EndOfStream, anyio.BrokenResourceError):
        pass
    finally:
        stream.close()
    return said.decode(errors="replace")
