"""From a configuration and a roster to the scheduler's numbers."""

from dataclasses import replace
from typing import Any

import pytest

from flodl_core.config.schema import RunConfig
from flodl_core.coordinator.cadence import Cadence
from flodl_core.coordinator.settings import CoordinatorSettings
from flodl_core.elche.election import DeviceFacts
from flodl_core.elche.guards import LevelGuard
from flodl_core.errors import ConfigError
from flodl_core.ids import GuardKind, HostName, InnerState, Mode, OuterKind, Rank, RunId
from flodl_core.membership.roster import ConnectionId, Member, SeatedMember, host_ranks
from flodl_core.messages.job import Envelope, Geometry, JobRef, OuterSpec, RunSpec
from flodl_core.messages.join import JoinHello
from flodl_core.roles.formation import compose_settings, devices_of, outer_spec

OLD = "Tesla T4 (nvidia, generation 7, 16 GB)"
NEW = "NVIDIA H200 (nvidia, generation 9, 139 GB)"


def seat(name: str, first: int, *devices: str, gpus: tuple[str, ...] = ()) -> SeatedMember:
    hello = JoinHello(
        host=HostName(name),
        local_devices=devices,
        gpus=gpus,
        torch_variant="2.13.0+cpu",
        n_samples=10,
        dataset_sig="d" * 64,
    )
    member = Member(
        connection=ConnectionId(first), address="127.0.0.1:1", hello=hello, joined_at_s=0.0
    )
    return SeatedMember(
        member=member, ranks=tuple(Rank(first + index) for index in range(len(devices)))
    )


CPUS = (seat("red", 0, "cpu:0", "cpu:1"), seat("blue", 2, "cpu:0"))


def envelope(roster: tuple[SeatedMember, ...], mode: Mode = Mode.CPU_CADENCE) -> Envelope:
    spec = RunSpec(
        run_id=RunId("0" * 16),
        mode=mode,
        job=JobRef(kind="recipe", name="synthetic", args={}),
        n_samples=10,
        batch_size=1,
        epochs=1,
        epoch_splits=1,
        seed=0,
        gamma=1.0,
        wire_dtype="f32",
        heartbeat_interval_s=1.0,
        heartbeat_timeout_s=30.0,
        progress_timeout_s=300.0,
        stall_timeout_s=300.0,
        rendezvous_timeout_s=120.0,
        save_path="out",
    )
    hosts = host_ranks(roster)
    return Envelope(
        spec=spec,
        world_size=sum(len(host.ranks) for host in hosts),
        hosts=hosts,
        geometry=Geometry(params=(), params_numel=16, buffers=(), buffers_numel=0, locals=()),
        model_sig="m" * 64,
        layout_sig="l" * 64,
        dataset_sig="d" * 64,
        same_layout=True,
        controller="127.0.0.1:1",
    )


def settings(roster: tuple[SeatedMember, ...] = CPUS, **config: Any) -> CoordinatorSettings:
    return compose_settings(RunConfig(**config), envelope(roster), roster)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, None),
        ({"outer": "avg"}, None),
        ({"outer": "slowmo"}, OuterSpec(kind=OuterKind.SLOWMO, lr=1.0, momentum=0.9)),
        (
            {"outer": " Nesterov "},
            OuterSpec(kind=OuterKind.NESTEROV, lr=0.7, momentum=0.9, inner=InnerState.FRESH),
        ),
        (
            {"outer": "nesterov", "outer_lr": 0.4, "outer_momentum": 0.0, "inner_state": " Kept "},
            OuterSpec(kind=OuterKind.NESTEROV, lr=0.4, momentum=0.0, inner=InnerState.KEPT),
        ),
        (
            {"outer": "slowmo", "inner_state": "fresh"},
            OuterSpec(kind=OuterKind.SLOWMO, lr=1.0, momentum=0.9, inner=InnerState.FRESH),
        ),
    ],
)
def test_an_outer_optimizer_reaches_every_rank_with_its_numbers(settings, expected):
    assert outer_spec(RunConfig(**settings)) == expected


def test_the_cadence_of_a_run_is_what_was_configured() -> None:
    cadence = settings(
        overhead_target=0.02,
        anchor=20,
        min_anchor=5,
        max_anchor=80,
        max_batch_diff=30,
        late_factor=2.5,
        guard="none",
    ).cadence
    elche = cadence.elche
    assert (elche.overhead_target, elche.initial_anchor, elche.max_batch_diff) == (0.02, 20, 30)
    assert (elche.lowest_anchor, elche.max_anchor, elche.pinned_counts) == (5, 80, None)
    assert (cadence.late_factor, cadence.guard) == (2.5, GuardKind.NONE)


