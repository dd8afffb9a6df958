"""A relay's process: one muxed connection up, the host's ranks below, no torch.

Control frames pass untouched in both directions; tensors are folded by the
plane's own thread. It ends when its last rank is gone or the controller is, and
then its ranks see the end of their sockets and end too. Where the controller is
gone, its connection ended or silent above the heartbeat ceiling, the relay's last
word asks the lowest of its ranks to leave its own parameters.
"""

import argparse
import contextlib
import os
import sys
from typing import Final

import anyio

from flodl_core.errors import BadFrameError, FlodlError, RemoteProtocolError, RunLostError
from flodl_core.ids import ExitCode, Rank, SaveReason
from flodl_core.machines import Note
from flodl_core.messages import NUMBERS
from flodl_core.messages.control import ShutdownWithSave
from flodl_core.messages.data import BucketFrame
from flodl_core.messages.mux import Data, RankExit, RelayDeclareDead, RelayHello, RelayHelloAck
from flodl_core.messages.rendezvous import RendezvousHello
from flodl_core.net import clock
from flodl_core.net.addresses import parse_host_port
from flodl_core.net.children import own_environment
from flodl_core.net.dial import DialPolicy, dial
from flodl_core.net.local import PlainChannel
from flodl_core.net.mux_end import connect_mux
from flodl_core.net.mux_link import LinkClosedError, MuxLink
from flodl_core.net.parent_tie import tie_from_environment
from flodl_core.planes.star_relay import StarRelay
from flodl_core.roles.mailbox import Mailbox
from flodl_core.roles.orders import RelayOrder, read_order
from flodl_core.roles.outbox import LinkOutbox
from flodl_core.roles.rank_ends import adopt_ends
from flodl_core.roles.silence import SilenceWatch, watch_silence
from flodl_core.telemetry.logs import Level, ProcessLog
from flodl_core.units import Seconds
from flodl_core.wire.codec import encode

LAST_WORD_S: Final[Seconds] = 0.5
"""From the loss of the controller to the last word: an agent that was told of the run's end ends
the relay in that time, and then nobody is asked for anything."""

FLUSH_S: Final[Seconds] = 1.0

_HELLO: Final = NUMBERS[RendezvousHello]
_RANK_ENDED = (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError)


