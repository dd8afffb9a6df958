"""The hosts that one command starts, as a whole: start them in order, watch them, end them.

The launcher's own host first; when it is in, the agents, one after another. An
agent that ends before it joined ends the window: nobody waits for a host that
cannot come.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import anyio
import anyio.abc

from flodl_core.config.join_token import JoinToken
from flodl_core.errors import FlodlError, RunLostError
from flodl_core.ids import ClusterPhase, HostName
from flodl_core.membership.events import Aborted
from flodl_core.placement.placed_hosts import PlacedHosts
from flodl_core.roles.formation import RunPlan
from flodl_core.roles.host_children import HostFacts
from flodl_core.roles.host_join import LocalJob
from flodl_core.roles.host_life import Attach
from flodl_core.roles.local_hosts import AgentChildren, OwnHost
from flodl_core.roles.window import JoinWindow
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.telemetry.run_directory import RunDirectory
from flodl_core.units import Seconds

HOSTS_END_S: Seconds = 15.0
"""From the word that the run ended to the end of the last host that this command started."""

_JOIN_LOOK_S: Seconds = 0.05
_OPEN = (ClusterPhase.WAITING, ClusterPhase.STAGING)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """The hosts that this command starts, its own first."""

    hosts: dict[HostName, tuple[str, ...]]
    """Label to one device a rank."""
    job: LocalJob
    agent_words: tuple[str, ...]
    """Of `flodl join`, for the agents on this machine: the job, and what holds for all hosts."""
    is_verbose: bool
    placed: PlacedHosts | None = None
    """Hosts on other machines that have passed their preflight."""
    may_miss_placed: bool = False
    """Whether the window stays open when one of those ends before the world has formed."""

    @property
    def names(self) -> tuple[HostName, ...]:
        """Labels of all hosts, in the order in which they join."""
        return (*self.hosts, *(self.placed.devices if self.placed is not None else ()))


class HostGroup(Protocol):
    """Hosts of one placement, once they are started."""

    async def finish(self, grace_s: Seconds) -> None:
        """Wait for every host to end by itself; end what is left after `grace_s`."""

    def kill_all(self) -> None:
        """End every host at once."""


class StartedHosts:
    """Starts and ends the hosts of one command.

    Args:
        plan: the run.
        hosts: which.
        directory: of the run; agents keep their own below it.
        env: of every child.
        log: of the launcher.
    """

    def __init__(
        self,
        plan: RunPlan,
        hosts: HostPlan,
        *,
        directory: RunDirectory,
        env: dict[str, str],
        log: ProcessLog,
    ) -> None:
        self._plan = plan
        self._hosts = hosts
        self._directory = directory
        self._env = env
        self._log = log
        self._agents: AgentChildren | None = None
        self._given_up: set[HostName] = set()

    def start(
        self,
        tasks: anyio.abc.TaskGroup,
        window: JoinWindow,
        *,
        dialled: str,
        token: JoinToken,
        attach: Attach,
        on_failed: Callable[[FlodlError], None],
    ) -> None:
        """Start them all, in order, in the background.

        Args:
            tasks: where they live.
            window: that they join.
            dialled: `host:port` as this machine dials it.
            token: of the run.
            attach: gives the own ranks' sockets to the controller.
            on_failed: told that the launcher's own host could not join.
        """
        self._window = window
        self._agents = AgentChildren(
            dialled,
            token_path=self._directory.token_path,
            words=self._hosts.agent_words,
            env=self._env,
            output_path=self._directory.output_path,
            run_dir=self._directory.path / "hosts",
        )
        own = OwnHost(
            self._own_facts(),
            self._hosts.job,
            devices=self._hosts.hosts[self._plan.local_host],
            attach=attach,
        )
        tasks.start_soon(self._run_own, own, dialled, token, on_failed)
        tasks.start_soon(self._start_others, tasks, token.text())

    async def finish(self, grace_s: Seconds = HOSTS_END_S) -> None:
        """Wait for every agent to end by itself; end what is left after `grace_s`."""
        async with anyio.create_task_group() as ending:
            for one in self._groups():
                ending.start_soon(one.finish, grace_s)

    def kill_all(self) -> None:
        """Kill every agent that is left; its own children die with it."""
        for one in self._groups():
            one.kill_all()

    def _groups(self) -> list[HostGroup]:
        groups = (self._agents, self._hosts.placed)
        return [one for one in groups if one is not None]

    def _own_facts(self) -> HostFacts:
        plan = self._plan
        return HostFacts(
            host=plan.local_host,
            job=plan.job,
            job_path=self._hosts.job.path,
            micro_batch=plan.config.micro_batch,
            loader_workers=plan.config.loader_workers,
            save_path=str(plan.save_stem),
            log_path=self._directory.log_path,
            output_path=self._directory.output_path,
            env=self._env,
            is_verbose=self._hosts.is_verbose,
        )

    async def _run_own(
        self, own: OwnHost, dialled: str, token: JoinToken, on_failed: Callable[[FlodlError], None]
    ) -> None:
        try:
            await own.run(dialled, token)
        except RunLostError as error:
            self._log.info("own_host_ended", reason=error.happened)
        except FlodlError as error:
            self._log.error("own_host_failed", reason=error.happened)
            on_failed(error)

    async def _start_others(self, tasks: anyio.abc.TaskGroup, token: str) -> None:
        assert self._agents is not None
        others = dict(self._hosts.hosts)
        own = self._plan.local_host
        others.pop(own)
        await self._until_joined(own)
        await self._agents.start(
            others,
            config=self._plan.config,
            until_joined=self._until_joined,
            on_ended=self._agent_ended,
            tasks=tasks,
        )
        if self._hosts.placed is not None and self._window.ledger.phase in _OPEN:
            await self._hosts.placed.start(
                token=token,
                until_joined=self._until_joined,
                on_ended=self._placed_ended,
                tasks=tasks,
            )

    async def _until_joined(self, host: HostName) -> bool:
        ledger = self._window.ledger
        while ledger.phase in _OPEN:
            if any(member.host == host for member in ledger.members):
                return True
            if host in self._given_up:
                return False
            await anyio.sleep(_JOIN_LOOK_S)
        return False

    def _agent_ended(self, host: HostName, ended: str) -> None:
        self._ended(host, ended, _last_line(self._directory.output_path(f"{host}-agent")))

    def _placed_ended(self, host: HostName, ended: str, said: str) -> None:
        """Take the end of a placed host; one that may be missed is waited for no more."""
        if self._hosts.may_miss_placed and self._window.ledger.phase in _OPEN:
            self._given_up.add(host)
            self._log.warning("host_given_up", host=host, status=ended, said=said)
        else:
            self._ended(host, ended, said)

    def _ended(self, host: HostName, ended: str, said: str) -> None:
        self._log.info("agent_ended", host=host, status=ended)
        if self._window.ledger.phase in _OPEN:
            self._window.take(
                Aborted(reason=f"the agent of host {host} ended with {ended}: {said}")
            )


def _last_line(path: Path) -> str:
    """Return the error that a child printed, else its last line, else where to look."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if "error" in line.lower()]
    return (errors or said or [f"see {path}"])[-1]
