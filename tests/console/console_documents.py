"""Status documents and views for tests of the console's panels: by hand, and at random."""

import math
from collections.abc import Callable
from random import Random
from typing import Any, TypeVar

from flodl_console.view.fold import fold
from flodl_console.view.model import ConsoleView, initial
from flodl_console.view.records import (
    DocumentArrived,
    EventsArrived,
    SourceKind,
    SourceOpened,
    WindowsArrived,
)
from flodl_core.ids import ClusterPhase, RankPhase
from flodl_core.telemetry.records import (
    EventKind,
    EventPage,
    EventRecord,
    WindowPage,
    WindowRecord,
)
from flodl_core.telemetry.state import (
    AlertState,
    CheckpointState,
    ElcheState,
    EndState,
    JoinSettings,
    MemberState,
    RankState,
    ReduceState,
    RefusalState,
    ResourceState,
    RunState,
    StateDocument,
    TrainingState,
    WaitState,
)

ValueT = TypeVar("ValueT")


def run_state(**fields: object) -> RunState:
    usual = {
        "id": "0123456789abcdef",
        "name": "digits",
        "mode": "cpu_cadence",
        "mode_reason": "two hosts without a common NCCL",
        "started_at": "2026-01-01T00:00:00Z",
        "uptime_s": 600.0,
    }
    return RunState.model_validate(usual | fields)


def document(**fields: object) -> StateDocument:
    """A document in phase waiting with nobody in, changed by `fields`."""
    usual: dict[str, object] = {
        "run": run_state(),
        "phase": ClusterPhase.WAITING,
        "joined_ranks": 0,
        "joined_hosts": 0,
        "min_rank_start": 2,
        "start_mode": "auto",
    }
    return StateDocument.model_validate(usual | fields)


def rank(number: int, host: str = "red", **fields: object) -> RankState:
    usual: dict[str, object] = {
        "rank": number,
        "host": host,
        "device": f"cuda:{number}",
        "state": RankPhase.TRAINING,
        "ms_per_batch": 5.0,
        "heartbeat_age_s": 0.4,
        "heartbeat_ceiling_s": 30.0,
    }
    return RankState.model_validate(usual | fields)


def member(host: str, *ranks: int, **fields: object) -> MemberState:
    usual: dict[str, object] = {
        "host": host,
        "address": "10.0.0.5",
        "ranks": ranks,
        "local_devices": tuple(f"cuda:{place}" for place in range(len(ranks))),
        "joined_at_s": 3.0,
    }
    return MemberState.model_validate(usual | fields)


def training(*ranks: RankState, **fields: object) -> StateDocument:
    """A document in phase training with these ranks, idle, changed by `fields`."""
    shown = ranks or (rank(0), rank(1), rank(2, "blue"), rank(3, "blue"))
    hosts = tuple(dict.fromkeys(one.host for one in shown))
    usual: dict[str, object] = {
        "phase": ClusterPhase.TRAINING,
        "ranks": shown,
        "joined_ranks": len(shown),
        "joined_hosts": len(hosts),
        "members": tuple(
            member(host, *(one.rank for one in shown if one.host == host)) for host in hosts
        ),
        "reduce": ReduceState(state="idle", backend="cpu", cycle=7, version=7),
    }
    return document(**(usual | fields))


def window(seq: int, **fields: object) -> WindowRecord:
    usual: dict[str, object] = {
        "seq": seq,
        "at": "2026-01-01T00:00:01Z",
        "uptime_s": float(seq),
        "cycle": seq,
        "version": seq,
        "epoch": 0,
        "global_step": seq,
        "outcome": "committed",
        "samples_done": seq,
        "samples_total": 100,
    }
    return WindowRecord.model_validate(usual | fields)


def event(seq: int, **fields: object) -> EventRecord:
    usual: dict[str, object] = {
        "seq": seq,
        "at": f"2026-01-01T00:{seq // 60 % 60:02d}:{seq % 60:02d}Z",
        "uptime_s": float(seq),
        "kind": EventKind.LIFECYCLE,
        "severity": "info",
        "name": "epoch_ended",
        "text": f"epoch {seq} ended",
    }
    return EventRecord.model_validate(usual | fields)