class Relay:
    """Carries and folds for one host.

    Args:
        order: of this process.
        log: of this process.
    """

    def __init__(self, order: RelayOrder, log: ProcessLog) -> None:
        self._order = order
        self._log = log
        self._star: StarRelay | None = None
        self._link: MuxLink | None = None
        self._downward: Mailbox[object] = Mailbox()
        self._outboxes: dict[Rank, LinkOutbox] = {}
        self._running: set[Rank] = set()
        self._silence = SilenceWatch(order.envelope.spec.heartbeat_timeout_s)

    async def run(self) -> int:
        """Serve until there is nothing left to do; return the exit code."""
        order = self._order
        salt = os.read(order.salt_fd, 16)
        os.close(order.salt_fd)
        host, port = parse_host_port(order.envelope.controller)
        end = await dial(
            lambda: connect_mux(host, port, salt=salt, is_sealed=order.envelope.seals_messages),
            DialPolicy(),
            on_failed=lambda one: self._log.warning("dial_failed", error=one.error.happened),
        )
        ends = adopt_ends({one.rank: (one.control_fd, one.data_fd) for one in order.ends})
        link = self._link = MuxLink(end, self, label=f"mux {order.host}")
        ranks = tuple(sorted(ends))
        link.send(
            RelayHello(host=order.host, ranks=ranks, sigs=(order.envelope.model_sig,) * len(ranks))
        )
        star = self._star = StarRelay(
            order.envelope,
            order.host,
            {rank: one.data for rank, one in ends.items()},
            link,
            on_ended=self._star_ended,
            on_note=self._note,
        )
        link.start()
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_silence)
                self._running = set(ends)
                for rank, one in ends.items():
                    channel = PlainChannel(one.control)
                    outbox = self._outboxes[rank] = LinkOutbox(_RawSink(channel))
                    tasks.start_soon(outbox.run)
                    tasks.start_soon(self._carry_up, rank, channel)
                ended = await self._carry_down()
                self._log.info("ending", reason=ended.reason)
                is_lost = ended.is_loss and await self._ask_the_lowest()
                tasks.cancel_scope.cancel()
        finally:
            star.stop()
            link.close()
        return ExitCode.JOIN_RUN_LOST if is_lost else ExitCode.DONE

    async def _watch_silence(self) -> None:
        try:
            await watch_silence(self._silence)
        except RunLostError as error:
            self._downward.post(_Ended(error.happened, is_loss=True))

    async def _ask_the_lowest(self) -> bool:
        """Ask the lowest rank that runs to leave its parameters; False if none runs any more."""
        await anyio.sleep(LAST_WORD_S)
        if not self._running:
            return False
        outbox = self._outboxes[min(self._running)]
        outbox.put(encode(ShutdownWithSave(reason=SaveReason.CONTROLLER_LOST)))
        with anyio.move_on_after(FLUSH_S):
            await outbox.flushed()
        return True

    async def _carry_up(self, rank: Rank, channel: PlainChannel) -> None:
        """Pass a rank's frames to the controller until the rank has ended."""
        assert self._link is not None
        try:
            while True:
                kind, payload = await channel.receive_raw()
                self._link.send(Data(rank=rank, kind=kind, payload=payload))
                if kind == _HELLO:
                    self._silence.expect()
        except _RANK_ENDED:
            self._log.info("rank_channel_ended", rank=rank)
        except BadFrameError as error:
            self._log.warning("rank_sent_no_frame", rank=rank, error=error.happened)
        except LinkClosedError:  # on_closed says so, behind the last that came
            await _read_out(channel)
        except RemoteProtocolError as error:
            told = f"the controller takes nothing: {error.happened}"
            self._downward.post(_Ended(told, is_loss=True))
            return
        self._running.discard(rank)
        self._outboxes[rank].finish()
        try:
            self._link.send(RankExit(rank=rank))
        except RemoteProtocolError as error:
            self._log.warning("rank_exit_not_told", rank=rank, error=error.happened)

    async def _carry_down(self) -> "_Ended":
        """Pass the controller's frames to the ranks until the relay ends; return why."""
        while True:
            message = await self._downward.receive()
            match message:
                case Data():
                    self._silence.heard()
                    outbox = self._outboxes.get(message.rank)
                    if outbox is None:
                        self._log.warning("no_such_rank", rank=message.rank)
                    else:
                        outbox.put((message.kind, message.payload))
                case RelayDeclareDead():
                    self._running.discard(message.rank)
                case _Ended():
                    return message
                case RelayHelloAck():
                    self._log.info("connected")
                case _:
                    self._log.warning("unexpected_message", kind=type(message).__name__)

    def on_message(self, message: object) -> None:
        """Take a message of the controller; in the link's receiver thread."""
        assert self._star is not None
        is_taken = self._star.on_message(message)
        if isinstance(message, RelayDeclareDead) or not is_taken:
            self._downward.post(message)

    def on_bucket_begin(self, frame: BucketFrame) -> memoryview:
        """Return the place for a bucket; in the link's receiver thread."""
        assert self._star is not None
        return self._star.on_bucket_begin(frame)

    def on_bucket(self, frame: BucketFrame) -> None:
        """Take a complete bucket; in the link's receiver thread."""
        assert self._star is not None
        self._star.on_bucket(frame)

    def on_closed(self, error: Exception | None) -> None:
        """Learn that the controller is gone; in the link's receiver thread."""
        assert self._star is not None
        reason = f"the controller is gone ({error or 'connection ended'})"
        self._star.on_link_closed(reason)
        self._downward.post(_Ended(reason, is_loss=True))

    def _star_ended(self, reason: str, error: BaseException | None) -> None:
        """Learn that there is nothing left to fold; in the plane's thread."""
        if error is not None:
            self._log.exception("plane_failed", error)
            self._downward.post(_Ended(reason))

    def _note(self, note: Note) -> None:
        self._log.info(note.code, **note.fields)


async def _read_out(channel: PlainChannel) -> None:
    """Wait until a rank has ended, whatever it still says."""
    with contextlib.suppress(*_RANK_ENDED, BadFrameError):
        while True:
            await channel.receive_raw()


class _Ended:
    """The relay has nothing left to do; is it because the controller is gone?"""

    def __init__(self, reason: str, *, is_loss: bool = False) -> None:
        self.reason = reason
        self.is_loss = is_loss


class _RawSink:
    """Writes encoded frames to a rank."""

    def __init__(self, channel: PlainChannel) -> None:
        self._channel = channel

    async def send(self, message: object) -> None:
        """Write one (kind, payload) pair."""
        assert isinstance(message, tuple)
        await self._channel.send_raw(*message)

    async def aclose(self) -> None:
        """Close the channel."""
        await self._channel.aclose()


def main() -> int:
    """Run the process; return its exit code."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("process")
    arguments.add_argument("--host")
    arguments.add_argument("--order-fd", type=int, required=True)
    tie_from_environment(own_environment())
    order = read_order(arguments.parse_args().order_fd, RelayOrder)
    log = ProcessLog(
        order.log_path,
        host=order.host,
        process="relay",
        utc_iso=clock.utc_iso,
        level=Level.DEBUG if order.is_verbose else Level.INFO,
    )
    log.info("started", ranks=tuple(one.rank for one in order.ends))
    try:
        return anyio.run(_serve, order, log)
    except FlodlError as error:
        log.error("failed", error=str(error))
        return error.exit_code
    finally:
        log.close()


async def _serve(order: RelayOrder, log: ProcessLog) -> int:
    return await Relay(order, log).run()


if __name__ == "__main__":
    sys.exit(main())
