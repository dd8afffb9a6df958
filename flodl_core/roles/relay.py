"""A relay's process: one muxed connection up, the host's ranks below, no torch.

Control frames pass untouched in both directions; tensors are folded by the
plane's own thread. It ends when its last rank is gone or the controller is, and
then its ranks see the end of their sockets and end too.
"""

import argparse
import os
import sys

import anyio
import anyio.abc

from flodl_core.errors import BadFrameError, FlodlError, RemoteProtocolError
from flodl_core.ids import ExitCode, Rank
from flodl_core.machines import Note
from flodl_core.messages.data import BucketFrame
from flodl_core.messages.mux import Data, RankExit, RelayHello, RelayHelloAck
from flodl_core.net import clock
from flodl_core.net.addresses import parse_host_port
from flodl_core.net.children import own_environment
from flodl_core.net.local import PlainChannel
from flodl_core.net.mux_end import connect_mux
from flodl_core.net.mux_link import MuxLink
from flodl_core.net.parent_tie import tie_from_environment
from flodl_core.planes.star_relay import StarRelay
from flodl_core.roles.mailbox import Mailbox
from flodl_core.roles.orders import RelayOrder, read_order
from flodl_core.roles.outbox import LinkOutbox
from flodl_core.roles.rank_ends import adopt_ends
from flodl_core.telemetry.logs import Level, ProcessLog

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
        self._tasks: anyio.abc.TaskGroup | None = None

    async def run(self) -> int:
        """Serve until there is nothing left to do; return the exit code."""
        order = self._order
        salt = os.read(order.salt_fd, 16)
        os.close(order.salt_fd)
        host, port = parse_host_port(order.envelope.controller)
        end = await connect_mux(host, port, salt=salt)
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
                self._tasks = tasks
                for rank, one in ends.items():
                    channel = PlainChannel(one.control)
                    outbox = self._outboxes[rank] = LinkOutbox(_RawSink(channel))
                    tasks.start_soon(outbox.run)
                    tasks.start_soon(self._carry_up, rank, channel)
                reason = await self._carry_down()
                self._log.info("ending", reason=reason)
                tasks.cancel_scope.cancel()
        finally:
            star.stop()
            link.close()
        return ExitCode.DONE

    async def _carry_up(self, rank: Rank, channel: PlainChannel) -> None:
        """Pass a rank's frames to the controller until the rank has ended."""
        assert self._link is not None
        try:
            while True:
                kind, payload = await channel.receive_raw()
                self._link.send(Data(rank=rank, kind=kind, payload=payload))
        except _RANK_ENDED:
            self._log.info("rank_channel_ended", rank=rank)
        except BadFrameError as error:
            self._log.warning("rank_sent_no_frame", rank=rank, error=error.happened)
        except RemoteProtocolError as error:
            self._downward.post(_Ended(f"the controller takes nothing: {error.happened}"))
            return
        self._outboxes[rank].finish()
        try:
            self._link.send(RankExit(rank=rank))
        except RemoteProtocolError as error:
            self._log.warning("rank_exit_not_told", rank=rank, error=error.happened)

    async def _carry_down(self) -> str:
        """Pass the controller's frames to the ranks until the relay ends; return why."""
        while True:
            message = await self._downward.receive()
            match message:
                case Data():
                    outbox = self._outboxes.get(message.rank)
                    if outbox is None:
                        self._log.warning("no_such_rank", rank=message.rank)
                    else:
                        outbox.put((message.kind, message.payload))
                case _Ended():
                    return message.reason
                case RelayHelloAck():
                    self._log.info("connected")
                case _:
                    self._log.warning("unexpected_message", kind=type(message).__name__)

    def on_message(self, message: object) -> None:
        """Take a message of the controller; in the link's receiver thread."""
        assert self._star is not None
        if not self._star.on_message(message):
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
        self._downward.post(_Ended(reason))

    def _star_ended(self, reason: str, error: BaseException | None) -> None:
        """Learn that there is nothing left to fold; in the plane's thread."""
        if error is not None:
            self._log.exception("plane_failed", error)
            self._downward.post(_Ended(reason))

    def _note(self, note: Note) -> None:
        self._log.info(note.code, **note.fields)


class _Ended:
    """The relay has nothing left to do."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


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
