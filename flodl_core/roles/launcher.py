"""The launcher: prepares a run, hands it to its room, and says how it ended.

`flodl headless` calls `launch`. The order is: read the job's name, inspect the job
in a child, place ranks, make the run directory, try the save path, open the room. Where
the run saves is held before anything there is touched.
It holds no torch and decides nothing about training.
"""

import os
import platform
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio

from flodl_core.checkpoint.resume import RunNumbers
from flodl_core.config.addresses import is_loopback_address
from flodl_core.config.cadence_rules import review_hints
from flodl_core.config.explain import config_document
from flodl_core.config.load import LoadedRun
from flodl_core.config.mode import resolve_mode
from flodl_core.config.placement import host_labels, place_ranks
from flodl_core.config.rules import review_encoding
from flodl_core.config.tls_rules import review_nccl
from flodl_core.config.window import WindowConfig, join_warnings, resolve_join, trains_solo
from flodl_core.config.words import agent_words
from flodl_core.config.workers import PlacementKind
from flodl_core.dispatch.epoch_plan import refuse_splits
from flodl_core.errors import ConfigError
from flodl_core.ids import HostName, Mode, RunId
from flodl_core.messages.job import JobFacts
from flodl_core.net.children import job_environment
from flodl_core.roles.asked_guard import AskedGuard, start_guard
from flodl_core.roles.formation import RunPlan, outer_spec
from flodl_core.roles.host_join import LocalJob
from flodl_core.roles.inspection import ask_inspector
from flodl_core.roles.mode_choice import review_devices
from flodl_core.roles.placing import Placed, hosts_here, place_hosts, refuse_own_label
from flodl_core.roles.resume_search import ResumeWish, find_resume, load_resume
from flodl_core.roles.run_parts import check_port
from flodl_core.roles.run_room import RunRoom
from flodl_core.roles.run_secrets import make_secrets
from flodl_core.roles.save_place import SaveHold, place_of, try_saving
from flodl_core.roles.started_hosts import HostPlan
from flodl_core.telemetry.run_directory import RunDirectory, run_label
from flodl_core.telemetry.state import StateDocument
from flodl_core.telemetry.summary import RunSummary
from flodl_core.training.job_name import NamedJob, name_job

RUN_ID_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchResult:
    """How the command ends."""

    exit_code: int
    summary: RunSummary | None


async def launch(
    loaded: LoadedRun,
    *,
    show: Callable[[StateDocument], None],
    say: Callable[[str], None],
    is_verbose: bool = False,
) -> LaunchResult:
    """Run a whole run.

    Args:
        loaded: settings, with a job.
        show: takes the status document, twice a second and at changes.
        say: takes single lines for the person who started the run.
        is_verbose: whether processes log at debug level.

    Raises:
        ConfigError, JobError: nothing was started.
        WindowFailedError: no world formed.
    """
    run = loaded.run
    assert run.job is not None, "the command line requires a job"
    named = name_job(run.job, run.job_args)
    guard = await start_guard(
        run.guard,
        source=str(loaded.resolved["run.guard"].source),
        env=job_environment(run.data),
        load_s=run.inspect_timeout_s,
        ceiling_s=run.guard_timeout_s,
    )
    run_id = RunId(secrets.token_hex(RUN_ID_BYTES))
    label = run_label(_run_name(loaded, named), run_id)
    machine = platform.node() or "this machine"
    hold = SaveHold(f"run {label}, process {os.getpid()} on {machine}", say)
    try:
        talk = _Talk(show=show, say=say, is_verbose=is_verbose)
        return await _prepare(loaded, named, run_id, guard=guard, hold=hold, talk=talk)
    finally:
        await hold.release()
        if guard is not None:
            await guard.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Talk:
    """With whoever started the run; as for `launch`."""

    show: Callable[[StateDocument], None]
    say: Callable[[str], None]
    is_verbose: bool


