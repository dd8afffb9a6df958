"""The children of one host: its ranks, and its relay where it has one.

Starts them, learns of their ends from the system's wait, reports those, samples
what the ranks use, bounds what they print, and ends whatever is left. Neither a disk that
has stopped answering nor a rank that SIGKILL does not end holds up the loop or the end
(`host_outputs`, `left_behind`). What an end means is decided elsewhere. Used by the agent
of a further host and, for its own ranks, by the launcher.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.abc

from flodl_core.ids import HostName, Rank
from flodl_core.messages.job import Envelope, JobRef
from flodl_core.messages.join import HostStats, RankExited
from flodl_core.net import clock
from flodl_core.net.children import (
    EVICTION_S,
    UNKILLABLE_S,
    Child,
    ExitStatus,
    await_killed,
    python_command,
    spawn,
)
from flodl_core.roles.abandonable import run_abandonable
from flodl_core.roles.death_watch import OUT_OF_MEMORY, DeathRecorder, MemoryWatch
from flodl_core.roles.host_outputs import OutputBound, ask_disk, read_since, size_of
from flodl_core.roles.left_behind import LeftBehind
from flodl_core.roles.orders import RankOrder, write_order
from flodl_core.roles.process_stats import find_loader_workers, read_host_stats
from flodl_core.roles.rank_ends import RankEnds
from flodl_core.units import Seconds

STATS_EVERY_S: Seconds = 1.0
FILES_END_S: Seconds = 2.0
"""How long the end of a host waits for what is still written about its ranks."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
_STACK_LOOKS = 10
_STACK_PAUSE_S: Seconds = 0.1
_STACK_WORKERS = 8
"""Most loader workers of a rank that are asked; each that is silent costs a second."""

Report = Callable[[RankExited | HostStats], None]
StartChild = Callable[..., Child]
"""Takes what `start_child` takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """What a host knows of itself and needs to start a child."""

    host: HostName
    job: JobRef
    job_path: Path | None
    micro_batch: int | None
    loader_workers: int | None
    """Processes that read samples for each rank; the job's own number if None."""
    save_path: str
    """Stem of what a rank of this host writes by itself, such as its death record."""
    log_path: Callable[[str], Path]
    """Log file of a process of this host."""
    output_path: Callable[[str], Path]
    """Where a child's own output goes."""
    env: Mapping[str, str]
    is_verbose: bool = False
    has_relay: bool = False
    """Whether a relay folds for its ranks, and an agent outlives the launcher."""