def windows_page(*rows: WindowRecord) -> WindowsArrived:
    newest = rows[-1].seq if rows else 0
    return WindowsArrived(page=WindowPage(oldest_seq=1, newest_seq=newest, records=rows), at_s=0.0)


def events_page(*rows: EventRecord) -> EventsArrived:
    newest = rows[-1].seq if rows else 0
    return EventsArrived(page=EventPage(oldest_seq=1, newest_seq=newest, records=rows), at_s=0.0)


def view_of(
    shown: StateDocument | None,
    *,
    windows: tuple[WindowRecord, ...] = (),
    events: tuple[EventRecord, ...] = (),
    kind: SourceKind = SourceKind.LIVE,
    is_read_only: bool = False,
) -> ConsoleView:
    """A view that has just got these things, at 0 s of its own clock."""
    label = "127.0.0.1:1337"
    view = fold(initial(), SourceOpened(kind=kind, label=label, is_read_only=is_read_only))
    view = fold(view, windows_page(*windows))
    view = fold(view, events_page(*events))
    if shown is not None:
        arrived = DocumentArrived(document=shown, at_s=0.0, size_bytes=2_000, took_ms=1.0)
        view = fold(view, arrived)
    return view


class Wild:
    """Values of every kind that a field can hold, drawn by a seed."""

    NUMBERS = (
        None,
        math.nan,
        math.inf,
        -math.inf,
        0.0,
        -1.0,
        1e-300,
        5e-5,
        0.3,
        1.0,
        29.6,
        999.4,
        999.5,
        12345.6,
        99999.4,
        1e9,
        1e300,
        -1e300,
        1e308,
        -1e308,
    )
    COUNTS = (0, 1, 2, 7, 999, 1000, 9999, 10_000, 123_456, 10**9, 10**30, 10**400)
    TEXTS = (
        "",
        "red",
        "blue",
        "x" * 300,
        "日本語" * 30,
        "\x1b[2J",
        "a\nb",
        "🙂 e\u0301",
        "12345" * 20,
        "it is lost",
        "two words",
        "rank_lost",
        "\u202e",
        "1.5 / 30 s, then 123456789 more",
        "ﾠ\u3164",
    )
    INSTANTS = ("", "?", "2026-01-01T00:01:02Z", "2026-01-01T00:01:02", "T99:99:99")

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def number(self) -> float | None:
        some = self.random.choice((self.random.uniform(0, 400), self.random.random()))
        return self.random.choice((*self.NUMBERS, some, some, some))

    def plain(self) -> float:
        number = self.number()
        return 3.5 if number is None else number

    def count(self) -> int:
        return self.random.choice((*self.COUNTS, self.random.randrange(300)))

    def text(self) -> str:
        odd = "".join(chr(self.random.randrange(0x20, 0xD7FF)) for _ in range(9))
        return self.random.choice((*self.TEXTS, odd))

    def instant(self) -> str:
        return self.random.choice(self.INSTANTS)

    def flag(self) -> bool:
        return self.random.random() < 0.5

    def one_of(self, *choices: object) -> Any:
        return self.random.choice(choices)

    def maybe(self, make: Callable[[], ValueT]) -> ValueT | None:
        return make() if self.random.random() < 0.75 else None

    def some(self, make: Callable[[], ValueT], *, most: int = 3) -> tuple[ValueT, ...]:
        return tuple(make() for _ in range(self.random.randint(0, most)))

    def rank_number(self) -> int:
        return self.random.randrange(7)


