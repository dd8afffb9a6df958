"""The room of one run: port, window, controller, status, signals, and their order of life.

    listen ─▶ window ─▶ form ─▶ train ─▶ end
It wires the parts together and has no rule of its own. Whatever ends the run, it
leaves no process, socket or task behind.
"""

from collections.abc import Callable
from secrets import token_bytes

import anyio
import anyio.abc
import anyio.to_thread

from flodl_core.config.schema import JoinConfig
from flodl_core.config.window import WindowConfig
from flodl_core.errors import ConfigError, FlodlError
from flodl_core.ids import ClusterPhase, ExitCode, HostName, Rank
from flodl_core.membership.events import (
    Aborted,
    FormationFinished,
    FormWorld,
    StartRequested,
    TrainingEnded,
    WindowOpened,
)
from flodl_core.membership.failure import window_error
from flodl_core.messages.job import Envelope
from flodl_core.messages.join import (
    HostStats,
    RankExited,
    RankStack,
    WorldFormed,
)
from flodl_core.net import clock
from flodl_core.net.addresses import join_host_port
from flodl_core.net.children import job_environment
from flodl_core.net.port import Port, PortConnection
from flodl_core.net.port_statistics import DropNote
from flodl_core.roles.board import StatusBoard
from flodl_core.roles.controller import Controller
from flodl_core.roles.formation import RunPlan, compose_envelope, make_coordinator, seats_of
from flodl_core.roles.host_life import Attached
from flodl_core.roles.mode_choice import choose_for
from flodl_core.roles.operator_desk import OperatorActions
from flodl_core.roles.operators import RunOperators
from flodl_core.roles.rank_ends import RankEnds
from flodl_core.roles.record_keeper import RecordKeeper
from flodl_core.roles.run_end import RunEnd
from flodl_core.roles.run_parts import (
    dialled_host,
    join_line,
    join_settings,
    keep_summary,
    known_beyond,
    make_facts,
    make_http,
    make_ledger,
    make_offer,
    make_placer,
    make_records,
    port_config,
    watch_exposure,
)
from flodl_core.roles.run_secrets import RunSecrets
from flodl_core.roles.run_services import RunServices
from flodl_core.roles.started_hosts import HostPlan, StartedHosts
from flodl_core.roles.window import JoinWindow, RefusedHost, Secrets, WindowReports
from flodl_core.telemetry.logs import Level
from flodl_core.telemetry.run_directory import RunDirectory
from flodl_core.telemetry.state import StateDocument
from flodl_core.telemetry.summary import RunSummary, summarize
from flodl_core.units import Seconds
from flodl_core.wire.handshake import operator_token

SALT_BYTES = 16
LINKS_END_S: Seconds = 5.0
"""From the last word to the hosts to the end of their control links."""
END_READABLE_S: Seconds = 1.0
"""How long the end can be read at least: readers ask twice a second."""


