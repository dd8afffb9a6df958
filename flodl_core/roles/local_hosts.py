"""The hosts that a launcher starts itself: its own, as a task, and `flodl join` children.

All of them dial in and join by the protocol of any other host. They are started one
after another, so that a box numbers its ranks the same way every time.
"""

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import anyio
import anyio.abc

from flodl_core.config.join_token import JoinToken
from flodl_core.config.keys import ENV_CONFIG_FILE, KEYS
from flodl_core.config.schema import RunConfig
from flodl_core.ids import HostName, RunId
from flodl_core.messages.join import Accept, Offer
from flodl_core.net.addresses import parse_host_port
from flodl_core.net.children import DATA_VARIABLE, Child, python_command, spawn
from flodl_core.net.join_link import connect_join
from flodl_core.roles.host_children import HostFacts
from flodl_core.roles.host_join import LocalJob, join_world
from flodl_core.roles.host_life import Attach, HostLife

_OF_AGENTS = {key.env for key in KEYS.values() if key.table == "agent"} - {DATA_VARIABLE}
_OF_AGENTS.add(ENV_CONFIG_FILE)
"""Variables that speak to a `flodl join` that somebody types; the launcher speaks by words."""


class OwnHost:
    """The launcher's own host, joined over loopback; its ranks are the launcher's children.

    Args:
        facts: of the host.
        job: as the launcher inspected it.
        devices: one a rank.
        attach: gives the ranks' sockets to the controller.
    """

    def __init__(
        self, facts: HostFacts, job: LocalJob, *, devices: tuple[str, ...], attach: Attach
    ) -> None:
        self._facts = facts
        self._job = job
        self._devices = devices
        self._attach = attach
        self.admitted = anyio.Event()

    async def run(self, controller: str, token: JoinToken) -> None:
        """Join and live to the end of the run.

        Raises:
            RunLostError, RefusedError, TransientJoinError: as `join_world` and `HostLife`.
        """
        host, port = parse_host_port(controller)
        link = await connect_join(host, port, token=token.secret, fingerprint=token.fingerprint)
        try:
            world = await join_world(
                link, self._facts.host, prepare=self._prepare, on_admitted=self._note_admitted
            )
            life = HostLife(
                link, world, facts=self._facts, attach=self._attach, controller=controller
            )
            await life.run()
        finally:
            with anyio.CancelScope(shield=True):
                await link.aclose()

    async def _prepare(self, _: Offer) -> tuple[LocalJob, tuple[str, ...]]:
        return self._job, self._devices

    def _note_admitted(self, _: Accept, __: RunId) -> None:
        self.admitted.set()


class AgentChildren:
    """The further hosts of `--hosts`, each a `flodl join` process of this machine.

    Args:
        controller: `host:port` to dial.
        token_path: file that holds the join token.
        words: of every child, by which it does as its launcher does.
        env: of the launcher; what it says of an agent is for other agents than these.
        output_path: where a child's own output goes.
        run_dir: where the agents keep their logs.
    """

    def __init__(
        self,
        controller: str,
        *,
        token_path: Path,
        words: Sequence[str],
        env: Mapping[str, str],
        output_path: Callable[[str], Path],
        run_dir: Path,
    ) -> None:
        self._controller = controller
        self._token_path = token_path
        self._words = words
        self._env = {name: value for name, value in env.items() if name not in _OF_AGENTS}
        self._output_path = output_path
        self._run_dir = run_dir
        self._children: dict[HostName, Child] = {}

    async def start(
        self,
        hosts: Mapping[HostName, tuple[str, ...]],
        *,
        config: RunConfig,
        until_joined: Callable[[HostName], Awaitable[bool]],
        on_ended: Callable[[HostName, str], None],
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        """Start the agents one after another, each when the one before it has joined.

        No other is started once one has not: the window is over then.

        Args:
            hosts: label and devices of each.
            config: of the run; what holds for the launcher's ranks holds for theirs.
            until_joined: returns when that host is in, or has been given up.
            on_ended: told of an agent that ended, with one clause.
            tasks: where each is waited for.
        """
        for host, devices in hosts.items():
            words = ["--host", host, "--devices", ",".join(devices), "--ranks", str(len(devices))]
            words += _given("--micro-batch", config.micro_batch)
            words += _given("--loader-workers", config.loader_workers)
            child = self._spawn(host, words)
            self._children[host] = child
            tasks.start_soon(self._await_end, host, child, on_ended)
            if not await until_joined(host):
                return

    async def finish(self, grace_s: float) -> None:
        """Wait for every agent to end; end what is left after `grace_s`."""
        with anyio.move_on_after(grace_s):
            for child in list(self._children.values()):
                await child.wait()
        async with anyio.create_task_group() as ending:
            for child in list(self._children.values()):
                if child.status is None:
                    ending.start_soon(child.terminate_group, 1.0)

    def kill_all(self) -> None:
        """Kill every agent; its own children die with it."""
        for child in self._children.values():
            child.kill_group()

    def _spawn(self, host: HostName, words: list[str]) -> Child:
        with self._output_path(f"{host}-agent").open("ab") as output:
            return spawn(
                python_command(
                    "flodl_core.cli.main",
                    "join",
                    self._controller,
                    "--config",
                    os.devnull,
                    "--token-file",
                    str(self._token_path),
                    "--run-dir",
                    str(self._run_dir),
                    "--no-persist",
                    *self._words,
                    *words,
                ),
                env=self._env,
                stdout=output,
                stderr=output,
            )

    async def _await_end(
        self, host: HostName, child: Child, on_ended: Callable[[HostName, str], None]
    ) -> None:
        status = await child.wait()
        on_ended(host, str(status))


def _given(flag: str, value: int | None) -> list[str]:
    """Return the words of an option, none where it is not set."""
    return [] if value is None else [flag, str(value)]