class HostChildren:
    """The ranks of one host, as processes.

    Args:
        facts: of this host.
        report: takes RankExited and HostStats, on the event loop.
        start: of a rank's process; `start_child` if None.
        unkillable_s: from SIGKILL to the moment a rank that has not ended is left behind.

    Attributes:
        left: what SIGKILL did not end.
        unkillable_s: as given.
    """

    def __init__(
        self,
        facts: HostFacts,
        report: Report,
        *,
        start: StartChild | None = None,
        unkillable_s: Seconds = UNKILLABLE_S,
    ) -> None:
        self._facts = facts
        self._report = report
        self._start = start or start_child
        self.unkillable_s = unkillable_s
        self.left = LeftBehind(facts.host, facts.log_path("host"))
        self._bound = OutputBound()
        self._recording: dict[Rank, anyio.Event] = {}
        self._is_disk_lost = False
        self._ranks: dict[Rank, Child] = {}
        self._ended: dict[Rank, ExitStatus] = {}
        self._evicted: dict[Rank, str] = {}
        self._dumping: dict[Rank, anyio.Event] = {}
        self._is_over = False
        self._why_over: str | None = None
        self._memory = MemoryWatch()
        self._deaths = DeathRecorder(facts.save_path, facts.host)

    @property
    def running(self) -> tuple[Rank, ...]:
        """Ranks whose process has not ended."""
        return tuple(rank for rank in self._ranks if rank not in self._ended)

    def start_ranks(
        self,
        tasks: anyio.abc.TaskGroup,
        envelope: Envelope,
        *,
        ranks: Sequence[Rank],
        devices: Sequence[str],
        ends: Mapping[Rank, RankEnds],
    ) -> None:
        """Start one process a rank; the rank ends of the socketpairs are closed here.

        Args:
            tasks: where each is waited for.
            envelope: of the run, with the controller's address as dialled.
            ranks: this host's.
            devices: one a rank.
            ends: the ranks' ends of their socketpairs.
        """
        spec = replace(
            envelope.spec, micro_batch=self._facts.micro_batch, save_path=self._facts.save_path
        )
        envelope = replace(envelope, spec=spec)
        threads = max(1, (os.cpu_count() or 1) // len(ranks))
        for rank, device in zip(ranks, devices, strict=True):
            order = RankOrder(
                rank=rank,
                host=self._facts.host,
                device=device,
                threads=threads,
                job=self._facts.job,
                job_path=self._facts.job_path,
                control_fd=ends[rank].control.fileno(),
                data_fd=ends[rank].data.fileno(),
                log_path=self._facts.log_path(f"rank{rank}"),
                is_verbose=self._facts.is_verbose,
                envelope=envelope,
                loader_workers=self._facts.loader_workers,
                has_relay=self._facts.has_relay,
            )
            child = self._start(
                "rank",
                order,
                facts=self._facts,
                process=f"rank{rank}",
                pass_fds=ends[rank].descriptors(),
                threads=threads,
            )
            ends[rank].close()
            self._ranks[rank] = child
            self._deaths.begin(rank, envelope.world_size)
            tasks.start_soon(self._await_end, rank, child)
        tasks.start_soon(self._report_stats)
        tasks.start_soon(self._bound_outputs)

    def evict(self, rank: Rank, reason: str, tasks: anyio.abc.TaskGroup) -> None:
        """End a rank: kindly first, by force after ten seconds."""
        child = self._ranks.get(rank)
        if child is not None and rank not in self._ended and rank not in self._evicted:
            self._evicted[rank] = reason
            tasks.start_soon(self._end_kindly, rank, child)

    async def _end_kindly(self, rank: Rank, child: Child) -> None:
        """Let a rank that was asked where it is say so first: a fatal signal would overtake it."""
        saying = self._dumping.get(rank)
        if saying is not None:
            await saying.wait()
        await child.terminate_group()

    async def dump_stack(self, rank: Rank) -> str:
        """Ask a rank for the stacks of its threads and return what it printed, at most 64 KiB.

        The rank and its loader workers print on SIGUSR1, from a handler in C, so that they
        answer also while their interpreter is stuck; the rank comes last. A rank that is
        gone, or prints nothing in a second, or whose disk does not answer, gives "".
        """
        child = self._ranks.get(rank)
        if child is None or rank in self._ended:
            return ""
        said = self._dumping[rank] = anyio.Event()
        try:
            return await self._ask_for_stack(child, self._output_of(rank))
        except OSError:  # of the file, its disk, or no descriptor is left: that ends nobody
            return ""
        finally:
            said.set()

    async def _ask_for_stack(self, child: Child, path: Path) -> str:
        start = await ask_disk(partial(size_of, path))
        workers = await ask_disk(partial(find_loader_workers, child.pid))
        for pid in (*workers[:_STACK_WORKERS], child.pid):
            before = await ask_disk(partial(size_of, path))
            if child.status is not None:  # then its number may be another's
                return ""
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
            for _ in range(_STACK_LOOKS):
                await anyio.sleep(_STACK_PAUSE_S)
                if await ask_disk(partial(size_of, path)) != before:
                    break
            await anyio.sleep(_STACK_PAUSE_S)
        return await ask_disk(partial(read_since, path, start))

    def kill_all(self, why: str | None = None) -> None:
        """Kill every rank that is left, at once; that is no death of any of them.

        Args:
            why: what the ends of these ranks are reported to come from; the report may
                arrive before the launcher sees it itself.
        """
        self._is_over = True
        self._why_over = self._why_over or why
        for rank in self.running:
            self._ranks[rank].kill_group()

    async def all_ended(self) -> None:
        """Wait for every rank to end by itself, but for those that are left behind."""
        async with anyio.create_task_group() as waiting:
            for rank, child in self._ranks.items():
                if _name(rank) not in self.left:
                    waiting.start_soon(child.wait)

    async def finish(self, grace_s: Seconds = EVICTION_S) -> None:
        """Wait for every rank to end by itself; kill what is left after `grace_s`.

        What does not end by that either is left behind.
        """
        with anyio.move_on_after(grace_s):
            await self.all_ended()
        self.kill_all()
        if not await await_killed(self.all_ended, ceiling_s=self.unkillable_s):
            await self.left.add(
                [_name(rank) for rank, child in self._ranks.items() if child.status is None]
            )
        await self._end_files()

    async def _end_files(self) -> None:
        """Let what is written about the ranks end; a disk that did not answer is asked once."""
        if self._is_disk_lost:
            return
        self._is_disk_lost = True
        with anyio.move_on_after(FILES_END_S, shield=True):
            for recorded in list(self._recording.values()):
                await recorded.wait()
            await self._bound.keep(self._outputs())
            self._is_disk_lost = False

    async def _await_end(self, rank: Rank, child: Child) -> None:
        status = await child.wait()
        self._ended[rank] = status
        is_killed = status.signal == signal.SIGKILL.name and rank not in self._evicted
        is_out_of_memory = is_killed and not self._is_over and self._memory.take_kill(clock.now())
        self._report(
            RankExited(
                rank=rank,
                code=status.code,
                signal=status.signal,
                cause=OUT_OF_MEMORY if is_out_of_memory else self._why_over,
            )
        )
        if not self._is_over:
            await self._record_death(rank, status, is_out_of_memory=is_out_of_memory)

    async def _record_death(
        self, rank: Rank, status: ExitStatus, *, is_out_of_memory: bool
    ) -> None:
        recorded = self._recording[rank] = anyio.Event()
        record = partial(
            self._deaths.record,
            rank,
            status,
            is_out_of_memory=is_out_of_memory,
            evicted_for=self._evicted.get(rank),
        )
        try:
            await run_abandonable(record, name="death record")
        finally:
            recorded.set()

    async def _report_stats(self) -> None:
        while self.running:
            self._memory.look(clock.now())
            for rank in self.running:
                stats = read_host_stats(rank, self._ranks[rank].pid)
                if stats is not None:
                    self._report(stats)
            await anyio.sleep(STATS_EVERY_S)

    async def _bound_outputs(self) -> None:
        while self.running:
            await self._bound.keep(self._outputs())
            await anyio.sleep(STATS_EVERY_S)

    def _outputs(self) -> list[Path]:
        return [self._output_of(rank) for rank in self._ranks]

    def _output_of(self, rank: Rank) -> Path:
        return self._facts.output_path(f"rank{rank}")


def _name(rank: Rank) -> str:
    return f"rank {rank}"


def start_child(
    role: str,
    order: object,
    *,
    facts: HostFacts,
    process: str,
    pass_fds: Sequence[int],
    threads: int | None = None,
) -> Child:
    """Start `python -m flodl_core.roles.<role>` with its order; its output goes to a file.

    Args:
        role: rank or relay.
        order: its order; the descriptors that it names are in `pass_fds`.
        facts: of this host.
        process: its name in `ps` and in file names, such as rank3.
        pass_fds: what it inherits.
        threads: of its tensor library, if it has one.
    """
    order_fd = write_order(order)
    path = facts.output_path(process)
    path.parent.mkdir(parents=True, exist_ok=True)
    names = {} if threads is None else dict.fromkeys(_THREAD_VARIABLES, str(threads))
    try:
        with path.open("ab") as output:
            return spawn(
                python_command(
                    f"flodl_core.roles.{role}",
                    process,
                    "--host",
                    facts.host,
                    "--order-fd",
                    str(order_fd),
                ),
                env={**facts.env, **names},
                pass_fds=(*pass_fds, order_fd),
                stdout=output,
                stderr=output,
            )
    finally:
        os.close(order_fd)
