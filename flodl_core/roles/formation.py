"""From a formed roster to the envelope that every process of the run receives. Pure."""

from dataclasses import dataclass
from pathlib import Path

from flodl_core.checkpoint.resume import (
    LoadedBundle,
    describe_changes,
    describe_outer,
    goes_on_stepping,
    keeps_velocity,
)
from flodl_core.config.cadence_rules import read_callback_rank, read_speed_ratio
from flodl_core.config.rules import losses_allowed
from flodl_core.config.schema import RunConfig
from flodl_core.coordinator.cadence import CadenceSettings
from flodl_core.coordinator.callback_desk import CallbackSettings
from flodl_core.coordinator.machine import Coordinator
from flodl_core.coordinator.settings import CoordinatorSettings
from flodl_core.elche.election import DeviceFacts, hardware_prior
from flodl_core.elche.guards import ConvergenceGuard
from flodl_core.elche.hardware import read_gpu_untrusted
from flodl_core.elche.report import StartValues
from flodl_core.elche.settings import ElcheSettings
from flodl_core.errors import ConfigError
from flodl_core.ids import (
    GuardKind,
    HostName,
    InnerState,
    Mode,
    NcclScratch,
    OuterKind,
    Rank,
    RunId,
)
from flodl_core.membership.events import FormWorld
from flodl_core.membership.roster import (
    ConnectionId,
    SeatedMember,
    host_ranks,
    shares_layout,
)
from flodl_core.messages.job import Envelope, JobFacts, JobRef, OuterSpec, RunSpec
from flodl_core.planes.consensus import Beginning
from flodl_core.planes.velocity import OuterState
from flodl_core.reduce.easgd import DEFAULT_ALPHA
from flodl_core.reduce.outer import OuterAvg, outer_rule


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlan:
    """What is known of a run before anybody joins."""

    run_id: RunId
    name: str
    mode: Mode
    mode_reason: str
    job: JobRef
    facts: JobFacts
    config: RunConfig
    local_host: HostName
    save_stem: Path
    """Of the bundle, on the launcher's host."""
    resume: LoadedBundle | None = None
    """What the run goes on from; None if it begins."""
    guard: ConvergenceGuard | None = None
    """The user's own, where `config.guard` names one."""
    fingerprint: bytes | None = None
    """Of the run's certificate; None where the run speaks no TLS."""

    @property
    def batch_size(self) -> int:
        """The run's, else the job's own."""
        return self.config.batch_size or self.facts.batch_size

    @property
    def epochs(self) -> int:
        """The run's, else the job's own."""
        return self.config.epochs or self.facts.epochs

    def take_beginning(self) -> Beginning:
        """Return what everybody begins with, once; nothing if rank 0 has it."""
        if self.resume is None:
            return Beginning()
        return beginning_of(self.resume, outer_spec(self.config))

    def changes_in(self, envelope: Envelope) -> tuple[str, ...]:
        """Return what of the checkpoint this world does not take up, in words."""
        if self.resume is None:
            return ()
        bundle = self.resume.bundle
        return (
            *describe_changes(bundle.meta, world_size=envelope.world_size, mode=self.mode),
            *describe_outer(bundle, envelope.spec.outer),
        )


def make_coordinator(
    plan: RunPlan, envelope: Envelope, roster: tuple[SeatedMember, ...]
) -> Coordinator:
    """Return the scheduler of a formed world, at its beginning or where it goes on.

    Raises:
        ConfigError: pinned counts are not one for each rank of the formed world.
    """
    resume = plan.resume
    return Coordinator(
        envelope,
        compose_settings(plan.config, envelope, roster, guard=plan.guard),
        has_eval=plan.facts.has_eval,
        local_host=plan.local_host,
        resume=(
            resume.point(world_size=envelope.world_size, mode=plan.mode)
            if resume is not None
            else None
        ),
    )


