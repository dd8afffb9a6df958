"""The room of one run: port, window, controller, status, signals, and their order of life.

    listen ─▶ window ─▶ form ─▶ train ─▶ end
It wires the parts together and has no rule of its own. Whatever ends the run, it
leaves no process, socket or task behind.
"""

import os
import secrets
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.abc

from flodl_core.config.schema import JoinConfig
from flodl_core.config.window import WindowConfig
from flodl_core.coordinator.effects import RunFinished
from flodl_core.coordinator.events import CheckpointRequested, StopKind, StopRequested
from flodl_core.coordinator.machine import Coordinator
from flodl_core.errors import FlodlError, RunLostError
from flodl_core.ids import ClusterPhase, ExitCode, HostName, Rank
from flodl_core.membership.events import (
    Aborted,
    FailWindow,
    FormationFinished,
    FormWorld,
    StartRequested,
    TrainingEnded,
    WindowOpened,
)
from flodl_core.membership.failure import window_error
from flodl_core.membership.job_facts import expect_job
from flodl_core.membership.ledger import MembershipLedger
from flodl_core.messages import SCHEMA_VERSION
from flodl_core.messages.job import Envelope
from flodl_core.messages.join import (
    Abort,
    HostStats,
    Offer,
    RankExited,
    RankStack,
    RunEnded,
    WorldFormed,
)
from flodl_core.net import clock
from flodl_core.net.addresses import join_host_port
from flodl_core.net.children import own_environment
from flodl_core.net.http import HttpApp
from flodl_core.net.http_trust import TrustPolicy
from flodl_core.net.port import Port, PortConfig, PortConnection
from flodl_core.net.port_statistics import DropNote
from flodl_core.roles.alerting import AlertDesk, EventCommand
from flodl_core.roles.board import StatusBoard
from flodl_core.roles.controller import Controller, RunServices
from flodl_core.roles.formation import RunPlan, compose_envelope, compose_settings, seats_of
from flodl_core.roles.host_children import HostFacts
from flodl_core.roles.host_join import WIRE_DTYPE, LocalJob
from flodl_core.roles.host_life import Attached
from flodl_core.roles.local_hosts import AgentChildren, OwnHost
from flodl_core.roles.operator_desk import OperatorActions, operator_routes
from flodl_core.roles.publishing import RunFacts
from flodl_core.roles.rank_ends import RankEnds
from flodl_core.roles.saving import BundleWriter
from flodl_core.roles.window import JoinWindow, Secrets, WindowReports
from flodl_core.telemetry.journal import Journal
from flodl_core.telemetry.logs import Level, ProcessLog
from flodl_core.telemetry.run_directory import RunDirectory
from flodl_core.telemetry.sample_log import SampleLog
from flodl_core.telemetry.state import EndState, StateDocument
from flodl_core.telemetry.summary import RunSummary, summarize, summary_json
from flodl_core.units import Seconds
from flodl_core.wire.handshake import operator_token