def test_an_overhead_target_is_held_within_its_bounds() -> None:
    assert settings(overhead_target=0.001).cadence.elche.overhead_target == 0.01
    assert settings(overhead_target=0.9).cadence.elche.overhead_target == 0.5


def test_pinned_counts_are_one_a_rank_of_the_formed_world() -> None:
    assert settings(pin_counts="3,2,1").cadence.elche.pinned_counts == (3, 2, 1)
    with pytest.raises(ConfigError, match="2 numbers, and the world formed with 3 ranks"):
        settings(pin_counts="3,2")


def test_pinned_counts_mean_nothing_in_sync() -> None:
    sync = envelope(CPUS, Mode.CPU_SYNC)
    found = compose_settings(RunConfig(pin_counts="3,2"), sync, CPUS)
    assert found.cadence.elche.pinned_counts is None


def test_the_slowest_looking_gpu_is_the_first_anchor_rank() -> None:
    roster = (
        seat("red", 0, "cuda:1", "cuda:0", gpus=(OLD, NEW)),
        seat("blue", 2, "cuda:0", gpus=(NEW,)),
    )
    assert devices_of(roster)[Rank(0)] == DeviceFacts(
        vendor="nvidia", generation=9, memory_gb=139.0
    )
    assert settings(roster).cadence.start.anchor_rank == 1


@pytest.mark.parametrize("device", ["cpu:0", "mps", "cuda:7", "cuda:x"])
def test_a_device_that_nothing_is_known_of_makes_no_first_anchor_rank(device: str) -> None:
    roster = (seat("red", 0, "cuda:0", gpus=(OLD,)), seat("blue", 1, device, gpus=(NEW,)))
    assert devices_of(roster)[Rank(1)] is None
    assert settings(roster).cadence.start.anchor_rank is None


def test_a_host_without_devices_that_match_is_our_own_mistake() -> None:
    broken = replace(CPUS[1], ranks=())
    with pytest.raises(ValueError, match="zip"):
        devices_of((broken,))


def test_guards_and_the_meta_controller_are_what_was_configured() -> None:
    usual = settings().cadence
    assert (usual.guard, usual.custom_guard, usual.meta) == (GuardKind.LEVEL, None, True)
    assert not usual.elche.relax_up
    own = LevelGuard(0.2)
    config = RunConfig(guard="lab.guards:Mine", meta=False, relax_up=True)
    found = compose_settings(config, envelope(CPUS), CPUS, guard=own).cadence
    assert found.custom_guard is own
    assert not found.meta
    assert found.elche.relax_up


def test_a_speed_ratio_is_the_first_guess() -> None:
    start = settings(speed_ratio="1:4").cadence.start
    assert start.anchor_rank == 1
    assert start.speeds == {0: 4.0, 1: 1.0, 2: 4.0}
    cadence = Cadence(settings(speed_ratio="1:4").cadence, (Rank(0), Rank(1), Rank(2)))
    assert cadence.counts == (40, 10, 40)


def test_a_speed_ratio_names_a_rank_of_the_world() -> None:
    with pytest.raises(ConfigError, match="no rank 3: the world formed with 3 ranks"):
        settings(speed_ratio="3:4")


def test_who_evaluates_and_how_often_is_what_was_configured() -> None:
    usual = settings().callbacks
    assert (usual.policy, usual.fixed_rank, usual.eval_every) == ("fastest", None, 1)
    found = settings(callback_rank="rank:1", eval_every=5).callbacks
    assert (found.policy, found.fixed_rank, found.eval_every) == ("fixed", 1, 5)
    assert settings(callback_rank="rank:99").callbacks.fixed_rank == 2


def test_partition_ratios_are_one_a_rank_and_of_sync() -> None:
    sync = envelope(CPUS, Mode.CPU_SYNC)
    config = RunConfig(partition_ratios="3,2,1", mode="cpu_sync")
    assert compose_settings(config, sync, CPUS).partition_ratios == (3.0, 2.0, 1.0)
    with pytest.raises(ConfigError, match="2 numbers, and the world formed with 3 ranks"):
        compose_settings(RunConfig(partition_ratios="3,2", mode="cpu_sync"), sync, CPUS)


def test_losses_are_counted_against_the_formed_world() -> None:
    assert settings(CPUS).max_failure is None
    assert settings(CPUS, max_failure="2").max_failure == 2
    assert settings(CPUS, max_failure="50%").max_failure == 2  # 1.5 of three ranks, rounded up


def test_saves_by_the_clock_and_by_passes_may_be_off() -> None:
    found = settings(CPUS, checkpoint_every_s=0)
    assert (found.checkpoint_every_s, found.checkpoint_every_epochs) == (None, None)
    found = settings(CPUS, checkpoint_every_s=60, checkpoint_every_epochs=5)
    assert (found.checkpoint_every_s, found.checkpoint_every_epochs) == (60.0, 5)