def wild_document(seed: int, *, ranks: int | None = None) -> StateDocument:
    """Any document: None, huge, tiny, unreadable and empty values in every field.

    Args:
        seed: the same one gives the same document.
        ranks: how many; a few if None.
    """
    wild = Wild(seed)
    how_many = wild.one_of(0, 1, 2, 5) if ranks is None else ranks
    return StateDocument(
        run=RunState(
            id=wild.text(),
            name=wild.text(),
            mode=wild.text(),
            mode_reason=wild.text(),
            started_at=wild.instant(),
            uptime_s=wild.plain(),
            port=wild.maybe(wild.count),
            pid=wild.maybe(wild.count),
            run_dir=wild.maybe(wild.text),
        ),
        phase=wild.one_of(*ClusterPhase),
        joined_ranks=wild.count(),
        joined_hosts=wild.count(),
        min_rank_start=wild.count(),
        target_ranks=wild.maybe(wild.count),
        window_remaining_s=wild.number(),
        cap_remaining_s=wild.number(),
        start_mode=wild.one_of("auto", "manual", "hybrid", "?"),
        start_armed=wild.flag(),
        expected_hosts=wild.some(wild.text),
        refusals=wild.count(),
        last_refusal=wild.maybe(wild.text),
        recent_refusals=wild.some(lambda: _wild_refusal(wild)),
        join=wild.maybe(lambda: _wild_join(wild)),
        newest_window_seq=wild.count(),
        members=wild.some(lambda: _wild_member(wild)),
        training=wild.maybe(lambda: _wild_training(wild)),
        elche=wild.maybe(lambda: _wild_elche(wild)),
        reduce=wild.maybe(lambda: _wild_reduce(wild)),
        ranks=tuple(_wild_rank(wild, number) for number in range(how_many)),
        waits=wild.some(lambda: _wild_wait(wild)),
        alerts=wild.some(lambda: _wild_alert(wild)),
        checkpoint=wild.maybe(lambda: _wild_checkpoint(wild)),
        report=wild.maybe(wild.text),
        end=wild.maybe(lambda: _wild_end(wild)) if wild.flag() else None,
    )


def _wild_refusal(wild: Wild) -> RefusalState:
    return RefusalState(
        host=wild.text(),
        address=wild.text(),
        reason=wild.text(),
        fix=wild.text(),
        at=wild.instant(),
    )


def _wild_join(wild: Wild) -> JoinSettings:
    return JoinSettings(
        window_s=wild.plain(),
        cap_s=wild.plain(),
        line=wild.maybe(wild.text),
        is_open=wild.flag(),
    )


def _wild_member(wild: Wild) -> MemberState:
    return MemberState(
        host=wild.text(),
        address=wild.one_of(wild.text(), "127.0.0.1:9", "[::1]:9", "10.0.0.1", "::1"),
        ranks=wild.some(wild.rank_number),
        local_devices=wild.some(wild.text),
        gpus=wild.some(wild.text),
        torch_variant=wild.text(),
        nccl_version=wild.maybe(wild.text),
        joined_at_s=wild.plain(),
    )


def _wild_training(wild: Wild) -> TrainingState:
    return TrainingState(
        epoch=wild.count(),
        epochs=wild.count(),
        global_step=wild.count(),
        samples_done=wild.count(),
        samples_total=wild.count(),
        samples_dropped=wild.count(),
        loss=wild.number(),
        throughput=wild.number(),
        ideal_throughput=wild.number(),
        eta_s=wild.number(),
        metric=wild.number(),
        metric_name=wild.maybe(wild.text),
    )


def _wild_elche(wild: Wild) -> ElcheState:
    return ElcheState(
        phase=wild.one_of("probe", "warmup", "stable", "mature", "inapplicable", "?"),
        anchor=wild.count(),
        anchor_rank=wild.maybe(wild.rank_number),
        batch_counts=wild.some(wild.count, most=6),
        overhead=wild.number(),
        overhead_target=wild.number(),
        window_cap_binding=wild.flag(),
        growth_enabled=wild.flag(),
        guard=wild.text(),
        last_verdict=wild.maybe(wild.text),
        reason=wild.text(),
    )


def _wild_reduce(wild: Wild) -> ReduceState:
    return ReduceState(
        state=wild.one_of("idle", "pending"),
        backend=wild.text(),
        cycle=wild.count(),
        version=wild.count(),
        pending_s=wild.number(),
        stall_ceiling_s=wild.number(),
        last_sync_ms=wild.number(),
        last_outcome=wild.maybe(wild.text),
        bytes=wild.count(),
    )


