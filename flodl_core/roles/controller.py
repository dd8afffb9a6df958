"""The controller: the formed world's coordinator with its links, the launcher's busiest part.

It feeds the coordinator from ranks, hosts, the root and operators, and performs
its effects. It has no rule of its own: who is late, what is saved and how a run
ends is the coordinator's word.

    local ranks ─┐                      ┌─▶ ranks (Send)
    relays ──────┼─▶ mailbox ─▶ Coordinator ─▶ effects ─▶ root, hosts, logs, saves
    root, hosts ─┘
"""

import anyio
import anyio.abc

from flodl_core.coordinator.effects import (
    DeclareRankDead,
    DismissHost,
    DropHost,
    DumpRankStack,
    Effect,
    EvictRank,
    RunFinished,
    SaveBundle,
    Send,
)
from flodl_core.coordinator.events import (
    Event,
    HostStatsReported,
    RankLost,
    RankMessage,
    SaveFinished,
    StopKind,
    StopRequested,
)
from flodl_core.coordinator.machine import Coordinator
from flodl_core.errors import BadFrameError
from flodl_core.ids import ExitCode, HostName, Rank
from flodl_core.machines import Note
from flodl_core.messages.job import Envelope, HostRanks
from flodl_core.messages.join import (
    DumpStack,
    Evict,
    HostStats,
    RankExited,
    RankStack,
    RunEnded,
)
from flodl_core.messages.mux import RelayHelloAck
from flodl_core.net import clock
from flodl_core.net.local import PlainChannel
from flodl_core.net.mux_end import accept_mux
from flodl_core.net.port import PortConnection
from flodl_core.planes.consensus import Beginning
from flodl_core.planes.star_root import StarRoot
from flodl_core.roles.death_watch import end_words
from flodl_core.roles.drive import Driver
from flodl_core.roles.host_life import Attached, FoldingEnd
from flodl_core.roles.host_link import HostLink, LinkReports
from flodl_core.roles.mailbox import Mailbox
from flodl_core.roles.outbox import LinkOutbox
from flodl_core.roles.rank_ends import RankEnds
from flodl_core.roles.rank_ends_watch import RankEndWatch
from flodl_core.roles.run_services import RunServices
from flodl_core.roles.saving import PinnedSave, marks_of
from flodl_core.roles.stacks import summarize_stack
from flodl_core.units import Seconds


