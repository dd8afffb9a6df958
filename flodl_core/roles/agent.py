"""The agent: one process a further host, without torch. Dials in, joins, runs its host.

`flodl join` calls `join_run`. It dials with patience, finds the job by itself,
and after WorldFormed starts the host's relay and ranks. Everything that it
starts dies with it.
"""

import os
import platform
import signal
from collections.abc import Callable
from pathlib import Path

import anyio
import anyio.abc

from flodl_core.config.join_token import read_join_token
from flodl_core.config.load import LoadedAgent
from flodl_core.config.placement import place_agent
from flodl_core.config.rules import review_encoding
from flodl_core.errors import FlodlError, RefusedError
from flodl_core.ids import ExitCode, HostName, Rank, RunId
from flodl_core.messages.job import Envelope, JobRef
from flodl_core.messages.join import Accept, Offer
from flodl_core.net.addresses import join_host_port, parse_host_port
from flodl_core.net.children import Child, job_environment
from flodl_core.net.dial import DialPolicy, FailedAttempt, dial, dial_policy
from flodl_core.net.handshake import DialTimes
from flodl_core.net.join_link import JoinLink, connect_join
from flodl_core.net.tcp import HungUpError, NobodyListensError
from flodl_core.roles.error_groups import innermost
from flodl_core.roles.exposure import ExposureWatch
from flodl_core.roles.host_children import HostFacts, start_child
from flodl_core.roles.host_join import LocalJob, join_world
from flodl_core.roles.host_life import Attached, FoldingEnd, HostLife
from flodl_core.roles.inspection import ask_inspector
from flodl_core.roles.orders import RelayEnds, RelayOrder
from flodl_core.roles.rank_ends import RankEnds, close_ends
from flodl_core.roles.tunnel import explain_through, open_tunnel
from flodl_core.telemetry.run_directory import RunDirectory
from flodl_core.training.job_name import FILE, MODULE, NamedJob, name_job
from flodl_core.units import Seconds

CONNECT_S: Seconds = 2.5
"""Of one dial; which of the causes it is must be told within three seconds."""


class AgentInterruptedError(FlodlError):
    """A signal ended the agent; its host is gone from the run."""

    exit_code = ExitCode.JOIN_RUN_LOST


class Agent:
    """One host that dials in.

    Args:
        loaded: what the command was told.
        say: takes one line for the person who started it.
        is_verbose: whether children log at debug level.
        patience: how often it dials; many times, at short pauses, if None.
    """

    def __init__(
        self,
        loaded: LoadedAgent,
        say: Callable[[str], None],
        *,
        is_verbose: bool = False,
        patience: DialPolicy | None = None,
    ) -> None:
        self._config = loaded.agent
        self._patience = patience or dial_policy(loaded.net.timeout_scale)
        self.was_admitted = False
        self._scale = loaded.net.timeout_scale
        self._say = say
        self._is_verbose = is_verbose
        self._host = HostName(self._config.host or platform.node() or "host")
        self._directory: RunDirectory | None = None
        self._life: HostLife | None = None
        self._exposure = ExposureWatch(lambda _, text: say(f"warning: {text}"))

    async def run(self) -> int:
        """Join and stay until the run has ended; return the exit code.

        Raises:
            RefusedError, TransientJoinError, RunLostError, ConfigError, JobError: as named.
        """
        address = parse_host_port(self._config.controller)
        if self._config.ssh is None:
            return await self._run(*address)
        async with open_tunnel(self._config.ssh, address) as near:
            self._say(
                f"a tunnel through ssh {self._config.ssh} leads to {join_host_port(*address)}"
            )
            return await self._run(*near)

    async def _run(self, host: str, port: int) -> int:
        link = await dial(
            lambda: self._dial(host, port), self._patience, on_failed=self._tell_failed
        )
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch_signals)
                await self._live(link, join_host_port(host, port))
                tasks.cancel_scope.cancel()
        except* FlodlError as group:
            raise innermost(group) from None
        finally:
            with anyio.CancelScope(shield=True):
                await link.aclose()
        return ExitCode.DONE

    async def _dial(self, host: str, port: int) -> JoinLink:
        text, pinned = self._config.token, self._config.tls_fingerprint
        token = read_join_token(text) if text else None
        fingerprint = token.fingerprint if token is not None else None
        if fingerprint is None and pinned is not None:
            fingerprint = bytes.fromhex(pinned)
        try:
            link = await connect_join(
                host,
                port,
                token=token.secret if token is not None else None,
                fingerprint=fingerprint,
                times=DialTimes(connect_s=CONNECT_S * self._scale),
            )
        except (NobodyListensError, HungUpError) as error:
            if self._config.ssh is None:
                raise
            raise explain_through(self._config.ssh, self._config.controller) from error
        if fingerprint is None:
            self._exposure.served(link.peer.address)
        return link

    def _tell_failed(self, failed: FailedAttempt) -> None:
        if failed.number == 1 or failed.number % 10 == 0:
            self._say(
                f"{failed.error.happened}; attempt {failed.number} of {failed.attempts}, "
                f"the next in {failed.pause_s:g} s"
            )

    async def _watch_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for number in signals:
                name = signal.Signals(number).name
                if self._life is not None:
                    await self._life.take_leave(f"its agent was ended by {name}")
                raise AgentInterruptedError(
                    f"host {self._host}: {name}; its ranks are ended",
                    fix="",
                )

    async def _live(self, link: JoinLink, controller: str) -> None:
        world = await join_world(
            link, self._host, prepare=self._prepare, on_admitted=self._admitted
        )
        assert self._directory is not None
        facts = HostFacts(
            host=self._host,
            job=world.job.ref,
            job_path=world.job.path,
            micro_batch=self._config.micro_batch,
            loader_workers=self._config.loader_workers,
            save_path=str(self._directory.checkpoint_stem),
            log_path=self._directory.log_path,
            output_path=self._directory.output_path,
            env=job_environment(self._config.data, interface=self._config.nccl_interface),
            is_verbose=self._is_verbose,
            has_relay=True,
        )
        ranks = ", ".join(str(rank) for rank in world.formed.ranks)
        self._say(f"the world has formed: this host has ranks {ranks}")
        self._life = life = HostLife(
            link, world, facts=facts, attach=RelayStarter(facts).attach, controller=controller
        )
        ended = await life.run()
        self._say(f"the run ended: {ended.summary}")

    async def _prepare(self, offer: Offer) -> tuple[LocalJob, tuple[str, ...]]:
        config = self._config
        is_proven = config.token is not None or config.tls_fingerprint is not None
        named = find_job(offer.job, config.job, is_proven=is_proven)
        if named.path is not None:
            review_encoding("job", named.path)
        facts = await ask_inspector(
            named.ref,
            named.path,
            env=job_environment(self._config.data),
            timeout_s=self._config.inspect_timeout_s,
        )
        devices = place_agent(self._config, facts.devices)
        self._directory = RunDirectory.open(
            Path(self._config.run_dir), f"{self._host}-agent", offer.run_id
        )
        return LocalJob(ref=named.ref, path=named.path, facts=facts), devices

    def _admitted(self, accept: Accept, run_id: RunId) -> None:
        self.was_admitted = True
        self._say(
            f"joined run {run_id} as {self._host}, ranks: {len(accept.ranks)}; waiting for the "
            f"world to form, at most {accept.formation_wait_s:.0f} s"
        )