async def _prepare(
    loaded: LoadedRun,
    named: NamedJob,
    run_id: RunId,
    *,
    guard: AskedGuard | None,
    hold: SaveHold,
    talk: _Talk,
) -> LaunchResult:
    """Prepare the run and live through it."""
    run, join, say = loaded.run, loaded.join, talk.say
    assert run.job is not None
    refuse_own_label(loaded)
    places = {"run_dir": run.run_dir, "sample_log": run.sample_log, "resume": run.resume}
    for field, place in places.items():
        if place is not None:
            review_encoding(field, Path(place), source=str(loaded.resolved[f"run.{field}"].source))
    check_port(join)
    run_secrets = make_secrets(join, resolved=loaded.resolved)
    stem, stem_source = place_of(run.save_path), str(loaded.resolved["run.save_path"].source)
    if stem is not None:
        review_encoding("save_path", stem, source=stem_source)
        hold.take(stem, source=stem_source)
        try_saving(stem, None, loaded)
    wanted = _wanted_resume(loaded, named, stem)
    found = find_resume(wanted) if wanted is not None else None
    facts = await ask_inspector(
        named.ref, named.path, env=job_environment(run.data), timeout_s=run.inspect_timeout_s
    )
    here = hosts_here(run)
    devices = place_ranks(here, facts.devices, source=str(loaded.resolved["run.devices"].source))
    _refuse_sizes(loaded, facts)
    window = _window(loaded, devices.devices)
    mode_source = str(loaded.resolved["run.mode"].source)
    mode = resolve_mode(run.mode, is_alone=window.target_ranks == 1, source=mode_source)
    review_nccl(
        mode.mode,
        has_tls=join.tls,
        is_insecure=join.insecure_nccl,
        crosses_hosts=not is_loopback_address(join.bind),
        source=mode_source,
    )
    review_devices(mode.mode, devices.devices, source=mode_source)
    review_hints(
        mode=mode.mode,
        pin_counts=bool(run.pin_counts),
        speed_ratio=run.speed_ratio is not None,
        partition_ratios=bool(run.partition_ratios),
        for_async=run.given_for_async,
    )
    if run.placement is PlacementKind.LOCAL:
        _refuse_counts(loaded, window, mode.mode)
    resume = None
    if wanted is not None and found is not None:
        resume = load_resume(
            found,
            wanted,
            numbers=_numbers(loaded, named, facts),
            events=(run.epochs or facts.epochs) * run.epoch_splits,
            geometry=facts.geometry,
            outer=outer_spec(run),
        )
        for line in found.lines:
            say(line)
    for warning in join_warnings(join):
        say(f"warning: {warning}")
    name = _run_name(loaded, named)
    directory = RunDirectory.create(Path(run.run_dir), name, run_id)
    placed: Placed | None = None
    try:
        directory.write_token(run_secrets.join_token.text())
        directory.write_config(config_document(loaded.resolved))
        stem = stem or directory.checkpoint_stem
        directory.write_save_stem(stem)
        hold.take(stem, source=stem_source)
        if (lack := try_saving(stem, facts, loaded)) is not None:
            say(f"warning: {lack}; make room, or keep fewer with --keep-checkpoints")
        placed = await place_hosts(
            loaded, named, facts, directory=directory, say=say, is_verbose=talk.is_verbose
        )
        if placed is not None:
            join = placed.join
            window = _window(loaded, (*devices.devices, *placed.hosts.devices.values()))
            _refuse_counts(loaded, window, mode.mode)
        labels = host_labels(platform.node() or "host", here.hosts)
        room = RunRoom(
            RunPlan(
                run_id=run_id,
                name=name,
                mode=mode.mode,
                mode_reason=mode.reason,
                job=named.ref,
                facts=facts,
                config=run,
                local_host=HostName(labels[0]),
                save_stem=stem,
                guard=guard,
                resume=resume,
                fingerprint=run_secrets.join_token.fingerprint,
            ),
            HostPlan(
                hosts=dict(zip(map(HostName, labels), devices.devices, strict=True)),
                job=LocalJob(ref=named.ref, path=named.path, facts=facts),
                agent_words=(
                    *("--job", _job_for_children(named, run.job)),
                    *agent_words(loaded, is_verbose=talk.is_verbose),
                ),
                placed=placed.hosts if placed is not None else None,
                may_miss_placed=join.min_rank_start is not None,
                is_verbose=talk.is_verbose,
            ),
            join=join,
            window=window,
            directory=directory,
            secrets=run_secrets,
        )
        exit_code, summary = await room.run(show=talk.show, say=say)
        return LaunchResult(exit_code=exit_code, summary=summary)
    finally:
        if placed is not None:
            placed.hosts.kill_all()
            with anyio.CancelScope(shield=True):
                await placed.hosts.finish(0)
        directory.close()


