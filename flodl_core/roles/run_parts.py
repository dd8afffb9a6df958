"""The parts of a run's room, each made from the plan: logs, alerts, window, board, port."""

import os
import platform
import shlex
import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from flodl_core.config.schema import JoinConfig
from flodl_core.config.window import WindowConfig
from flodl_core.coordinator.machine import Coordinator
from flodl_core.errors import ConfigError
from flodl_core.ids import HostName, Rank, StartMode
from flodl_core.membership.job_facts import expect_job
from flodl_core.membership.ledger import MembershipLedger
from flodl_core.messages import SCHEMA_VERSION
from flodl_core.messages.job import Envelope, JobRef
from flodl_core.messages.join import Offer
from flodl_core.net import clock
from flodl_core.net.addresses import join_host_port, parse_host_port
from flodl_core.net.http import HttpApp
from flodl_core.net.http_trust import TrustPolicy
from flodl_core.net.port import Port, PortConfig, PortConnection
from flodl_core.net.tls_identity import TlsIdentity
from flodl_core.roles.alerting import AlertDesk, EventCommand
from flodl_core.roles.board import StatusBoard
from flodl_core.roles.exposure import ExposureWatch
from flodl_core.roles.formation import RunPlan
from flodl_core.roles.history import Place, RunHistory
from flodl_core.roles.mode_choice import is_open, needs_gpus
from flodl_core.roles.operator_desk import OperatorActions, operator_routes, reading_routes
from flodl_core.roles.publishing import RunFacts, epoch_rows
from flodl_core.roles.run_secrets import RunSecrets
from flodl_core.roles.run_story import RunStory
from flodl_core.roles.saving import BundleWriter
from flodl_core.telemetry.journal import Journal
from flodl_core.telemetry.logs import Level, ProcessLog
from flodl_core.telemetry.recorder import RunRecorder
from flodl_core.telemetry.run_directory import RunDirectory
from flodl_core.telemetry.sample_log import SampleLog
from flodl_core.telemetry.state import JoinSettings
from flodl_core.telemetry.summary import RunSummary, Unbounded, summary_json
from flodl_core.training.job_name import FILE
from flodl_core.wire.handshake import operator_token


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecords:
    """Where a run writes what happens."""

    log: ProcessLog
    journal: Journal
    recorder: RunRecorder
    story: RunStory
    desk: AlertDesk
    writer: BundleWriter
    sample_log: SampleLog | None


def make_records(
    plan: RunPlan,
    directory: RunDirectory,
    env: dict[str, str],
    *,
    secrets: tuple[str, ...],
    level: Level,
) -> RunRecords:
    """Return the run's log, journal, history, alerts, bundle writer and sample log.

    Args:
        plan: of the run.
        directory: of the run.
        env: of the user's own command.
        secrets: words that no event may hold.
        level: of the log.

    Raises:
        ConfigError: the sample log cannot be written.
    """
    config = plan.config
    log = ProcessLog(
        directory.log_path("launcher"),
        host=plan.local_host,
        process="launcher",
        utc_iso=clock.utc_iso,
        level=level,
    )
    journal = Journal(directory.records_path, utc_iso=clock.utc_iso)
    command = (
        EventCommand(command=config.on_event, classes=config.on_event_classes, env=env)
        if config.on_event
        else None
    )
    sample_log = None
    if config.sample_log is not None:
        is_own = config.sample_log == "auto"
        path = directory.samples_path if is_own else Path(config.sample_log)
        try:
            sample_log = SampleLog(path, n_samples=plan.facts.n_samples, seed=config.seed)
        except OSError as error:
            raise ConfigError(
                "sample_log",
                str(path),
                f"it cannot be written ({error.strerror})",
                source="run.sample_log",
                fix="give a file that this user may write, or auto",
            ) from error
    recorder = RunRecorder(journal)
    story = RunStory(RunHistory(recorder, secrets=secrets))
    return RunRecords(
        log=log,
        journal=journal,
        recorder=recorder,
        story=story,
        desk=AlertDesk(log, journal, story, command=command),
        writer=BundleWriter(
            plan.save_stem,
            name=plan.name,
            host=plan.local_host,
            log=log,
            uptime=story.history.uptime_s,
        ),
        sample_log=sample_log,
    )


def make_ledger(
    plan: RunPlan, window: WindowConfig, hosts: tuple[HostName, ...]
) -> MembershipLedger:
    """Return the ledger of the join window."""
    return MembershipLedger(
        window,
        expect_job(
            plan.facts,
            run_id=plan.run_id,
            mode=None if is_open(plan) else plan.mode,
            needs_gpus=needs_gpus(plan.mode) and not is_open(plan),
            wire_dtype=plan.config.wire_dtype.value,
        ),
        configured_hosts=hosts,
    )


def make_offer(plan: RunPlan) -> Offer:
    """Return what every host is told first."""
    return Offer(
        run_id=plan.run_id,
        mode=plan.mode,
        job=plan.job,
        batch_size=plan.batch_size,
        seed=plan.config.seed,
        wire_dtype=plan.config.wire_dtype.value,
        schema=SCHEMA_VERSION,
    )


def make_facts(plan: RunPlan, directory: RunDirectory, hosts: tuple[HostName, ...]) -> RunFacts:
    """Return what of the status document does not change."""
    return RunFacts(
        run_id=plan.run_id,
        name=plan.name,
        mode=plan.mode.value,
        mode_reason=plan.mode_reason,
        started_at=clock.utc_iso(),
        pid=os.getpid(),
        run_dir=directory.path,
        configured_hosts=hosts,
        resumed_from=str(plan.resume.bundle.stem) if plan.resume is not None else None,
    )