class RelayStarter:
    """Starts the relay of a host and gives it the ranks' sockets."""

    def __init__(self, facts: HostFacts) -> None:
        self._facts = facts
        self._child: Child | None = None

    async def attach(
        self, envelope: Envelope, salt: bytes, folding: dict[Rank, RankEnds]
    ) -> Attached:
        """Start the relay process; the folding ends are closed here."""
        read_end, write_end = os.pipe()
        os.write(write_end, salt)
        os.close(write_end)
        order = RelayOrder(
            host=self._facts.host,
            ends=tuple(
                RelayEnds(
                    rank=rank, control_fd=ends.descriptors()[0], data_fd=ends.descriptors()[1]
                )
                for rank, ends in folding.items()
            ),
            salt_fd=read_end,
            log_path=self._facts.log_path("relay"),
            is_verbose=self._facts.is_verbose,
            envelope=envelope,
        )
        descriptors = [fd for ends in folding.values() for fd in ends.descriptors()]
        try:
            self._child = start_child(
                "relay",
                order,
                facts=self._facts,
                process="relay",
                pass_fds=(*descriptors, read_end),
            )
        finally:
            os.close(read_end)
            close_ends(folding)
        return Attached(until_lost=self._until_lost, finish=self._finish)

    async def _until_lost(self) -> FoldingEnd:
        assert self._child is not None
        status = await self._child.wait()
        return FoldingEnd(
            why=f"the relay of host {self._facts.host} ended with {status}",
            controller_gone=status.code == ExitCode.JOIN_RUN_LOST,
        )

    async def _finish(self) -> None:
        if self._child is not None:
            await self._child.terminate_group(1.0)


def find_job(offered: JobRef, own: str | None, *, is_proven: bool) -> NamedJob:
    """Return the job as this host has it; nobody fetches code.

    The name of a module and the options of a function in it, chosen by a stranger, could be
    those of any function that is installed here.

    Args:
        offered: by the launcher.
        own: as this host was told; None if it was not.
        is_proven: whether a token or a fingerprint tells the launcher from a stranger.

    Raises:
        RefusedError: the run's job is a file, and this host was not told where it lies, or it
            is a module, and nothing proves who says so.
        JobError: what was given is no job.
    """
    if own is not None:
        return name_job(own, offered.args)
    if offered.kind == FILE:
        raise RefusedError(
            f"the run's job is the file {offered.name}, and nobody fetches code",
            fix="copy the file to this host and give --job PATH",
        )
    if offered.kind == MODULE and not is_proven:
        raise RefusedError(
            f"the run's job is {offered.name}, and nothing proves who says so",
            fix=f"give --job {offered.name} if that is the job, or the run's token",
        )
    named = name_job(offered.name, offered.args)
    if named.ref.kind != offered.kind:
        raise RefusedError(
            f"the controller offers a {offered.kind} whose name is that of a {named.ref.kind}",
            fix="check that the address is that of a flodl launcher",
        )
    return named
