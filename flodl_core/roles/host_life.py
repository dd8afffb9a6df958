"""One host from WorldFormed to its end: children up, reports up, orders down.

The join connection has become the host control link: RankExited, HostStats and
RankStack and a last Abort go up, Evict, DumpStack, Abort and RunEnded come down, and its end means
that the launcher is gone. Whatever ends this life, no child outlives it, but for one that
SIGKILL does not end: it is told and left behind.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

import anyio
import anyio.abc

from flodl_core.errors import BadFrameError, RunLostError
from flodl_core.ids import HostName, Rank
from flodl_core.messages.job import Envelope
from flodl_core.messages.join import Abort, DumpStack, Evict, RankStack, RunEnded
from flodl_core.net.children import await_killed
from flodl_core.net.join_link import JoinLink
from flodl_core.roles.error_groups import innermost
from flodl_core.roles.host_children import HostChildren, HostFacts, Report
from flodl_core.roles.host_join import JoinedWorld
from flodl_core.roles.outbox import LinkOutbox
from flodl_core.roles.rank_ends import RankEnds, make_ends
from flodl_core.units import Seconds

END_GRACE_S: Seconds = 3.0
"""From the word that the run ended to SIGKILL for a rank that has not left."""

EMERGENCY_S: Seconds = 60.0
"""From the loss of the launcher to SIGKILL for a rank that is still writing its own parameters."""

LINK_END_S: Seconds = 5.0
"""How long the link may outlive ranks that have all ended because the controller was gone."""

LAST_WORD_S: Seconds = 1.0
"""For an agent that is ended to say so."""

LEAVE_S: Seconds = 0.3
"""From the word that the run ended to the end of the folding side, for ranks on their way out."""

RELAY_END_S: Seconds = 3.0
"""How long the relay may take to see that the launcher is gone, and to say its last word."""

_RELAY = "the relay"
_LOST_FIX = "look at the launcher's log; its newest checkpoint is what remains"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldingEnd:
    """How the folding side of a host ended."""

    why: str
    """One clause."""
    controller_gone: bool = False
    """Whether it ended because the controller did; else it failed by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """Who folds for this host.

    Attributes:
        until_lost: returns when the folding side is gone; never otherwise.
        finish: ends the folding side after the ranks.
    """

    until_lost: Callable[[], Awaitable[FoldingEnd]]
    finish: Callable[[], Awaitable[None]]


Attach = Callable[[Envelope, bytes, dict[Rank, RankEnds]], Awaitable[Attached]]
"""Gives the folding ends of the ranks' sockets, with the session salt, to who folds."""


class HostLife:
    """Runs one host of a formed world.

    Args:
        link: the host control link; closed at the end.
        world: as joined.
        facts: of this host.
        attach: gives the other ends of the ranks' sockets to the relay or the launcher.
        controller: `host:port` as this host dialled it.
        make_children: its ranks, given who takes their reports.
    """

    def __init__(
        self,
        link: JoinLink,
        world: JoinedWorld,
        *,
        facts: HostFacts,
        attach: Attach,
        controller: str,
        make_children: Callable[[HostFacts, Report], HostChildren] = HostChildren,
    ) -> None:
        self._link = link
        self._outbox = LinkOutbox(link)
        self._children = make_children(facts, self._outbox.put)
        self._facts = facts
        self._attach = attach
        self._ranks = world.formed.ranks
        self._devices = world.devices
        self._salt = world.salt
        self._envelope = replace(world.formed.envelope, controller=controller)
        self._ended: RunEnded | None = None

    @property
    def host(self) -> HostName:
        """This host's label."""
        return self._facts.host

    async def take_leave(self, reason: str) -> None:
        """Tell the launcher why this host is about to go; ends the outbox.

        Args:
            reason: one clause.
        """
        self._outbox.put(Abort(reason=reason))
        with anyio.move_on_after(LAST_WORD_S):
            await self._outbox.flushed()

    async def run(self) -> RunEnded:
        """Start the children and stay until the run has ended.

        Returns:
            The launcher's last word; a child that cannot be killed is named behind it.

        Raises:
            RunLostError: the launcher is gone or aborted the run; every child is dead or named.
        """
        lost: RunLostError | None = None
        folding, theirs = make_ends(self._ranks)
        attached = await self._attach(self._envelope, self._salt, folding)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._outbox.run)
                self._children.start_ranks(
                    tasks,
                    self._envelope,
                    ranks=self._ranks,
                    devices=self._devices,
                    ends=theirs,
                )
                tasks.start_soon(self._watch_folding, attached)
                self._ended = await self._obey(tasks, attached)
                with anyio.move_on_after(LEAVE_S):
                    await self._children.all_ended()
                await self._end_folding(attached)
                await self._children.finish(END_GRACE_S)
                tasks.cancel_scope.cancel()
        except* RunLostError as group:
            lost = innermost(group)
        finally:
            self._children.kill_all()
            with anyio.CancelScope(shield=True):
                await self._children.finish(0)
                await self._end_folding(attached)
                await self._link.aclose()
        left = self._children.left
        if lost is not None:
            raise RunLostError(left.say_after(lost.happened), fix=lost.fix)
        assert self._ended is not None
        return replace(self._ended, summary=left.say_after(self._ended.summary))

    async def _end_folding(self, attached: Attached) -> None:
        """End the folding side; what does not end is left behind, and not waited for again."""
        left = self._children.left
        if _RELAY not in left and not await await_killed(
            attached.finish, ceiling_s=self._children.unkillable_s
        ):
            await left.add([_RELAY])

    async def _watch_folding(self, attached: Attached) -> None:
        """End the ranks with the folding side; in peace where the controller is gone.

        Raises:
            RunLostError: the controller is gone for all ranks, and the link does not tell it.
        """
        end = await attached.until_lost()
        if self._ended is not None:
            return
        if not end.controller_gone:
            self._children.kill_all(end.why)
            return
        await self._children.finish(EMERGENCY_S)
        await anyio.sleep(LINK_END_S)
        raise RunLostError(f"host {self.host}: {end.why}: the controller is gone", fix=_LOST_FIX)

    async def _give_time(self, attached: Attached) -> None:
        """Let ranks leave what they have, where they outlive the launcher."""
        if self._facts.has_relay:
            with anyio.move_on_after(RELAY_END_S):
                await attached.until_lost()
            await self._end_folding(attached)
            await self._children.finish(EMERGENCY_S)

    async def _obey(self, tasks: anyio.abc.TaskGroup, attached: Attached) -> RunEnded:
        """Carry out what comes down the link until the run has ended."""
        while True:
            try:
                message = await self._link.receive()
            except (
                anyio.EndOfStream,
                anyio.BrokenResourceError,
                anyio.ClosedResourceError,
                BadFrameError,
            ) as error:
                await self._give_time(attached)
                raise RunLostError(
                    f"host {self.host}: the launcher is gone", fix=_LOST_FIX
                ) from error
            match message:
                case RunEnded():
                    return message
                case Abort():
                    raise RunLostError(message.reason, fix="see the launcher's output")
                case Evict():
                    self._children.evict(message.rank, message.reason, tasks)
                case DumpStack():
                    tasks.start_soon(self._dump_stack, message.rank)
                case _:
                    continue

    async def _dump_stack(self, rank: Rank) -> None:
        text = await self._children.dump_stack(rank)
        if text:
            self._outbox.put(RankStack(rank=rank, text=text))