def _wild_rank(wild: Wild, number: int) -> RankState:
    return RankState(
        rank=number,
        host=wild.text(),
        device=wild.text(),
        gpu=wild.one_of(None, "H200"),
        cause=wild.text(),
        state=wild.one_of(*RankPhase),
        phase=wild.maybe(wild.text),
        batch_count=wild.count(),
        planned_batches=wild.maybe(wild.count),
        steps_in_window=wild.count(),
        ms_per_batch=wild.number(),
        samples=wild.count(),
        share=wild.number(),
        weight=wild.number(),
        throughput=wild.number(),
        loss=wild.number(),
        divergence=wild.number(),
        heartbeat_age_s=wild.number(),
        heartbeat_ceiling_s=wild.number(),
        progress_age_s=wild.number(),
        progress_ceiling_s=wild.number(),
        throttled=wild.flag(),
        resources=wild.maybe(lambda: _wild_resources(wild)),
    )


def _wild_resources(wild: Wild) -> ResourceState:
    return ResourceState(
        cpu_percent=wild.number(),
        ram_used_bytes=wild.maybe(wild.count),
        gpu_percent=wild.number(),
        vram_used_bytes=wild.maybe(wild.count),
        vram_total_bytes=wild.maybe(wild.count),
    )


def _wild_wait(wild: Wild) -> WaitState:
    return WaitState(
        rank=wild.maybe(wild.rank_number),
        host=wild.maybe(wild.text),
        phase=wild.text(),
        age_s=wild.plain(),
        ceiling_s=wild.number(),
        outcome=wild.text(),
    )


def _wild_alert(wild: Wild) -> AlertState:
    return AlertState(
        severity=wild.one_of("critical", "warn", "info", "?"),
        alert_class=wild.text(),
        path=wild.text(),
        detail=wild.text(),
        count=wild.count(),
        at=wild.instant(),
        uptime_s=wild.number(),
    )


def _wild_checkpoint(wild: Wild) -> CheckpointState:
    return CheckpointState(
        path=wild.maybe(wild.text),
        version=wild.maybe(wild.count),
        at=wild.maybe(wild.instant),
        uptime_s=wild.number(),
        saving=wild.flag(),
        last_error=wild.maybe(wild.text),
    )


def _wild_end(wild: Wild) -> EndState:
    return EndState(
        exit_code=wild.one_of(0, 1, 2, 3, 4, 5, 130, 77), reason=wild.text(), detail=wild.text()
    )


def wild_windows(seed: int) -> tuple[WindowRecord, ...]:
    """Windows with any numbers, in order of their own sequence."""
    wild = Wild(seed)
    return tuple(
        WindowRecord(
            seq=place + 1,
            at=wild.instant(),
            uptime_s=wild.one_of(float(place), wild.plain()),
            cycle=wild.count(),
            version=wild.count(),
            epoch=wild.count(),
            global_step=wild.count(),
            outcome=wild.text(),
            samples_done=wild.count(),
            samples_total=wild.count(),
            loss=wild.number(),
            throughput=wild.number(),
            ideal_throughput=wild.number(),
            window_ms=wild.number(),
            sync_ms=wild.number(),
            batch_counts=wild.some(wild.count, most=5),
            ms_per_batch=wild.some(wild.number, most=5),
            weights=wild.some(wild.number, most=5),
            divergences=wild.some(wild.number, most=5),
        )
        for place in range(wild.random.randint(0, 12))
    )


def wild_events(seed: int) -> tuple[EventRecord, ...]:
    """Events with any texts and causes."""
    wild = Wild(seed)
    return tuple(
        EventRecord(
            seq=place + 1,
            at=wild.instant(),
            uptime_s=wild.plain(),
            kind=wild.one_of(*EventKind),
            severity=wild.one_of("info", "warn", "critical", "?"),
            name=wild.one_of("stop", wild.text()),
            path=wild.text(),
            rank=wild.maybe(wild.rank_number),
            host=wild.maybe(wild.text),
            text=wild.text(),
            fix=wild.text(),
            who=wild.maybe(wild.text),
            count=wild.count(),
            cause_seq=wild.maybe(wild.rank_number),
        )
        for place in range(wild.random.randint(0, 6))
    )
