"""Status documents for tests: small builders, every value chosen by hand."""

from typing import Any

from flodl_core.ids import ClusterPhase, RankPhase
from flodl_core.telemetry.state import (
    AlertState,
    CheckpointState,
    EpochState,
    MemberState,
    RankState,
    ReduceState,
    RunState,
    StateDocument,
    TrainingState,
    WaitState,
)


def run_state(**given: Any) -> RunState:
    return RunState(
        **{
            "id": "00112233445566aa",
            "name": "charlm",
            "mode": "cpu_sync",
            "mode_reason": "no rank has a GPU",
            "started_at": "2031-01-02T03:04:05Z",
            "uptime_s": 0.0,
            "port": 1337,
            **given,
        }
    )


def document(phase: str = "waiting", at_s: float = 0.0, **given: Any) -> StateDocument:
    return StateDocument(
        **{
            "run": run_state(uptime_s=at_s, world_size=given.pop("world_size", None)),
            "phase": ClusterPhase(phase),
            "joined_ranks": 0,
            "joined_hosts": 0,
            "min_rank_start": 4,
            "start_mode": "auto",
            **given,
        }
    )


def member(host: str = "red", ranks: tuple[int, ...] = (0, 1)) -> MemberState:
    return MemberState(
        host=host,
        address="127.0.0.1",
        ranks=ranks,
        local_devices=tuple(f"cpu:{i}" for i in range(len(ranks))),
        joined_at_s=0.5,
    )


def training(**given: Any) -> TrainingState:
    return TrainingState(
        **{
            "epoch": 0,
            "epochs": 3,
            "global_step": 40,
            "samples_done": 640,
            "samples_total": 6000,
            "syncs": 10,
            "loss": 2.5,
            "throughput": 412.4,
            "eta_s": 80.0,
            **given,
        }
    )


def reduce_state(**given: Any) -> ReduceState:
    return ReduceState(
        **{
            "state": "idle",
            "backend": "cpu",
            "cycle": 11,
            "version": 10,
            "last_sync_ms": 14.25,
            "last_outcome": "committed",
            "bytes": 1_402_368,
            **given,
        }
    )


def rank_state(rank: int = 0, state: str = "training", **given: Any) -> RankState:
    return RankState(
        **{
            "rank": rank,
            "host": "red" if rank < 2 else "blue",
            "device": f"cpu:{rank % 2}",
            "state": RankPhase(state),
            "batch_count": 10,
            "ms_per_batch": 60.0,
            "samples": 160,
            "share": 0.25,
            "weight": 0.25,
            "loss": 2.5,
            "heartbeat_age_s": 0.4,
            "heartbeat_ceiling_s": 30.0,
            **given,
        }
    )


def epoch_state(epoch: int = 0, **given: Any) -> EpochState:
    return EpochState(
        **{
            "epoch": epoch,
            "pass_index": epoch,
            "loss": 2.25,
            "samples": 2000,
            "duration_s": 31.0,
            "syncs": 125,
            **given,
        }
    )


def alert(cls: str = "rank_lost", at: str = "2031-01-02T03:05:00Z", **given: Any) -> AlertState:
    return AlertState(
        **{
            "severity": "critical",
            "alert_class": cls,
            "path": "root/blue/rank3",
            "detail": "its process ended with signal 9",
            "at": at,
            **given,
        }
    )


def wait(age_s: float, **given: Any) -> WaitState:
    return WaitState(
        **{
            "rank": 3,
            "host": "blue",
            "phase": "reducing",
            "age_s": age_s,
            "ceiling_s": 300.0,
            "outcome": "the run saves and stops",
            **given,
        }
    )


def bundle_state(version: int = 10) -> CheckpointState:
    return CheckpointState(path="ck/consensus", version=version, epoch=1, at="2031-01-02T03:06:00Z")


def in_training(at_s: float = 10.0, **given: Any) -> StateDocument:
    return document(
        "training",
        at_s,
        **{
            "joined_ranks": 4,
            "joined_hosts": 2,
            "world_size": 4,
            "members": (member(), member("blue", (2, 3))),
            "training": training(),
            "reduce": reduce_state(),
            "ranks": tuple(rank_state(i) for i in range(4)),
            **given,
        },
    )