def make_http(
    board: StatusBoard,
    join: JoinConfig,
    token: bytes,
    *,
    start_mode: StartMode | None,
    actions: OperatorActions,
) -> HttpApp:
    """Return the HTTP side of the port; `start_mode` is None where there is no window."""
    trust = TrustPolicy(
        operator_token=operator_token(token),
        require_token=join.require_token,
        own_names=_own_names(join),
    )
    history = board.history
    return HttpApp(
        board.publisher,
        trust=trust,
        gets=reading_routes(history.windows, history.events, lambda: board.newest),
        posts=operator_routes(start_mode, actions),
    )


def _own_names(join: JoinConfig) -> frozenset[str]:
    told = [join.advertise] if join.advertise else []
    names = [parse_host_port(one, default_port=1)[0] for one in told]
    return frozenset(name.lower() for name in (*names, join.bind, socket.gethostname()))


def port_config(join: JoinConfig, identity: TlsIdentity | None = None) -> PortConfig:
    """Return where and how patiently the port listens, and what it is spoken in."""
    return PortConfig(
        bind=join.bind,
        port=join.port,
        source="join.port",
        handshake_s=join.handshake_timeout_s,
        tls=None if identity is None else identity.context,
    )


def watch_exposure(
    secrets: RunSecrets, records: RunRecords, say: Callable[[str], None]
) -> Callable[[PortConnection], None] | None:
    """Return what warns of peers that are served plainly over networks of strangers.

    Args:
        secrets: of the run; one with TLS serves nobody plainly.
        records: where the warning is kept.
        say: takes it for the operator.
    """
    if secrets.has_tls:
        return None

    def tell(address: str, text: str) -> None:
        say(f"warning: {text}")
        records.log.warning("peer_exposed", address=address)
        records.story.peer_exposed(address, text)

    watch = ExposureWatch(tell)
    return lambda connection: watch.served(connection.peer.address)


def check_port(join: JoinConfig) -> None:
    """Refuse a port that cannot be used before anything slow is done.

    Raises:
        ConfigError: it cannot, or is in use, by whom.
    """
    port = Port(port_config(join), on_join=_ignore, on_mux=_ignore, on_http=_ignore)
    port.listen()
    port.close()


async def _ignore(_: PortConnection) -> None:
    return None


def dialled_host(bind: str) -> str:
    """Return the host part that this machine dials for a port bound to `bind`."""
    if bind == "0.0.0.0":  # noqa: S104 - recognised, not bound
        return "127.0.0.1"
    return "::1" if bind == "::" else bind


def shown_host(bind: str) -> str:
    """Return the host part that another machine dials for a port bound to `bind`."""
    return platform.node() or "HOST" if bind in {"0.0.0.0", "::"} else bind  # noqa: S104


def advertised(join: JoinConfig, port: int) -> str:
    """Return `host:port` as other machines dial the launcher.

    Args:
        join: as configured.
        port: the real one.
    """
    if join.advertise is None:
        return join_host_port(shown_host(join.bind), port)
    return join_host_port(*parse_host_port(join.advertise, default_port=port))


def join_settings(plan: RunPlan, join: JoinConfig, window: WindowConfig, port: int) -> JoinSettings:
    """Return how hosts join, with the line that another host would type."""
    proof = ["--token-file", "token"]
    if join.admits_openly:
        pin = plan.fingerprint
        proof = [] if pin is None else ["--tls-fingerprint", pin.hex()]
    return JoinSettings(
        window_s=window.join_timeout_s,
        cap_s=window.max_join_timeout_s,
        line=None if window.min_rank_start == 1 else join_line(plan.job, join, port, proof),
        is_open=join.admits_openly,
    )


def join_line(job: JobRef, join: JoinConfig, port: int, proof: Sequence[str]) -> str:
    """Return what another host types to join.

    Args:
        job: of the run; a file is named as if it lay where the line is typed.
        join: as configured.
        port: the real one.
        proof: the options that show that it may.
    """
    words = ["flodl", "join", advertised(join, port), *proof]
    if job.kind == FILE:
        module, _, attribute = job.name.partition(":")
        words += ["--job", f"{module}.py:{attribute}"]
    return shlex.join(words)


def known_beyond(records: RunRecords, coordinator: Coordinator | None) -> Unbounded:
    """Return what the summary says beyond the last document.

    Args:
        records: of the run.
        coordinator: at its end; None where no world formed.
    """
    sample_log = records.sample_log
    view = coordinator.view(clock.now()) if coordinator else None
    training = view.training if view else None
    passes = training.epochs // training.epoch_splits if training else 0
    return Unbounded(
        epochs=epoch_rows(view.epochs) if view else None,
        alerts=records.desk.counts,
        samples_tail=training.tail_samples * passes if training else 0,
        sample_log=str(sample_log.path) if sample_log else None,
    )


def keep_summary(summary: RunSummary, directory: RunDirectory, say: Callable[[str], None]) -> None:
    """Write the summary into the run's directory; a full disk costs the file, not the run's end."""
    try:
        directory.write_summary(summary_json(summary, indent=2))
    except ConfigError as error:
        say(f"warning: summary.json is missing: {error.reason}")


def make_placer(envelope: Envelope) -> Place:
    """Return where a rank is: its host, the number of hosts, the number of ranks."""
    host_of = {rank: host.host for host in envelope.hosts for rank in host.ranks}

    def place(rank: Rank | None) -> tuple[HostName | None, int, int]:
        host = host_of.get(rank) if rank is not None else None
        return host, len(envelope.hosts), envelope.world_size

    return place
