"""The hosts that a launcher starts on other machines: reached, looked at, and joined in order.

    preflight ─▶ start ─▶ finish
What it is: one session a host, all reports judged before anybody waits, and the joins one
after another, so that ranks are numbered the same way every time.
What it is not: a road (`roads`), or hosts of the launcher's own machine (`roles.local_hosts`).
Who drives it: `roles.placing` makes it, the launcher's `StartedHosts` starts and ends it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.abc

from flodl_core.ids import HostName
from flodl_core.net import clock
from flodl_core.placement.dialog import HostReport, JoinOrder, PlaceOrder
from flodl_core.placement.preflight import HostVerdict, LauncherFacts, file_of, judge_host
from flodl_core.placement.roads import PlacedHost, Road
from flodl_core.placement.session import HostSession
from flodl_core.units import Seconds

PAUSE_S: Seconds = 0.2
"""Before another approach to the same host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceFacts:
    """What every host is told, and how long it may take."""

    word: str
    """What the launcher says at its address while it waits for reports."""
    job: str
    """As a host that was told nothing else finds it."""
    is_file: bool
    """Whether the job is a file, which each host needs a copy of."""
    launcher: LauncherFacts
    words: tuple[str, ...]
    """Of `flodl join`, by which every host does as its launcher does."""
    timeout_s: Seconds
    """From the start to the report, queues included."""
    look_s: Seconds
    """Of it, what a host may take to ask its devices."""


class PlacedHosts:
    """Hosts of one road.

    Args:
        road: how they are reached.
        hosts: which, in the order in which they are to join.
        facts: what they are told.
        env: of the commands that lead to them.
        output_path: where what they print goes.
    """

    def __init__(
        self,
        road: Road,
        hosts: Sequence[PlacedHost],
        *,
        facts: PlaceFacts,
        env: Mapping[str, str],
        output_path: Callable[[str], Path],
    ) -> None:
        self._road = road
        self._hosts = {HostName(host.label): host for host in hosts}
        self._facts = facts
        self._env = env
        self._output_path = output_path
        self._sessions: dict[HostName, HostSession] = {}
        self._fit: dict[HostName, tuple[str, ...]] = {}

    @property
    def devices(self) -> dict[HostName, tuple[str, ...]]:
        """The hosts that can take part, with a device a rank; empty before the preflight."""
        return dict(self._fit)

    async def preflight(self) -> list[HostVerdict]:
        """Reach every host and have it look at itself; return what is thought of each."""
        verdicts: dict[HostName, HostVerdict] = {}

        async def look(name: HostName, host: PlacedHost) -> None:
            verdicts[name] = await self._look_at(name, host)

        async with anyio.create_task_group() as tasks:
            for name, host in self._hosts.items():
                tasks.start_soon(look, name, host)
        ordered = [verdicts[name] for name in self._hosts]
        self._fit = {HostName(one.host): one.devices for one in ordered if one.is_fit}
        return ordered

    async def start(
        self,
        *,
        token: str,
        until_joined: Callable[[HostName], Awaitable[bool]],
        on_ended: Callable[[HostName, str, str], None],
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        """Have the fit hosts join, each when the one before it is in.

        Args:
            token: the join token's text.
            until_joined: returns when that host is in, or has been given up.
            on_ended: told of a host that ended: its label, how, and its last words.
            tasks: where each is waited for.
        """
        for name in self._fit:
            host, session = self._hosts[name], self._sessions[name]
            tasks.start_soon(self._await_end, name, session, on_ended)
            words = self._words(host, self._fit[name])
            await session.join(JoinOrder(token=token, words=words))
            await until_joined(name)

    async def finish(self, grace_s: Seconds) -> None:
        """Wait for every host to end by itself; end what is left after `grace_s`."""
        with anyio.move_on_after(grace_s):
            for name in self._fit:
                await self._sessions[name].wait_ended()
        async with anyio.create_task_group() as tasks:
            for session in self._sessions.values():
                tasks.start_soon(session.finish, 1.0 if grace_s else 0.0)

    def kill_all(self) -> None:
        """End every session at once; its far end sees the end of its input."""
        for session in self._sessions.values():
            session.kill()

    async def _look_at(self, name: HostName, host: PlacedHost) -> HostVerdict:
        """Reach one host, by several ways where one may be taken, and judge its report."""
        problem = ""
        with anyio.move_on_after(self._facts.timeout_s):
            for _ in range(self._road.attempts):
                asked_s = clock.utc_s()
                report = await self._ask(name, host)
                if isinstance(report, HostReport):
                    skew_s = _skew(report.utc_s, asked_s, clock.utc_s())
                    return judge_host(host, report, self._facts.launcher, skew_s=skew_s)
                problem = report
                await anyio.sleep(PAUSE_S)
        return HostVerdict(
            host=host.label,
            report=None,
            problem=problem or f"no report within {self._facts.timeout_s:g} s",
            fix=self._road.fix(host),
        )

    async def _ask(self, name: HostName, host: PlacedHost) -> HostReport | str:
        """Take one approach; return the host's report, or why there is none."""
        approach = self._road.approach(host)
        try:
            session = HostSession(
                approach, env=self._env, output=self._output_path(f"{name}-agent")
            )
        except OSError as error:
            return f"{approach.command[0]} cannot be started ({error.strerror})"
        before = self._sessions.pop(name, None)
        if before is not None:
            await before.finish(0)
        self._sessions[name] = session
        worker = host.worker
        order = PlaceOrder(
            host=host.label,
            controller=approach.controller,
            word=self._facts.word,
            directory=worker.directory,
            job_file=file_of(self._job_of(host)) if self._facts.is_file else None,
            data=worker.data,
            env=worker.env,
            timeout_s=self._facts.look_s,
        )
        try:
            report = await session.ask(order)
        except ValueError as error:
            return f"what answered is another flodl: {error}"
        if report is not None:
            return report
        said = session.last_words()
        return f"{self._road.name} ended with {session.status}{f': {said}' if said else ''}"

    def _job_of(self, host: PlacedHost) -> str:
        return host.worker.job or self._facts.job

    def _words(self, host: PlacedHost, devices: tuple[str, ...]) -> tuple[str, ...]:
        """Return the words of `flodl join` on that host."""
        worker = host.worker
        words = ["--host", host.label, "--job", self._job_of(host)]
        words += ["--devices", _as_given(devices), "--ranks", str(len(devices)), "--no-persist"]
        if worker.micro_batch is not None:
            words += ["--micro-batch", str(worker.micro_batch)]
        if worker.loader_workers is not None:
            words += ["--loader-workers", str(worker.loader_workers)]
        return (*words, *self._facts.words)

    async def _await_end(
        self,
        name: HostName,
        session: HostSession,
        on_ended: Callable[[HostName, str, str], None],
    ) -> None:
        status = await session.wait()
        on_ended(name, str(status), session.last_words())


def _as_given(devices: tuple[str, ...]) -> str:
    """Return devices as an option takes them; ranks that share the processor are `cpu`."""
    return "cpu" if all(device.startswith("cpu:") for device in devices) else ",".join(devices)


def _skew(there_s: Seconds, asked_s: Seconds, heard_s: Seconds) -> Seconds:
    """Return how far another clock is off, 0 where it is within what the way leaves open.

    The report was written between asking and hearing: a clock within that may be right, and
    one outside is off by that much at least.
    """
    if asked_s <= there_s <= heard_s:
        return 0.0
    return there_s - (asked_s if there_s < asked_s else heard_s)
