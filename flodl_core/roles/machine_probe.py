"""One look at a machine, from its disk to what a job would gain: the order in which it is had.

What it is: the steps, and what came of each; a step that fails is a finding, not an end.
What it is not: the rules on what was found (`flodl_core.probe`), or text.
Who drives it: `flodl probe`.
"""

import functools
from dataclasses import dataclass

from flodl_core import __version__
from flodl_core.config.join_token import read_join_token
from flodl_core.config.load import LoadedAgent, LoadedRun
from flodl_core.config.placement import place_ranks
from flodl_core.config.schema import RunConfig
from flodl_core.config.sources import SourceKind
from flodl_core.errors import ConfigError, FlodlError
from flodl_core.net import clock
from flodl_core.net.addresses import join_host_port, parse_host_port
from flodl_core.net.children import job_environment
from flodl_core.probe.checks import (
    Check,
    Finding,
    check_clock,
    check_machine,
    check_torch,
    has_errors,
)
from flodl_core.probe.estimate import Estimate, Plan, estimate
from flodl_core.probe.facts import SoloRate, TorchFacts
from flodl_core.probe.machine import MachineFacts, read_machine
from flodl_core.probe.reach import reach_controller
from flodl_core.roles.orders import SoloOrder
from flodl_core.roles.probing import ask_solo, ask_torch
from flodl_core.roles.run_parts import check_port
from flodl_core.roles.tunnel import open_tunnel
from flodl_core.training.job_name import NamedJob
from flodl_core.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What a look at this machine came to."""

    machine: MachineFacts
    torch: TorchFacts | None
    checks: list[Check]
    job: str | None
    """As it was named; None if none was measured."""
    rates: tuple[SoloRate, ...]
    """One a rank, where a job was measured."""
    estimate: Estimate | None

    @property
    def has_errors(self) -> bool:
        """Whether anything keeps this machine from training."""
        return has_errors(self.checks)


async def probe_machine(
    loaded: LoadedRun, agent: LoadedAgent, named: NamedJob | None, measure_s: Seconds
) -> Probed:
    """Look at this machine.

    Args:
        loaded: settings of a run as it would be launched here.
        agent: settings of joining one; its controller is dialled where it was given.
        named: the job to measure; None measures none.
        measure_s: how long each device is measured.
    """
    run = loaded.run
    machine = read_machine(run.run_dir, flodl=__version__)
    checks = check_machine(machine)
    torch, found = await _torch(run, machine)
    checks += found
    checks.append(_port(loaded))
    reached, utc_s = await check_controller(agent)
    checks.append(check_clock(clock.utc_s(), controller_utc_s=utc_s))
    checks += reached
    rates: tuple[SoloRate, ...] = ()
    if named is not None and torch is not None:
        rates, found = await _measure(loaded, named, torch, machine, measure_s)
        checks += found
    has_nccl = machine.nccl4py is not None and torch is not None and torch.nccl is not None
    plan = Plan(overhead_target=run.overhead_target, anchor=run.anchor, max_anchor=run.max_anchor)
    return Probed(
        machine=machine,
        torch=torch,
        checks=checks,
        job=run.job if named is not None else None,
        rates=rates,
        estimate=estimate(rates, plan, has_nccl=has_nccl) if rates else None,
    )


async def _torch(run: RunConfig, machine: MachineFacts) -> tuple[TorchFacts | None, list[Check]]:
    try:
        facts = await ask_torch(job_environment(run.data), timeout_s=run.inspect_timeout_s)
    except FlodlError as error:
        return None, [_error("torch", error)]
    return facts, check_torch(facts, machine)


def _port(loaded: LoadedRun) -> Check:
    join = loaded.join
    try:
        check_port(join)
    except FlodlError as error:
        return _error("port", error)
    where = f"port {join.port}" if join.port else "any port"
    return Check(name="port", finding=Finding.OK, detail=f"{where} of {join.bind} is free")


async def check_controller(agent: LoadedAgent) -> tuple[list[Check], Seconds | None]:
    """Return whether the controller that was named can be reached as it would be joined.

    Also its clock, where that could be read.
    """
    if agent.resolved["agent.controller"].source.kind is SourceKind.DEFAULT:
        return [], None
    try:
        host, port = parse_host_port(agent.agent.controller)
    except ConfigError as error:
        return [_error("controller", error)], None
    token = read_join_token(agent.agent.token) if agent.agent.token else None
    pinned = agent.agent.tls_fingerprint
    reach = functools.partial(
        reach_controller,
        token=token,
        pinned=bytes.fromhex(pinned) if pinned is not None else None,
        at=join_host_port(host, port),
    )
    if agent.agent.ssh is None:
        reached = await reach(host, port)
    else:
        try:
            async with open_tunnel(agent.agent.ssh, (host, port)) as near:
                reached = await reach(*near)
        except FlodlError as error:
            return [_error("controller", error)], None
    return [reached.check], reached.controller_utc_s


async def _measure(
    loaded: LoadedRun,
    named: NamedJob,
    torch: TorchFacts,
    machine: MachineFacts,
    measure_s: Seconds,
) -> tuple[tuple[SoloRate, ...], list[Check]]:
    """Return how fast each device is at the job, one after another; none if one fails."""
    run = loaded.run
    available = tuple(one.device for one in torch.devices)
    try:
        devices = place_ranks(run, available, source="devices").devices[0]
    except ConfigError as error:
        return (), [_error("devices", error)]
    rates = []
    for rank, device in enumerate(devices):
        order = SoloOrder(
            job=named.ref,
            job_path=named.path,
            device=device,
            rank=rank,
            threads=max(1, machine.cores // len(devices)),
            batch_size=run.batch_size,
            micro_batch=run.micro_batch,
            budget_s=measure_s,
        )
        env = job_environment(run.data)
        try:
            rates.append(
                await ask_solo(order, env, timeout_s=run.inspect_timeout_s + 2 * measure_s)
            )
        except FlodlError as error:
            return (), [_error(f"job on {device}", error)]
    return tuple(rates), []


def _error(name: str, error: FlodlError) -> Check:
    return Check(name=name, finding=Finding.ERROR, detail=error.happened, fix=error.fix)
