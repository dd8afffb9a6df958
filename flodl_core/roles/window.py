"""The join window's loop: admits hosts by the ledger's word, then keeps their control links.

One task a JOIN connection: keys, Knock, Offer, Hello, then whatever the host
reports until it ends. Every decision is the ledger's; this file moves messages.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import anyio

from flodl_core.errors import BadFrameError, FlodlError
from flodl_core.ids import ClusterPhase, HostName, Rank
from flodl_core.machines import Note, Tick
from flodl_core.membership.admission import refuse_late
from flodl_core.membership.events import (
    AbortMember,
    AdmitMember,
    AnnouncePhase,
    DeclareHostLost,
    FailWindow,
    FormWorld,
    HelloReceived,
    LedgerEffect,
    LedgerEvent,
    MemberLeft,
    RefuseMember,
)
from flodl_core.membership.ledger import MembershipLedger
from flodl_core.membership.roster import ConnectionId, Member
from flodl_core.messages.join import (
    Abort,
    Accept,
    HostStats,
    JoinHello,
    Knock,
    Offer,
    RankExited,
    RankStack,
    Reject,
)
from flodl_core.net import clock
from flodl_core.net.join_link import JoinLink, accept_join
from flodl_core.net.port import PortConnection
from flodl_core.roles.outbox import LinkOutbox
from flodl_core.telemetry.line_file import show_untrusted
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.units import Seconds

HELLO_WAIT_S: Seconds = 600.0
"""From the Offer to the Hello: the host builds its job once in between."""

REFUSED_WAIT_S: Seconds = 5.0
"""How long a refused host may take to read why."""

_OPEN = (ClusterPhase.WAITING, ClusterPhase.STAGING)

_LINK_ENDED = (
    anyio.EndOfStream,
    anyio.BrokenResourceError,
    anyio.ClosedResourceError,
    BadFrameError,
    TimeoutError,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What proves a host."""

    token: bytes
    salt: bytes
    admits_openly: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedHost:
    """A host that was turned away; nothing of it is to be trusted."""

    host: str
    address: str
    reason: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowReports:
    """Whom the window tells, on the event loop."""

    formed: Callable[[FormWorld], None]
    failed: Callable[[FailWindow], None]
    phase: Callable[[ClusterPhase, str], None]
    refused: Callable[[RefusedHost], None]
    joined: Callable[[HostName, str, tuple[str, ...]], None]
    """(host, address, devices)"""
    left: Callable[[HostName], None]
    """A host that was in, before the world formed."""
    host_lost: Callable[[HostName, tuple[Rank, ...]], None]
    from_host: Callable[[RankExited | HostStats | RankStack], None]
    leaves: Callable[[HostName, str], None]
    """(host, why): its agent says that it goes."""


class _JoinSink:
    """Writes to an agent; an Accept's salt is sealed on the way."""

    def __init__(self, link: JoinLink) -> None:
        self._link = link

    async def send(self, message: object) -> None:
        if isinstance(message, Accept):
            await self._link.send_accept(message)
        else:
            await self._link.send(message)

    async def aclose(self) -> None:
        await self._link.aclose()