SALT_BYTES = 16
HOSTS_END_S: Seconds = 15.0
"""From RunEnded to the end of the last agent that this command started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPlan:
    """The hosts that this command starts, its own first."""

    hosts: dict[HostName, tuple[str, ...]]
    """Label to one device a rank."""
    job: LocalJob
    job_text: str
    """The job as the agents on this machine are told it."""
    is_verbose: bool


class RunRoom:
    """One run, from listening to its end.

    Args:
        plan: the run.
        hosts: that this command starts.
        join: admission, as configured.
        window: the window's numbers, concrete.
        directory: of the run, with its token in place.
    """

    def __init__(
        self,
        plan: RunPlan,
        hosts: HostPlan,
        *,
        join: JoinConfig,
        window: WindowConfig,
        directory: RunDirectory,
    ) -> None:
        self._plan = plan
        self._hosts = hosts
        self._join = join
        self._directory = directory
        self._env = own_environment()
        level = Level.DEBUG if hosts.is_verbose else Level.INFO
        self._log = ProcessLog(
            directory.log_path("launcher"),
            host=plan.local_host,
            process="launcher",
            utc_iso=clock.utc_iso,
            level=level,
        )
        self._journal = Journal(directory.records_path, utc_iso=clock.utc_iso)
        config = plan.config
        command = (
            EventCommand(command=config.on_event, classes=config.on_event_classes, env=self._env)
            if config.on_event
            else None
        )
        self._desk = AlertDesk(self._log, self._journal, command=command)
        self._writer = BundleWriter(plan.save_stem, host=plan.local_host, log=self._log)
        self._ledger = MembershipLedger(
            window,
            expect_job(plan.facts, run_id=plan.run_id, mode=plan.mode, wire_dtype=WIRE_DTYPE),
            configured_hosts=tuple(hosts.hosts),
        )
        self._is_solo = window.min_rank_start == 1
        self._start_mode = window.start_mode
        self._salt = secrets.token_bytes(SALT_BYTES)
        self._sample_log = self._open_sample_log()
        self._over = anyio.Event()
        self._failure: FlodlError | None = None
        self._controller: Controller | None = None
        self._finished: RunFinished | None = None
        self._stops = 0
        self._controller_address = ""

    async def run(
        self,
        *,
        show: Callable[[StateDocument], None],
        say: Callable[[str], None],
        token: bytes,
    ) -> tuple[int, RunSummary]:
        """Live through the run; return its exit code and summary.

        Raises:
            ConfigError: the port cannot be used.
            WindowFailedError: no world formed.
        """
        self._say = say
        window = self._window = self._make_window(token)
        board = self._board = self._make_board(show)
        board.publish_now()
        port = self._make_port(token)
        address = port.listen()
        board.port = address.port
        dialled = join_host_port(_dialled(self._join.bind), address.port)
        self._controller_address = dialled
        self._directory.write_port(address.port, address=dialled)
        self._tell_address(dialled)
        agents = AgentChildren(
            dialled,
            token_path=self._directory.token_path,
            job=self._hosts.job_text,
            env=self._env,
            output_path=self._directory.output_path,
            run_dir=self._directory.path / "hosts",
        )
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._watch_signals)
                await tasks.start(port.serve)
                window.take(WindowOpened())
                tasks.start_soon(window.keep_time)
                tasks.start_soon(board.run)
                tasks.start_soon(self._desk.run_commands)
                tasks.start_soon(self._keep_journal)
                tasks.start_soon(self._run_own_host, token)
                tasks.start_soon(self._start_agents, agents)
                await self._over.wait()
                await self._end_hosts(agents)
                tasks.cancel_scope.cancel()
        finally:
            agents.kill_all()
            with anyio.CancelScope(shield=True):
                await agents.finish(0)
                await anyio.to_thread.run_sync(self._close)
        return self._conclude()

    # -- making the parts ----------------------------------------------------------

    def _make_window(self, token: bytes) -> JoinWindow:
        plan = self._plan
        return JoinWindow(
            self._ledger,
            Offer(
                run_id=plan.run_id,
                mode=plan.mode,
                job=plan.job,
                batch_size=plan.batch_size,
                seed=plan.config.seed,
                wire_dtype=WIRE_DTYPE,
                schema=SCHEMA_VERSION,
            ),
            secrets=Secrets(token=token, salt=self._salt, admits_openly=self._join.admits_openly),
            reports=WindowReports(
                formed=self._formed,
                failed=self._window_failed,
                phase=self._phase_changed,
                refused=self._refused,
                host_lost=self._host_lost,
                from_host=self._from_host,
            ),
            log=self._log,
        )

    def _make_board(self, show: Callable[[StateDocument], None]) -> StatusBoard:
        plan = self._plan
        return StatusBoard(
            RunFacts(
                run_id=plan.run_id,
                name=plan.name,
                mode=plan.mode.value,
                mode_reason=plan.mode_reason,
                started_at=clock.utc_iso(),
                pid=os.getpid(),
                run_dir=self._directory.path,
                configured_hosts=tuple(self._hosts.hosts),
            ),
            self._ledger,
            desk=self._desk,
            writer=self._writer,
            show=show,
        )

    def _make_port(self, token: bytes) -> Port:
        app = HttpApp(
            self._board.publisher,
            trust=TrustPolicy(
                operator_token=operator_token(token), require_token=self._join.require_token
            ),
            posts=operator_routes(
                None if self._is_solo else self._start_mode,
                OperatorActions(
                    snapshot=lambda: self._ledger.snapshot(clock.now()),
                    start=lambda who: self._window.take(StartRequested(who=who)),
                    stop=self._stop,
                    checkpoint=self._checkpoint,
                ),
            ),
        )
        return Port(
            PortConfig(
                bind=self._join.bind,
                port=self._join.port,
                source="join.port",
                handshake_s=self._join.handshake_timeout_s,
            ),
            on_join=self._window.on_join,
            on_mux=self._on_mux,
            on_http=app.serve,
            on_drop=self._note_drop,
        )

    def _open_sample_log(self) -> SampleLog | None:
        where = self._plan.config.sample_log
        if where is None:
            return None
        path = self._directory.samples_path if where == "auto" else Path(where)
        return SampleLog(path, n_samples=self._plan.facts.n_samples, seed=self._plan.config.seed)

    # -- what the window tells -----------------------------------------------------

    def _formed(self, formed: FormWorld) -> None:
        envelope = compose_envelope(self._plan, formed, controller=self._controller_address)
        coordinator = Coordinator(
            envelope,
            compose_settings(self._plan.config),
            has_eval=self._plan.facts.has_eval,
            local_host=self._plan.local_host,
        )
        self._board.coordinator = coordinator
        self._controller = Controller(
            envelope,
            coordinator,
            RunServices(
                window=self._window,
                writer=self._writer,
                sample_log=self._sample_log,
                desk=self._desk,
                log=self._log,
                say=self._say,
            ),
        )
        self._desk.set_world(_placer(envelope))
        self._window.seat_ranks(seats_of(formed))
        for seat in formed.roster:
            self._window.send(
                seat.member.connection, WorldFormed(envelope=envelope, ranks=seat.ranks)
            )
        self._tasks.start_soon(self._train, self._controller)

    async def _train(self, controller: Controller) -> None:
        self._tasks.start_soon(self._await_formation, controller)
        self._finished = await controller.run()
        self._over.set()

    async def _await_formation(self, controller: Controller) -> None:
        await controller.await_hosts(self._plan.config.formation_timeout_s)
        self._window.take(FormationFinished())

    def _window_failed(self, effect: FailWindow) -> None:
        self._failure = window_error(effect)
        self._over.set()

    def _phase_changed(self, phase: ClusterPhase, reason: str) -> None:
        self._journal.append("root", {"kind": "phase", "phase": phase.value, "reason": reason})
        self._board.poke()

    def _refused(self, address: str, reason: str) -> None:
        self._board.last_refusal = f"{address}: {reason}"
        self._board.poke()

    def _host_lost(self, host: HostName, ranks: tuple[Rank, ...]) -> None:
        if self._controller is not None:
            self._controller.host_lost(host, ranks)

    def _from_host(self, message: RankExited | HostStats | RankStack) -> None:
        if isinstance(message, HostStats):
            self._board.take_stats(message)
        if self._controller is not None:
            self._controller.from_host(message)

    async def _on_mux(self, connection: PortConnection) -> None:
        if self._controller is not None:
            await self._controller.on_mux(connection)

    def _note_drop(self, note: DropNote) -> None:
        self._log.info("connection_dropped", note=str(note))

    # -- the hosts that this command starts ----------------------------------------

    async def _run_own_host(self, token: bytes) -> None:
        plan = self._plan
        facts = HostFacts(
            host=plan.local_host,
            job=plan.job,
            job_path=self._hosts.job.path,
            micro_batch=plan.config.micro_batch,
            save_path=str(plan.save_stem),
            log_path=self._directory.log_path,
            output_path=self._directory.output_path,
            env=self._env,
            is_verbose=self._hosts.is_verbose,
        )
        self._own = OwnHost(
            facts,
            self._hosts.job,
            devices=self._hosts.hosts[plan.local_host],
            attach=self._attach_local,
        )
        try:
            await self._own.run(self._controller_address, token)
        except RunLostError as error:
            self._log.info("own_host_ended", reason=error.happened)
        except FlodlError as error:
            self._log.error("own_host_failed", reason=error.happened)
            if self._failure is None:
                self._failure = error
            self._over.set()

    async def _attach_local(
        self, _: Envelope, salt: bytes, folding: dict[Rank, RankEnds]
    ) -> Attached:
        assert self._controller is not None
        return await self._controller.attach_local(self._tasks, salt, folding)

    async def _start_agents(self, agents: AgentChildren) -> None:
        others = dict(self._hosts.hosts)
        own = self._plan.local_host
        others.pop(own)
        await self._until_joined(own)
        await agents.start(
            others,
            micro_batch=self._plan.config.micro_batch,
            until_joined=self._until_joined,
            on_ended=self._agent_ended,
            tasks=self._tasks,
        )

    async def _until_joined(self, host: HostName) -> bool:
        while self._ledger.phase in (ClusterPhase.WAITING, ClusterPhase.STAGING):
            if any(member.host == host for member in self._ledger.members):
                return True
            await anyio.sleep(0.05)
        return False

    def _agent_ended(self, host: HostName, ended: str) -> None:
        self._log.info("agent_ended", host=host, status=ended)
        if self._ledger.phase in (ClusterPhase.WAITING, ClusterPhase.STAGING):
            said = _last_line(self._directory.output_path(f"{host}-agent"))
            self._window.take(
                Aborted(reason=f"the agent of host {host} ended with {ended}: {said}")
            )

    async def _end_hosts(self, agents: AgentChildren) -> None:
        """Tell every host how the run ended and wait for those that this command started."""
        finished = self._finished
        if finished is None:
            self._window.send_to_all(Abort(reason=str(self._failure or "the run ended")))
        elif finished.reason == "stopped" and finished.detail.startswith("stopped at once"):
            self._window.send_to_all(Abort(reason=finished.detail))
        else:
            summary = f"{finished.reason}: {finished.detail}"
            self._window.send_to_all(RunEnded(code=finished.exit_code, summary=summary))
        if finished is not None:
            good = finished.exit_code in (ExitCode.DONE, ExitCode.STOPPED_SAVED, 130)
            self._window.take(
                TrainingEnded() if good else Aborted(reason=finished.detail or finished.reason)
            )
        with anyio.move_on_after(HOSTS_END_S):
            await agents.finish(HOSTS_END_S)
            while self._window.has_hosts:
                await anyio.sleep(0.02)

    # -- operators and signals -----------------------------------------------------

    async def _watch_signals(self) -> None:
        names = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        with anyio.open_signal_receiver(*names) as signals:
            async for number in signals:
                if number == signal.SIGHUP:
                    self._log.info("terminal_gone")
                    continue
                is_interrupt = number == signal.SIGINT
                code = ExitCode.INTERRUPTED_SAVED if is_interrupt else ExitCode.STOPPED_SAVED
                self._stops += 1
                kind = StopKind.SAVE if self._stops == 1 else StopKind.NOW
                self._say(self._stop(kind, signal.Signals(number).name, code=code))

    def _stop(self, kind: StopKind, who: str, *, code: int = ExitCode.STOPPED_SAVED) -> str:
        if self._controller is None:
            self._window.take(Aborted(reason=f"stopped by {who} before the world formed"))
            return f"{who}: the window is closed, nothing was trained"
        self._controller.post(StopRequested(kind, code, who))
        if kind is StopKind.NOW:
            return f"{who}: stopping at once"
        grace = self._plan.config.stop_grace_s
        return f"{who}: finishing the window, then saving (within {grace:g} s); once more: at once"

    def _checkpoint(self, who: str) -> str | None:
        if self._controller is None:
            return "the run is not training yet"
        self._controller.post(CheckpointRequested(who))
        return None

    # -- the end -------------------------------------------------------------------

    async def _keep_journal(self) -> None:
        while True:
            await anyio.sleep(1.0)
            await anyio.to_thread.run_sync(self._journal.flush)

    def _close(self) -> None:
        if self._controller is not None:
            self._controller.close()
        if self._sample_log is not None:
            self._sample_log.close()
        self._journal.close()

    def _conclude(self) -> tuple[int, RunSummary]:
        """Publish the end, write the summary; raise what kept the run from training."""
        finished = self._finished
        if finished is None:
            failure = self._failure
            assert failure is not None
            self._end_with(failure.exit_code, "failed", failure.happened)
            self._log.close()
            raise failure
        document = self._end_with(finished.exit_code, finished.reason, finished.detail)
        tail = self._controller.tail_samples if self._controller is not None else 0
        summary = summarize(
            document,
            exit_code=finished.exit_code,
            reason=finished.reason,
            detail=finished.detail,
            samples_tail=tail,
            sample_log=str(self._sample_log.path) if self._sample_log else None,
        )
        self._directory.write_summary(summary_json(summary, indent=2))
        self._log.close()
        return finished.exit_code, summary

    def _end_with(self, code: int, reason: str, detail: str) -> StateDocument:
        self._board.end = EndState(exit_code=code, reason=reason, detail=detail)
        self._log.info("run_ended", code=code, reason=reason, detail=detail)
        return self._board.publish_now()

    def _tell_address(self, dialled: str) -> None:
        self._say(
            f"run {self._plan.run_id} ({self._plan.name}) listens on {dialled}; "
            f"its directory is {self._directory.path}"
        )
        if not self._is_solo:
            self._say(
                f"to add a host: flodl join {dialled} --token-file {self._directory.token_path}"
            )


def _dialled(bind: str) -> str:
    """Return the host part that this machine dials for a port bound to `bind`."""
    if bind == "0.0.0.0":  # noqa: S104 - recognised, not bound
        return "127.0.0.1"
    return "::1" if bind == "::" else bind


def _placer(
    envelope: Envelope,
) -> Callable[[Rank | None], tuple[HostName | None, int, int]]:
    """Return where a rank is: its host, the number of hosts, the number of ranks."""
    host_of = {rank: host.host for host in envelope.hosts for rank in host.ranks}

    def place(rank: Rank | None) -> tuple[HostName | None, int, int]:
        host = host_of.get(rank) if rank is not None else None
        return host, len(envelope.hosts), envelope.world_size

    return place


def _last_line(path: Path) -> str:
    """Return the last line that a child printed, or a hint where it printed nothing."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    said = [line.strip() for line in lines if line.strip()]
    return said[-1] if said else f"see {path}"
