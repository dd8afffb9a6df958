"""Hosts on other machines, before the window opens: which, by what road, and are they fit.

What it is: the way from settings to `PlacedHosts` that have passed their preflight, with the
table that a person reads.
What it is not: their start (`started_hosts`), or the roads (`flodl_core.placement`).
Who drives it: the launcher, once it knows the job.
"""

import platform
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio

from flodl_core import __version__
from flodl_core.config.addresses import is_loopback_address
from flodl_core.config.load import LoadedRun
from flodl_core.config.placement import host_labels
from flodl_core.config.schema import JoinConfig, RunConfig
from flodl_core.config.words import agent_words
from flodl_core.config.workers import PlacementKind, WorkerConfig
from flodl_core.errors import ConfigError, WindowFailedError
from flodl_core.messages.job import JobFacts
from flodl_core.net.children import job_environment, python_command
from flodl_core.placement.greeter import WORD_CHARS, Greeter
from flodl_core.placement.placed_hosts import PlacedHosts, PlaceFacts
from flodl_core.placement.preflight import (
    HostVerdict,
    LauncherFacts,
    complaint_lines,
    table_rows,
)
from flodl_core.placement.roads import (
    PlacedHost,
    RayRoad,
    Road,
    SlurmRoad,
    SshRoad,
    allocated_nodes,
)
from flodl_core.roles.run_parts import advertised
from flodl_core.telemetry.run_directory import RunDirectory
from flodl_core.telemetry.summary import align_columns
from flodl_core.training.job_name import FILE, NamedJob
from flodl_core.units import Seconds

SCONTROL_S: Seconds = 10.0


class PlacementError(WindowFailedError):
    """A host that was to be started cannot take part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placed:
    """Hosts that have passed their preflight, and the port that they know."""

    hosts: PlacedHosts
    join: JoinConfig
    """As it was, with the port that the hosts were told."""


def hosts_here(run: RunConfig) -> RunConfig:
    """Return the settings of the hosts that live on the launcher's own machine."""
    if run.placement in (PlacementKind.SLURM, PlacementKind.RAY):
        return run.model_copy(update={"hosts": 1})
    return run


