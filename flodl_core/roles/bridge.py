"""A rank's bridge: the one other thread that talks, while the main thread trains.

```
CONTROL socket ─▶ receive ─▶ channel.deliver ─▶ training thread
training thread ─▶ channel ─▶ drain (at once when woken, else every 50 ms) ─▶ CONTROL socket
heartbeat each second, whatever the training thread does
```
It starts before torch is imported, so that a rank answers while it builds.
"""

import asyncio
import contextlib
import socket
import threading

import anyio
import anyio.abc

from flodl_core.errors import FlodlError
from flodl_core.messages.control import CoordHeartbeat
from flodl_core.messages.rendezvous import RendezvousHello
from flodl_core.messages.timing import Heartbeat
from flodl_core.net.local import PlainChannel
from flodl_core.roles.error_groups import innermost
from flodl_core.roles.silence import SilenceWatch, watch_silence
from flodl_core.training.channel import COALESCE_S, RankChannel
from flodl_core.units import Seconds

FLUSH_S: Seconds = 5.0
"""Longest time that the last messages take to leave."""

_ENDED = (
    anyio.EndOfStream,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    FlodlError,
)


class Bridge:
    """Runs in a thread of its own, from `start` to `finish`.

    Args:
        sock: the CONTROL end, owned from here on.
        channel: towards the training thread.
        heartbeat_s: how often the rank says that it answers.
        silence_s: how long the controller may say nothing, once this rank said Hello.
    """

    def __init__(
        self,
        sock: socket.socket,
        channel: RankChannel,
        *,
        heartbeat_s: Seconds,
        silence_s: Seconds,
    ) -> None:
        self._sock = sock
        self._channel = channel
        self._heartbeat_s = heartbeat_s
        self._silence = SilenceWatch(silence_s)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: asyncio.Event | None = None
        self._is_finishing = False
        self._started = threading.Event()
        self._thread = threading.Thread(
            target=anyio.run, args=(self._run,), name="bridge", daemon=True
        )

    def start(self) -> None:
        """Start the thread; the rank answers from now on."""
        self._thread.start()
        self._started.wait()

    def finish(self) -> None:
        """Write what still waits, then end the thread; called by the training thread, last."""
        self._is_finishing = True
        self._nudge()
        self._thread.join(FLUSH_S)

    def _nudge(self) -> None:
        """Wake the loop from the training thread; the loop may be over already."""
        if self._loop is not None and self._wake is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake.set)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        control = PlainChannel(self._sock)
        self._channel.on_outgoing(self._nudge)
        self._started.set()
        reason = "the bridge ended"
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._receive, control)
                tasks.start_soon(self._beat, control)
                tasks.start_soon(watch_silence, self._silence)
                await self._send(control)
                tasks.cancel_scope.cancel()
        except* _ENDED as group:
            reason = f"the launcher or relay is gone ({_first_line(group)})"
        finally:
            self._channel.close(reason)
            with anyio.CancelScope(shield=True):
                await control.aclose()

    async def _send(self, control: PlainChannel) -> None:
        assert self._wake is not None
        while True:
            is_last = self._is_finishing
            self._wake.clear()
            for message in self._channel.drain():
                await control.send(message)
                if isinstance(message, RendezvousHello):
                    self._silence.expect()
            if is_last:
                return
            if self._is_finishing:
                continue
            with anyio.move_on_after(COALESCE_S):
                await self._wake.wait()

    async def _receive(self, control: PlainChannel) -> None:
        while True:
            message = await control.receive()
            self._silence.heard()
            if not isinstance(message, CoordHeartbeat):
                self._channel.deliver(message)

    async def _beat(self, control: PlainChannel) -> None:
        channel = self._channel
        while True:
            await control.send(
                Heartbeat(
                    rank=channel.rank,
                    step_count=channel.step_count,
                    phase=channel.phase,
                    phase_s=channel.phase_s,
                    activity=channel.activity,
                )
            )
            await anyio.sleep(self._heartbeat_s)


def _first_line(group: BaseExceptionGroup[Exception]) -> str:
    error = innermost(group)
    text = str(error) or type(error).__name__
    return text.splitlines()[0]