class JoinWindow:
    """Feeds the ledger and performs its effects.

    Args:
        ledger: of this run.
        offer: what every host is told first.
        secrets: of this run.
        reports: whom to tell.
        log: of the launcher.
    """

    def __init__(
        self,
        ledger: MembershipLedger,
        offer: Offer,
        *,
        secrets: Secrets,
        reports: WindowReports,
        log: ProcessLog,
    ) -> None:
        self.ledger = ledger
        self._offer = offer
        self._secrets = secrets
        self._reports = reports
        self._log = log
        self._outboxes: dict[ConnectionId, LinkOutbox] = {}
        self._by_rank: dict[Rank, ConnectionId] = {}
        self._wake = anyio.Event()
        self._link_ended = anyio.Event()
        self._hellos: dict[ConnectionId, tuple[str, HostName]] = {}

    def take(self, event: LedgerEvent) -> None:
        """Feed the ledger and perform what it wants, at once and in order."""
        before = self.ledger.members
        effects = self.ledger.handle(event, clock.now())
        self._tell_members(before)
        for effect in effects:
            self._perform(effect)
        self._wake.set()

    def _tell_members(self, before: Sequence[Member]) -> None:
        """Report who came in or went since the members were `before`."""
        if before is self.ledger.members:
            return
        known = {member.connection for member in before}
        present = {member.connection for member in self.ledger.members}
        for member in before:
            if member.connection not in present:
                self._reports.left(member.host)
        for member in self.ledger.members:
            if member.connection not in known:
                self._reports.joined(member.host, member.address, member.hello.local_devices)

    async def keep_time(self) -> None:
        """Tick the ledger when its deadline has come; runs until cancelled."""
        while True:
            self._wake = anyio.Event()
            due = self.ledger.deadline()
            wait_s = None if due is None else max(0.0, due - clock.now())
            with anyio.move_on_after(wait_s) as scope:
                await self._wake.wait()
            if scope.cancelled_caught:
                self.take(Tick())

    def seat_ranks(self, seats: dict[Rank, ConnectionId]) -> None:
        """Learn which connection speaks for which rank of the formed world."""
        self._by_rank = dict(seats)

    async def until_no_host(self) -> None:
        """Wait until every host's control link has ended."""
        while self._outboxes:
            self._link_ended = anyio.Event()
            await self._link_ended.wait()

    def send(self, connection: ConnectionId, message: object) -> None:
        """Queue a message for a host."""
        outbox = self._outboxes.get(connection)
        if outbox is not None:
            outbox.put(message)

    def send_to_host_of(self, rank: Rank, message: object) -> None:
        """Queue a message for the host that has this rank."""
        if rank in self._by_rank:
            self.send(self._by_rank[rank], message)

    def send_to_all(self, message: object) -> None:
        """Queue a message for every host."""
        for outbox in self._outboxes.values():
            outbox.put(message)

    async def on_join(self, connection: PortConnection) -> None:
        """Serve one JOIN connection to its end; the port's consumer."""
        link = await accept_join(
            connection,
            token=self._secrets.token,
            open_admission=self._secrets.admits_openly,
        )
        number = ConnectionId(connection.number)
        address = str(link.peer)
        try:
            first = await link.receive()
        except _LINK_ENDED as error:
            if not connection.is_link:
                raise  # it has proved nothing: the port counts it
            self._log.info("host_link_ended", address=address, error=_word(error))
            return
        outbox = LinkOutbox(_JoinSink(link))
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(outbox.run)
                try:
                    if self._introduce(first, outbox, address):
                        self._outboxes[number] = outbox
                        await self._listen(link, number, address)
                except _LINK_ENDED as error:
                    self._log.info("host_link_ended", address=address, error=_word(error))
                outbox.finish()
                tasks.cancel_scope.deadline = anyio.current_time() + 5
        finally:
            if self._outboxes.pop(number, None) is not None:
                self.take(MemberLeft(connection=number))
                self._link_ended.set()
            with anyio.CancelScope(shield=True):
                await link.aclose()

    def _introduce(self, knock: object, outbox: LinkOutbox, address: str) -> bool:
        """Answer the first message, a Knock; return whether a Hello may follow.

        Who comes too late is told so at once: it would build the job for nothing, and again at
        each dial.
        """
        if isinstance(knock, Knock):
            phase = self.ledger.phase
            if phase in _OPEN:
                outbox.put(self._offer)
                return True
            late = refuse_late(f"closed: {phase}")
            self._log.info("late_knock", address=address, phase=phase.value)
            self._reports.refused(
                RefusedHost(host="?", address=address, reason=late.reason, fix=late.fix)
            )
            outbox.put(Reject(reason=late.reason, fix=late.fix, transient=late.transient))
            return False
        self._log.warning("no_knock", address=address, got=type(knock).__name__)
        outbox.put(_out_of_turn("the first message must be a Knock", knock))
        return False

    async def _listen(self, link: JoinLink, number: ConnectionId, address: str) -> None:
        with anyio.fail_after(HELLO_WAIT_S):
            hello = await link.receive()
        if not isinstance(hello, JoinHello):
            self._outboxes[number].put(
                _out_of_turn("the message after the Offer must be a Hello", hello)
            )
            return
        self._log.info("hello", address=address, host=hello.host, devices=hello.local_devices)
        self._hellos[number] = (address, hello.host)
        self.take(HelloReceived(connection=number, hello=hello, address=address))
        if all(member.connection != number for member in self.ledger.members):
            with anyio.move_on_after(REFUSED_WAIT_S):
                await link.receive()
            return
        while True:
            message = await link.receive()
            if isinstance(message, Abort):
                self._reports.leaves(hello.host, show_untrusted(message.reason, limit_chars=80))
            elif isinstance(message, RankExited | HostStats | RankStack):
                if self._by_rank.get(message.rank) == number:
                    self._reports.from_host(message)
                else:
                    self._log.warning("foreign_rank", address=address, rank=message.rank)
            else:
                self._log.warning("unexpected_message", kind=type(message).__name__)

    def _perform(self, effect: LedgerEffect) -> None:
        match effect:
            case AdmitMember():
                self.send(
                    effect.connection,
                    Accept(
                        ranks=effect.ranks,
                        salt=self._secrets.salt,
                        formation_wait_s=effect.formation_wait_s,
                    ),
                )
            case RefuseMember():
                self._refuse(effect)
            case FormWorld():
                self._log.info("world_formed", reason=effect.reason)
                self._reports.formed(effect)
            case FailWindow():
                self._log.error("window_failed", reason=effect.reason)
                self._reports.failed(effect)
            case AbortMember():
                self.send(effect.connection, Abort(reason=effect.reason))
            case DeclareHostLost():
                self._reports.host_lost(effect.host, effect.ranks)
            case AnnouncePhase():
                self._log.info("phase", phase=effect.phase.value, reason=effect.reason)
                self._reports.phase(effect.phase, effect.reason)
            case Note():
                self._log.info(effect.code, **effect.fields)

    def _refuse(self, effect: RefuseMember) -> None:
        refusal = effect.refusal
        address, host = self._hellos.get(effect.connection, ("?", HostName("?")))
        self._log.warning("refused", address=address, reason=refusal.reason, fix=refusal.fix)
        self.send(
            effect.connection,
            Reject(reason=refusal.reason, fix=refusal.fix, transient=refusal.transient),
        )
        self._reports.refused(
            RefusedHost(host=host, address=address, reason=refusal.reason, fix=refusal.fix)
        )
        outbox = self._outboxes.get(effect.connection)
        if outbox is not None:
            outbox.finish()


def _out_of_turn(rule: str, message: object) -> Reject:
    return Reject(
        reason=f"{rule}, got {type(message).__name__}",
        fix="install the same flodl version on every host",
        transient=False,
    )


def _word(error: Exception) -> str:
    return error.happened if isinstance(error, FlodlError) else type(error).__name__