def compose_envelope(plan: RunPlan, formed: FormWorld, *, controller: str) -> Envelope:
    """Return the envelope of a formed world; `controller` is `host:port` as dialled here."""
    config, facts = plan.config, plan.facts
    hosts = host_ranks(formed.roster)
    return Envelope(
        spec=RunSpec(
            run_id=plan.run_id,
            mode=plan.mode,
            job=plan.job,
            n_samples=facts.n_samples,
            batch_size=plan.batch_size,
            epochs=plan.epochs,
            epoch_splits=config.epoch_splits,
            seed=config.seed,
            gamma=config.gamma,
            wire_dtype=config.wire_dtype.value,
            heartbeat_interval_s=config.heartbeat_interval_s,
            heartbeat_timeout_s=config.heartbeat_timeout_s,
            progress_timeout_s=config.progress_ceiling_s,
            stall_timeout_s=config.stall_ceiling_s,
            rendezvous_timeout_s=config.rendezvous_timeout_s,
            save_path=str(plan.save_stem),
            micro_batch=config.micro_batch,
            nccl_in_place=config.nccl_scratch is NcclScratch.NONE,
            keep_checkpoints=config.keep_checkpoints,
            resume=plan.resume.spec_for(outer_spec(config)) if plan.resume is not None else None,
            outer=outer_spec(config),
            easgd_alpha=easgd_alpha(config, plan.mode),
        ),
        world_size=sum(len(host.ranks) for host in hosts),
        hosts=hosts,
        geometry=facts.geometry,
        model_sig=facts.model_sig,
        layout_sig=facts.layout_sig,
        dataset_sig=facts.dataset_sig,
        same_layout=shares_layout(formed.roster, facts.layout_sig),
        controller=controller,
        seals_messages=plan.fingerprint is not None,
    )


def beginning_of(loaded: LoadedBundle, outer: OuterSpec | None) -> Beginning:
    """Return what a bundle gives to a run with that outer optimizer; the bundle lets it go.

    Where a velocity is missing, the first average is taken as it is, as at the start of a run.
    """
    bundle, state = loaded.bundle, None
    if keeps_velocity(bundle.meta, outer):
        state = OuterState(loaded.take_velocity(), goes_on_stepping(bundle, outer))
    return Beginning(loaded.take_regions(), state)


def outer_spec(config: RunConfig) -> OuterSpec | None:
    """Return the outer optimizer with its numbers; None if averages are adopted as they are."""
    rule = outer_rule(config.outer, lr=config.outer_lr, momentum=config.outer_momentum)
    if isinstance(rule, OuterAvg):
        return None
    usual = InnerState.FRESH if rule.kind is OuterKind.NESTEROV else InnerState.KEPT
    inner = config.inner_state or usual
    return OuterSpec(kind=rule.kind, lr=rule.lr, momentum=rule.momentum, inner=inner)


def easgd_alpha(config: RunConfig, mode: Mode) -> float | None:
    """Return how far ranks move towards an average; None where they become it."""
    if mode is not Mode.CPU_ASYNC:
        return None
    return DEFAULT_ALPHA if config.easgd_alpha is None else config.easgd_alpha