class RunRoom:
    """One run, from listening to its end.

    Args:
        plan: the run.
        hosts: that this command starts.
        join: admission, as configured.
        window: the window's numbers, concrete.
        directory: of the run.
        secrets: of the run.
    """

    def __init__(
        self,
        plan: RunPlan,
        hosts: HostPlan,
        *,
        join: JoinConfig,
        window: WindowConfig,
        directory: RunDirectory,
        secrets: RunSecrets,
    ) -> None:
        self._plan = plan
        self._join = join
        self._secrets = secrets
        self._directory = directory
        self._host_names = hosts.names
        self._start_mode = None if window.min_rank_start == 1 else window.start_mode
        env = job_environment(plan.config.data, interface=plan.config.nccl_interface)
        level = Level.DEBUG if hosts.is_verbose else Level.INFO
        hidden = (secrets.token.hex(), operator_token(secrets.token))
        self._records = make_records(plan, directory, env, secrets=hidden, level=level)
        sample_log = self._records.sample_log
        self._keeper = RecordKeeper(
            self._records.recorder, also_close=sample_log.close if sample_log else None
        )
        self._story = self._records.story
        self._log = self._records.log
        self._started = StartedHosts(plan, hosts, directory=directory, env=env, log=self._log)
        self._ledger = make_ledger(plan, window, self._host_names)
        self._end = RunEnd()
        self._controller: Controller | None = None
        self._window_config = window
        self._operators = RunOperators(
            plan,
            self._story,
            controller=lambda: self._controller,
            start=lambda who: self._window.take(StartRequested(who=who)),
            abort=lambda reason: self._window.take(Aborted(reason=reason)),
            hurry=self._end.hurry,
        )
        self._dialled = ""

    async def run(
        self, *, show: Callable[[StateDocument], None], say: Callable[[str], None]
    ) -> tuple[int, RunSummary]:
        """Live through the run; return its exit code and summary.

        Raises:
            ConfigError: the port cannot be used.
            WindowFailedError: no world formed.
        """
        self._say = say
        self._window = self._make_window()
        self._board = StatusBoard(
            make_facts(self._plan, self._directory, self._host_names),
            self._ledger,
            desk=self._records.desk,
            writer=self._records.writer,
            story=self._story,
            show=show,
        )
        self._board.publish_first()
        port = self._open_port()
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                tasks.start_soon(self._operators.watch_signals, self._log, say)
                await tasks.start(port.serve)
                self._window.take(WindowOpened())
                tasks.start_soon(self._window.keep_time)
                tasks.start_soon(self._board.run)
                tasks.start_soon(self._records.desk.run_commands)
                tasks.start_soon(self._keeper.run)
                self._started.start(
                    tasks,
                    self._window,
                    dialled=self._dialled,
                    token=self._secrets.join_token,
                    attach=self._attach_local,
                    on_failed=self._fail,
                )
                await self._end.wait()
                self._tell_end()
                await self._end.unless_hurried(self._take_leave)
                tasks.cancel_scope.cancel()
        finally:
            self._started.kill_all()
            with anyio.CancelScope(shield=True):
                await self._started.finish(0)
                if self._controller is not None:
                    await anyio.to_thread.run_sync(self._controller.close)
                await self._keeper.end()
        return await self._conclude()

    def _make_window(self) -> JoinWindow:
        return JoinWindow(
            self._ledger,
            make_offer(self._plan),
            secrets=Secrets(
                token=self._secrets.token,
                salt=token_bytes(SALT_BYTES),
                admits_openly=self._join.admits_openly,
            ),
            reports=WindowReports(
                formed=self._formed,
                failed=lambda effect: self._fail(window_error(effect)),
                phase=self._phase_changed,
                refused=self._refused,
                joined=self._story.host_joined,
                left=self._story.host_left,
                host_lost=self._host_lost,
                from_host=self._from_host,
                leaves=self._host_leaves,
            ),
            log=self._log,
        )

    def _open_port(self) -> Port:
        """Listen, and write down and say where."""
        app = make_http(
            self._board,
            self._join,
            self._secrets.token,
            start_mode=self._start_mode,
            actions=OperatorActions(
                snapshot=lambda: self._ledger.snapshot(clock.now()),
                start=self._operators.start,
                stop=self._operators.stop,
                checkpoint=self._operators.checkpoint,
                drain=self._operators.drain,
                evict=self._operators.evict,
            ),
        )
        port = Port(
            port_config(self._join, self._secrets.identity),
            on_join=self._window.on_join,
            on_mux=self._on_mux,
            on_http=app.serve,
            on_drop=self._note_drop,
            on_served=watch_exposure(self._secrets, self._records, self._say),
        )
        number = port.listen().port
        self._board.watch_port(number, drops=port.drops, refused_requests=app.refusals)
        self._board.join = join_settings(self._plan, self._join, self._window_config, number)
        self._dialled = join_host_port(dialled_host(self._join.bind), number)
        self._directory.write_port(number, address=self._dialled)
        self._say(
            f"run {self._plan.run_id} ({self._plan.name}) listens on {self._dialled}; "
            f"its directory is {self._directory.path}"
        )
        if self._start_mode is not None:
            proof = ("--token-file", str(self._directory.token_path))
            self._say(f"to add a host: {join_line(self._plan.job, self._join, number, proof)}")
        return port

    # -- what the window tells -----------------------------------------------------

    def _formed(self, formed: FormWorld) -> None:
        plan = self._plan = choose_for(self._plan, formed, self._join)
        self._board.name_mode(plan.mode, plan.mode_reason)
        envelope = compose_envelope(plan, formed, controller=self._dialled)
        try:
            coordinator = make_coordinator(plan, envelope, formed.roster)
        except ConfigError as error:
            self._fail(error)
            return
        for line in plan.changes_in(envelope):
            self._say(line)
        self._board.coordinator = coordinator
        services = RunServices(
            window=self._window,
            writer=self._records.writer,
            sample_log=self._records.sample_log,
            desk=self._records.desk,
            story=self._story,
            log=self._log,
            say=self._say,
        )
        self._controller = Controller(
            envelope, coordinator, services, beginning=self._plan.take_beginning()
        )
        self._records.desk.set_world(make_placer(envelope))
        self._story.set_world(make_placer(envelope))
        self._window.seat_ranks(seats_of(formed))
        for seat in formed.roster:
            self._window.send(
                seat.member.connection, WorldFormed(envelope=envelope, ranks=seat.ranks)
            )
        self._tasks.start_soon(self._train, self._controller)

    async def _train(self, controller: Controller) -> None:
        self._tasks.start_soon(self._await_formation, controller)
        finished = await controller.run()
        self._board.freeze()
        self._end.finish(finished)

    async def _await_formation(self, controller: Controller) -> None:
        if await controller.await_hosts(self._plan.config.formation_timeout_s):
            self._window.take(FormationFinished())

    def _fail(self, error: FlodlError) -> None:
        if self._operators.was_interrupted:
            error.exit_code = ExitCode.INTERRUPTED_SAVED
        self._end.fail(error)

    def _phase_changed(self, phase: ClusterPhase, reason: str) -> None:
        self._story.phase_changed(phase, reason)
        self._board.poke()

    def _refused(self, refused: RefusedHost) -> None:
        self._story.host_refused(self._board.refuse(refused))
        self._board.poke()

    def _host_lost(self, host: HostName, ranks: tuple[Rank, ...]) -> None:
        if self._controller is not None:
            self._controller.host_lost(host, ranks)

    def _host_leaves(self, host: HostName, reason: str) -> None:
        if self._controller is not None:
            self._controller.host_leaves(host, reason)

    def _from_host(self, message: RankExited | HostStats | RankStack) -> None:
        if isinstance(message, HostStats):
            self._board.take_stats(message)
        if self._controller:
            self._controller.from_host(message)

    async def _on_mux(self, connection: PortConnection) -> None:
        if self._controller is not None:
            await self._controller.on_mux(connection)

    async def _attach_local(
        self, _: Envelope, salt: bytes, folding: dict[Rank, RankEnds]
    ) -> Attached:
        assert self._controller is not None
        return self._controller.attach_local(self._tasks, salt, folding)

    def _note_drop(self, note: DropNote) -> None:
        self._log.info("connection_dropped", note=str(note))

    # -- the end -------------------------------------------------------------------

    async def _take_leave(self) -> None:
        async with anyio.create_task_group() as ending:
            ending.start_soon(anyio.sleep, END_READABLE_S)
            await self._end_hosts()
            await self._records.desk.finish(*self._end.outcome())

    async def _end_hosts(self) -> None:
        """Tell every host how the run ended and wait for those that this command started."""
        end = self._end
        self._window.send_to_all(end.last_word(is_abrupt=self._operators.is_abrupt))
        if end.finished is not None:
            self._window.take(TrainingEnded() if end.is_good else Aborted(reason=end.summary))
        await self._started.finish()
        with anyio.move_on_after(LINKS_END_S):
            await self._window.until_no_host()

    async def _conclude(self) -> tuple[int, RunSummary]:
        """Write the last document and the summary; raise what kept the run from training."""
        document = self._board.publish_now()
        is_kept = await self._keeper.end()
        if (finished := self._end.finished) is None:
            assert self._end.failure is not None
            self._log.close()
            raise self._end.failure
        summary = summarize(
            document,
            exit_code=finished.exit_code,
            reason=finished.reason,
            detail=finished.detail,
            beyond=known_beyond(self._records, self._board.coordinator),
        )
        if is_kept:
            keep_summary(summary, self._directory, self._say)
        else:
            self._say("warning: the disk of the run's directory does not answer: no summary.json")
        self._log.close()
        return finished.exit_code, summary

    def _tell_end(self) -> None:
        """Publish how the run ended while its port can still be read."""
        end = self._board.end = self._end.state()
        code, reason, detail = end.exit_code, end.reason, end.detail
        self._log.info("run_ended", code=code, reason=reason, detail=detail)
        self._story.ended(code, reason, detail)
        self._board.publish_now()