def _wanted_resume(loaded: LoadedRun, named: NamedJob, stem: Path | None) -> ResumeWish | None:
    """Return what the user said of a checkpoint to go on from; None if nothing."""
    run = loaded.run
    if run.resume is None:
        return None
    return ResumeWish(
        where=run.resume,
        source=str(loaded.resolved["run.resume"].source),
        base=Path(run.run_dir),
        save_stem=stem,
        job=named.ref.name,
    )


def _numbers(loaded: LoadedRun, named: NamedJob, facts: JobFacts) -> RunNumbers:
    """Return what the run must share with a checkpoint that it goes on from."""
    run = loaded.run
    return RunNumbers(
        job=named.ref.name,
        seed=run.seed,
        batch_size=run.batch_size or facts.batch_size,
        epoch_splits=run.epoch_splits,
        n_samples=facts.n_samples,
        dataset_sig=facts.dataset_sig,
        model_sig=facts.model_sig,
    )


def _run_name(loaded: LoadedRun, named: NamedJob) -> str:
    """Return the name that was given, else that of the job without its place."""
    return loaded.run.name or named.ref.name.partition(":")[0].rpartition(".")[2]


def _job_for_children(named: NamedJob, text: str) -> str:
    """Return the job as agents on this machine are told it: a file by its whole path."""
    if named.path is None:
        return text
    return f"{named.path}:{named.ref.name.rpartition(':')[2]}"


def _window(loaded: LoadedRun, devices: tuple[tuple[str, ...], ...]) -> WindowConfig:
    """Return the window's numbers; one local rank alone needs nobody to wait for."""
    join, placement = loaded.join, loaded.run.placement
    config = resolve_join(join, sum(len(host) for host in devices))
    is_here = placement is PlacementKind.LOCAL
    if not is_here or not trains_solo(join, local_ranks=len(devices[0]), hosts=len(devices)):
        return config
    return WindowConfig(
        min_rank_start=1,
        target_ranks=1,
        join_timeout_s=config.join_timeout_s,
        max_join_timeout_s=config.max_join_timeout_s,
        start_mode=config.start_mode,
    )


def _refuse_sizes(loaded: LoadedRun, facts: JobFacts) -> None:
    """Refuse a run whose epochs would train nothing.

    Raises:
        ConfigError: the batch or the split is larger than what there is.
    """
    run = loaded.run
    batch_size = run.batch_size or facts.batch_size
    refusal = refuse_splits(facts.n_samples, batch_size, run.epoch_splits)
    if refusal is not None:
        field = "epoch_splits" if run.epoch_splits > 1 else "batch_size"
        raise ConfigError(
            field,
            run.epoch_splits if field == "epoch_splits" else batch_size,
            refusal,
            source=str(loaded.resolved[f"run.{field}"].source),
            fix=f"give a smaller {field}, or a job with more samples",
        )


def _refuse_counts(loaded: LoadedRun, window: WindowConfig, mode: Mode) -> None:
    """Refuse pinned counts that are not one a rank, where the number of ranks is known.

    Raises:
        ConfigError: they are more or fewer than the ranks that close the window.
    """
    counts, ranks = loaded.run.pin_counts, window.target_ranks
    if not mode.has_counts:
        return
    if counts and ranks is not None and len(counts) != ranks:
        raise ConfigError(
            "pin_counts",
            ",".join(map(str, counts)),
            f"{len(counts)} numbers for {ranks} ranks",
            source=str(loaded.resolved["run.pin_counts"].source),
            fix="give one number for each rank, in the order of ranks",
        )