class Controller:
    """Runs the training of one formed world.

    Args:
        envelope: the world.
        coordinator: its scheduler.
        services: of this run.
        beginning: what a resumed run begins with; empty if it begins anew.
    """

    def __init__(
        self,
        envelope: Envelope,
        coordinator: Coordinator,
        services: RunServices,
        *,
        beginning: Beginning,
    ) -> None:
        self._beginning: Beginning | None = beginning
        self.coordinator = coordinator
        self.finished: RunFinished | None = None
        self._envelope = envelope
        self._window = services.window
        self._writer = services.writer
        self._services = services
        self._story = services.story
        self._log = services.log
        self._mailbox: Mailbox[Event] = Mailbox()
        self._driver = Driver(coordinator, self._mailbox, self._perform)
        self._root: StarRoot | None = None
        self._root_ready = anyio.Event()
        self._all_linked = anyio.Event()
        self._links: dict[HostName, HostLink] = {}
        self._link_of: dict[Rank, HostLink] = {}
        self._local: dict[Rank, LinkOutbox] = {}
        self._ends = RankEndWatch()
        self._exited: set[Rank] = set()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._salt = b""

    def post(self, event: Event) -> None:
        """Feed the coordinator; from any thread."""
        self._mailbox.post(event)

    def attach_local(
        self, tasks: anyio.abc.TaskGroup, salt: bytes, local: dict[Rank, RankEnds]
    ) -> Attached:
        """Open the root for the launcher's own ranks and for relays; `HostLife` calls it."""
        self._tasks = tasks
        self._salt = salt
        root = self._root = StarRoot(
            self._envelope,
            {rank: ends.data for rank, ends in local.items()},
            on_round_ended=self.post,
            on_failed=self._root_failed,
            on_note=self._note_from_root,
            beginning=self._beginning,
        )
        self._beginning = None
        self._writer.use(self._envelope, root.begin_save)
        for rank, ends in local.items():
            channel = PlainChannel(ends.control)
            outbox = self._local[rank] = LinkOutbox(channel)
            tasks.start_soon(outbox.run)
            tasks.start_soon(self._listen_local, rank, channel)
        tasks.start_soon(self._watch_ends)
        self._root_ready.set()
        self._note_linked()
        return Attached(until_lost=_never, finish=_nothing)

    async def run(self) -> RunFinished:
        """Drive the coordinator to its end."""
        await self._driver.run()
        assert self.finished is not None
        lateness = self._driver.lateness()
        self._log.info(
            "coordinator_ended",
            ticks=lateness.ticks,
            tick_p99_ms=round(lateness.p99_ms, 2),
            tick_max_ms=round(lateness.max_ms, 2),
            inbox_peak=self._mailbox.statistics().peak,
        )
        return self.finished

    def close(self) -> None:
        """End root and links; blocks for a moment while their threads end."""
        for host_link in self._links.values():
            host_link.link.close()
        if self._root is not None:
            self._root.stop()

    async def await_hosts(self, timeout_s: Seconds) -> bool:
        """Wait until every worker host's relay is connected; end the run if one is not in time.

        Returns:
            Whether all of them are.
        """
        with anyio.move_on_after(timeout_s):
            await self._all_linked.wait()
            return True
        absent = [one for one in self._worker_hosts() if one.host not in self._links]
        covered = self._envelope.world_size - sum(len(one.ranks) for one in absent)
        why = (
            f"formation: {covered}/{self._envelope.world_size} ranks covered in {timeout_s:g} s; "
            f"no relay of {', '.join(one.host for one in absent)}"
        )
        self.post(StopRequested(StopKind.NOW, ExitCode.FAILED, why))
        return False

    def _worker_hosts(self) -> list[HostRanks]:
        return [one for one in self._envelope.hosts if not set(one.ranks) & set(self._local)]

    def _note_linked(self) -> None:
        if all(one.host in self._links for one in self._worker_hosts()):
            self._all_linked.set()

    async def on_mux(self, connection: PortConnection) -> None:
        """Take a relay's connection; the port's consumer."""
        with anyio.fail_after(self._envelope.spec.rendezvous_timeout_s):
            await self._root_ready.wait()
        assert self._root is not None
        end, hello = await accept_mux(
            connection, salt=self._salt, is_sealed=self._envelope.seals_messages
        )
        known = next((one for one in self._envelope.hosts if one.host == hello.host), None)
        if known is None or known.ranks != hello.ranks or hello.host in self._links:
            end.sock.close()
            raise BadFrameError(
                f"a relay says that it is host {hello.host!r} with ranks {hello.ranks}, "
                "which is not the formed world's or is connected already"
            )
        link = self._links[hello.host] = HostLink(
            hello.host,
            hello.ranks,
            end=end,
            root=self._root,
            reports=LinkReports(
                rank_message=self.post,
                rank_exit=lambda rank: self._mailbox.call(self._channel_ended, rank),
                closed=lambda host, error: self._mailbox.call(self._link_closed, host, error),
            ),
        )
        self._link_of.update(dict.fromkeys(hello.ranks, link))
        self._root.attach_host(hello.host, link.link)
        link.link.start()
        link.link.send(RelayHelloAck())
        self._log.info("relay_connected", host=hello.host, ranks=hello.ranks)
        self._note_linked()

    def from_host(self, message: RankExited | HostStats | RankStack) -> None:
        """Take what a host reports of one of its ranks."""
        match message:
            case RankExited():
                self._exited.add(message.rank)
                cause = f"its process ended with {end_words(message)}"
                self._log.info(
                    "rank_exited", rank=message.rank, code=message.code, signal=message.signal
                )
                self._lose(
                    message.rank, self._ends.process_exited(message.rank, cause, clock.now())
                )
            case HostStats():
                self.post(HostStatsReported(message))
            case RankStack():
                where = summarize_stack(message.text)
                self._log.warning("stack", rank=message.rank, where=where)
                self._story.stack(message.rank, where)
                for line in message.text.splitlines():
                    self._log.warning("stack_line", rank=message.rank, line=line)

    def host_leaves(self, host: HostName, reason: str) -> None:
        """Lose every rank of a host whose agent says that it goes, before its links end."""
        if host not in self._links or self.finished is not None:
            return
        self._log.warning("host_leaves", host=host, reason=reason)
        self._story.host_lost(host, f"host {host} is gone: {reason}")
        for rank in self._links[host].ranks:
            if self._ends.lose(rank):
                self.post(RankLost(rank, f"host {host} is gone: {reason}"))

    def host_lost(self, host: HostName, ranks: tuple[Rank, ...]) -> None:
        """Lose every rank of a host whose control link ended."""
        self._log.warning("host_lost", host=host, ranks=ranks)
        self._story.host_lost(host, f"host {host} is gone: its control link ended")
        for rank in ranks:
            if self._ends.lose(rank):
                self.post(RankLost(rank, f"host {host} is gone: its control link ended"))

    def _link_closed(self, host: HostName, error: Exception | None) -> None:
        if self._root is not None:
            self._root.drop_host(host)
        if self.finished is not None:
            return
        why = f" ({error})" if error is not None else ""
        self._log.warning("relay_lost", host=host, error=str(error) if error else None)
        self._story.host_lost(host, f"host {host} is gone: the link of its relay ended{why}")
        for rank in self._links[host].ranks:
            if self._ends.lose(rank):
                self.post(RankLost(rank, f"the relay of host {host} is gone{why}"))

    async def _listen_local(self, rank: Rank, channel: PlainChannel) -> None:
        try:
            while True:
                self.post(RankMessage(rank, await channel.receive()))
        except (anyio.EndOfStream, anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass
        except BadFrameError as error:
            self._log.warning("rank_sent_no_frame", rank=rank, error=error.happened)
        self._local[rank].finish()
        self._channel_ended(rank)

    def _channel_ended(self, rank: Rank) -> None:
        self._lose(rank, self._ends.channel_ended(rank, clock.now()))

    def _lose(self, rank: Rank, cause: str | None) -> None:
        if cause is not None:
            self.post(RankLost(rank, cause))

    async def _watch_ends(self) -> None:
        while True:
            await anyio.sleep(0.1)
            for rank, cause in self._ends.overdue(clock.now()):
                self.post(RankLost(rank, cause))

    def _root_failed(self, error: BaseException) -> None:
        """Learn, in the root's thread, that the reduce cannot go on: a fault of ours."""
        self._log.exception("root_failed", error)
        self.post(
            StopRequested(
                StopKind.NOW, ExitCode.FAILED, f"the reduce failed: {type(error).__name__}: {error}"
            )
        )

    def _note_from_root(self, note: Note) -> None:
        self._log.warning(note.code, **note.fields)

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send():
                self._send(effect.rank, effect.message)
            case DeclareRankDead():
                self._declare_dead(effect)
            case EvictRank():
                self._ask_for_stack(effect.rank)
                self._end_process(effect.rank, effect.reason)
            case DumpRankStack():
                self._ask_for_stack(effect.rank)
            case SaveBundle():
                self._begin_save(effect)
            case DismissHost():
                self._dismiss_host(effect)
            case DropHost():
                self._drop_host(effect.host, effect.reason)
            case RunFinished():
                self.finished = effect
                self._driver.stop()
            case _:
                self._services.keep(effect)

    def _send(self, rank: Rank, message: object) -> None:
        if rank in self._local:
            self._local[rank].put(message)
            return
        link = self._link_of.get(rank)
        if link is not None:
            link.send(rank, message)

    def _declare_dead(self, effect: DeclareRankDead) -> None:
        assert self._tasks is not None
        self._ends.lose(effect.rank)
        if self._root is not None:
            self._root.declare_dead(effect.rank)
        self._tasks.start_soon(self._end_lingering, effect)

    async def _end_lingering(self, effect: DeclareRankDead) -> None:
        """End the process of a rank that takes no part any more, unless it ends by itself."""
        await anyio.sleep(effect.grace_s)
        if effect.rank not in self._exited:
            self._end_process(effect.rank, effect.reason)

    def _dismiss_host(self, effect: DismissHost) -> None:
        """Let a worker host's agent end well; the launcher's own host stays for the launcher."""
        self._story.host_dismissed(effect.host)
        for one in self._worker_hosts():
            if one.host == effect.host:
                ended = RunEnded(code=ExitCode.DONE, summary=effect.reason)
                self._window.send_to_host_of(one.ranks[0], ended)

    def _drop_host(self, host: HostName, reason: str) -> None:
        self._log.warning("host_dropped", host=host, reason=reason)
        self._story.host_lost(host, f"host {host} is given up: {reason}")
        if self._root is not None:
            self._root.drop_host(host)
        if host in self._links:
            self._links[host].link.close()

    def _end_process(self, rank: Rank, reason: str) -> None:
        self._window.send_to_host_of(rank, Evict(rank=rank, reason=reason))

    def _ask_for_stack(self, rank: Rank) -> None:
        self._window.send_to_host_of(rank, DumpStack(rank=rank))

    def _begin_save(self, effect: SaveBundle) -> None:
        assert self._tasks is not None
        pinned = self._writer.begin(effect, marks_of(self.coordinator.view(clock.now())))
        if isinstance(pinned, str):
            self.post(SaveFinished(effect.version, pinned))
        else:
            self._tasks.start_soon(self._save, pinned, effect.version)

    async def _save(self, pinned: PinnedSave, version: int) -> None:
        error = await self._writer.write(pinned)
        if error is None:
            self._story.saved(version, f"{self._writer.stem}.safetensors")
        self.post(SaveFinished(version, error))


async def _never() -> FoldingEnd:
    await anyio.sleep_forever()
    return FoldingEnd(why="")


async def _nothing() -> None:
    return None