def compose_settings(
    config: RunConfig,
    envelope: Envelope,
    roster: tuple[SeatedMember, ...],
    *,
    guard: ConvergenceGuard | None = None,
) -> CoordinatorSettings:
    """Return the scheduler's own numbers.

    Args:
        config: of the run.
        envelope: of the formed world.
        roster: who is in it.
        guard: the user's own, where the configuration names one.

    Raises:
        ConfigError: pinned counts are not one for each rank of the formed world, or a hint is
            about a rank that it has not.
    """
    paced = envelope.spec.mode.has_counts
    if paced and config.pin_counts and len(config.pin_counts) != envelope.world_size:
        raise ConfigError(
            "pin_counts",
            ",".join(map(str, config.pin_counts)),
            f"{len(config.pin_counts)} numbers, and the world formed with "
            f"{envelope.world_size} ranks",
            source="run.pin_counts",
            fix="give one number for each rank, in the order of ranks",
        )
    return CoordinatorSettings(
        stop_grace_s=config.stop_grace_s,
        checkpoint_every_s=config.checkpoint_every_s or None,
        checkpoint_every_epochs=config.checkpoint_every_epochs or None,
        max_failure=losses_allowed(config.max_failure, envelope.world_size),
        first_batch_timeout_s=config.first_batch_timeout_s,
        leave_timeout_s=config.stop_grace_s,
        cadence=CadenceSettings(
            elche=ElcheSettings(
                overhead_target=config.overhead_target,
                initial_anchor=config.anchor,
                min_anchor=config.min_anchor,
                max_anchor=config.max_anchor,
                max_batch_diff=config.max_batch_diff,
                pinned_counts=config.pin_counts if paced and config.pin_counts else None,
                relax_up=config.relax_up,
            ),
            guard=GuardKind.NONE if guard is not None else GuardKind(config.guard),
            custom_guard=guard,
            meta=config.meta,
            late_factor=config.late_factor,
            start=start_values(config, envelope.world_size, roster),
            overshoot=config.overshoot,
        ),
        callbacks=callback_settings(config, envelope.world_size),
        partition_ratios=() if paced else partition_ratios(config, envelope.world_size),
    )


def callback_settings(config: RunConfig, world_size: int) -> CallbackSettings:
    """Return who evaluates and how often; a fixed rank beyond the world is its last one."""
    policy, fixed = read_callback_rank(config.callback_rank)
    return CallbackSettings(
        policy=policy,
        fixed_rank=None if fixed is None else Rank(min(fixed, world_size - 1)),
        eval_every=config.eval_every,
    )


def partition_ratios(config: RunConfig, world_size: int) -> tuple[float, ...]:
    """Return the parts of an epoch in Sync.

    Raises:
        ConfigError: they are not one for each rank.
    """
    ratios = config.partition_ratios
    if ratios and len(ratios) != world_size:
        raise ConfigError(
            "partition_ratios",
            ",".join(f"{ratio:g}" for ratio in ratios),
            f"{len(ratios)} numbers, and the world formed with {world_size} ranks",
            source="run.partition_ratios",
            fix="give one number for each rank, in the order of ranks",
        )
    return ratios


def start_values(
    config: RunConfig, world_size: int, roster: tuple[SeatedMember, ...]
) -> StartValues:
    """Return what is assumed of speeds before the first window: the hint, else what GPUs say.

    Raises:
        ConfigError: the hint is about a rank that is not there.
    """
    hint = read_speed_ratio(config.speed_ratio)
    if hint is None:
        return StartValues(anchor_rank=hardware_prior(devices_of(roster)))
    if hint.rank >= world_size:
        raise ConfigError(
            "speed_ratio",
            config.speed_ratio,
            f"there is no rank {hint.rank}: the world formed with {world_size} ranks, from 0",
            source="run.speed_ratio",
            fix=f"name a rank below {world_size}",
        )
    speeds = {Rank(rank): hint.ratio for rank in range(world_size)} | {hint.rank: 1.0}
    return StartValues(anchor_rank=hint.rank, speeds=speeds)


def devices_of(roster: tuple[SeatedMember, ...]) -> dict[Rank, DeviceFacts | None]:
    """Return what is known of each rank's device; None of a CPU, and where a host did not say."""
    devices: dict[Rank, DeviceFacts | None] = {}
    for seat in roster:
        hello = seat.member.hello
        for rank, device in zip(seat.ranks, hello.local_devices, strict=True):
            kind, _, number = device.partition(":")
            index = int(number) if kind == "cuda" and number.isdecimal() else len(hello.gpus)
            is_known = index < len(hello.gpus)
            devices[rank] = read_gpu_untrusted(hello.gpus[index]) if is_known else None
    return devices


def seats_of(formed: FormWorld) -> dict[Rank, ConnectionId]:
    """Return which connection speaks for which rank."""
    return {rank: seat.member.connection for seat in formed.roster for rank in seat.ranks}