async def place_hosts(
    loaded: LoadedRun,
    named: NamedJob,
    facts: JobFacts,
    *,
    directory: RunDirectory,
    say: Callable[[str], None],
    is_verbose: bool,
) -> Placed | None:
    """Reach every host of the configured placement and have it look at itself.

    Args:
        loaded: settings.
        named: the job as the launcher has it.
        facts: of the job, on the launcher.
        directory: of the run; what hosts print is kept there.
        say: takes the table, line by line.
        is_verbose: whether processes log at debug level, there too.

    Returns:
        None where every host lives on this machine.

    Raises:
        ConfigError: there are fewer nodes than hosts, or the port cannot be used.
        PlacementError: a host cannot take part, and the run does not start without it.
    """
    run, join = loaded.run, loaded.join
    if run.placement is PlacementKind.LOCAL:
        return None
    greeter = Greeter(join.bind, join.port, word=secrets.token_hex(WORD_CHARS // 2))
    try:
        join = join.model_copy(update={"port": greeter.port})
        road, hosts = await _plan(loaded, join)
        placed = PlacedHosts(
            road,
            hosts,
            facts=PlaceFacts(
                word=greeter.word,
                job=_job_there(run, named),
                is_file=named.ref.kind == FILE,
                launcher=LauncherFacts(
                    flodl=__version__, torch=facts.torch_variant, job_sha256=named.ref.sha256
                ),
                words=agent_words(loaded, is_verbose=is_verbose),
                timeout_s=run.place_timeout_s,
                look_s=run.inspect_timeout_s,
            ),
            env=job_environment(run.data),
            output_path=directory.output_path,
        )
        say(f"looking at {len(hosts)} host{'s' * (len(hosts) > 1)} over {road.name}")
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(greeter.serve)
                verdicts = await placed.preflight()
                tasks.cancel_scope.cancel()
            _judge(verdicts, join, say)
        except BaseException:
            placed.kill_all()
            with anyio.CancelScope(shield=True):
                await placed.finish(0)
            raise
    finally:
        greeter.close()
    return Placed(hosts=placed, join=join)


def refuse_own_label(loaded: LoadedRun) -> None:
    """Refuse a worker with a label of the launcher's own hosts: no run admits two of one name.

    Raises:
        ConfigError: there is one.
    """
    own = host_labels(platform.node() or "host", hosts_here(loaded.run).hosts)
    for worker, source in loaded.workers:
        if worker.host in own:
            raise ConfigError(
                "workers.host",
                worker.host,
                "it is the label of this machine, whose own ranks are a host of the run",
                source=str(source),
                fix="give it another label, and its address with ssh =",
            )


def _judge(verdicts: list[HostVerdict], join: JoinConfig, say: Callable[[str], None]) -> None:
    """Say what is thought of each host; refuse a run that would wait for one in vain."""
    for line in align_columns(table_rows(verdicts), left=(0, 1, 2, 3, 4)):
        say(line)
    for line in complaint_lines(verdicts):
        say(f"warning: {line}")
    unfit = [one for one in verdicts if not one.is_fit]
    if unfit and join.min_rank_start is None:
        raise PlacementError(
            f"{len(unfit)} of {len(verdicts)} hosts cannot take part: "
            f"{unfit[0].host}: {unfit[0].problem}",
            fix=f"{unfit[0].fix}; or give --min-rank-start to start without it",
        )


async def _plan(loaded: LoadedRun, join: JoinConfig) -> tuple[Road, list[PlacedHost]]:
    """Return the road, and the hosts at its end."""
    run = loaded.run
    if run.placement is PlacementKind.SSH:
        is_tunnelled = is_loopback_address(join.bind) and join.advertise is None
        address = None if is_tunnelled else advertised(join, join.port)
        hosts = [PlacedHost(label=one.host, worker=one) for one, _ in loaded.workers]
        return SshRoad(join.port, address=address), hosts
    address = advertised(join, join.port)
    if run.placement is PlacementKind.RAY:
        labels = [f"ray-{number}" for number in range(1, run.hosts)]
        return RayRoad(address), [_alike(run, label) for label in labels]
    nodes = await _slurm_nodes(run)
    labels = list(nodes) or [f"slurm-{number}" for number in range(1, run.hosts)]
    return SlurmRoad(address, nodes=nodes), [_alike(run, label) for label in labels]


def _alike(run: RunConfig, label: str) -> PlacedHost:
    """Return a host that has what the launcher has: its paths, its interpreter, its devices."""
    worker = WorkerConfig(
        host=label,
        devices=run.devices,
        ranks=run.ranks_per_host,
        micro_batch=run.micro_batch,
        loader_workers=run.loader_workers,
        python=python_command("")[0],
        directory=str(Path.cwd()),
        data=str(run.data.absolute()) if run.data is not None else None,
    )
    return PlacedHost(label=label, worker=worker)


def _job_there(run: RunConfig, named: NamedJob) -> str:
    """Return the job as a host finds it that was told nothing else."""
    assert run.job is not None
    if named.path is None or run.placement is PlacementKind.SSH:
        return run.job if ":" in run.job or named.path is None else f"{run.job}:job"
    return f"{named.path}:{named.ref.name.rpartition(':')[2]}"


async def _slurm_nodes(run: RunConfig) -> dict[str, str]:
    """Return the nodes of the allocation by label; none outside of one.

    Raises:
        ConfigError: the allocation has fewer nodes than hosts are asked for.
    """
    env = job_environment(None)
    listed = env.get("SLURM_JOB_NODELIST")
    if "SLURM_JOB_ID" not in env or listed is None:
        return {}
    command = ["scontrol", "show", "hostnames", listed]
    with anyio.fail_after(SCONTROL_S):
        said = await anyio.run_process(command, check=True)
    names = said.stdout.decode().split()
    own = env.get("SLURMD_NODENAME") or platform.node()
    others = allocated_nodes(names, own)
    wanted = run.hosts - 1
    if len(others) >= wanted:
        return {node: node for node in others[:wanted]}
    if run.devices == ("cpu",) and names:
        spare = [*others, *(own for _ in range(wanted - len(others)))]
        return {
            node if node != own else f"{node}-{number}": node
            for number, node in enumerate(spare, 1)
        }
    raise ConfigError(
        "hosts",
        run.hosts,
        f"the allocation has {len(others)} nodes beside this one",
        source="resolved",
        fix=f"give --hosts {len(others) + 1}, or ask Slurm for more nodes",
    )
