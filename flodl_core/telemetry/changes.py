"""What changed between two status documents, as a list of small events.

What it is: a pure comparison. `headless` in all its forms and `status --watch`
tell the same story, because they all tell these changes.
What it is not: a renderer.
Who drives it: `progress` and `live_view`, with each document that they are given.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from flodl_core.ids import ClusterPhase
from flodl_core.telemetry.state import (
    AlertState,
    EpochState,
    MemberState,
    RankState,
    StateDocument,
    WaitState,
)

WAIT_REPEAT_S: Final = 30.0
"""A wait that goes on is told again after so long."""


@dataclass(frozen=True, slots=True)
class RunShown:
    """The first document of a run."""

    document: StateDocument


@dataclass(frozen=True, slots=True)
class PhaseChanged:
    """The run entered a phase."""

    phase: ClusterPhase
    document: StateDocument


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """A host joined, or its ranks were numbered anew."""

    member: MemberState


@dataclass(frozen=True, slots=True)
class MemberGone:
    """A host left before the world formed."""

    member: MemberState


@dataclass(frozen=True, slots=True)
class JoinRefused:
    """Joins were refused since the last document."""

    count: int
    last: str | None


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """An epoch was aggregated."""

    epoch: EpochState
    epochs: int


@dataclass(frozen=True, slots=True)
class EpochEvaluated:
    """The metric of an epoch arrived after the epoch was told."""

    epoch: EpochState
    epochs: int


@dataclass(frozen=True, slots=True)
class RankChanged:
    """A rank was lost, stopped, or came to its end early."""

    rank: RankState


@dataclass(frozen=True, slots=True)
class AlertRaised:
    """An alert was emitted."""

    alert: AlertState


@dataclass(frozen=True, slots=True)
class WaitShown:
    """Somebody has waited over five seconds."""

    wait: WaitState


@dataclass(frozen=True, slots=True)
class BundleSaved:
    """A newer complete bundle lies on disk."""

    path: str
    version: int | None


Change: TypeAlias = (
    RunShown
    | PhaseChanged
    | MemberJoined
    | MemberGone
    | JoinRefused
    | EpochEnded
    | EpochEvaluated
    | RankChanged
    | AlertRaised
    | WaitShown
    | BundleSaved
)

_TOLD_STATES: Final = frozenset({"lost", "stopped", "busy"})


class ChangeReader:
    """Compares each document with the one before it."""

    def __init__(self) -> None:
        self._before: StateDocument | None = None
        self._waits: dict[tuple[int | None, str | None, str], float] = {}

    def read(self, document: StateDocument) -> list[Change]:
        """Return what changed since the last call, in the order in which it is told."""
        before, self._before = self._before, document
        changes: list[Change] = [] if before is not None else [RunShown(document)]
        changes += _membership(before, document)
        if before is None or before.phase != document.phase:
            changes.append(PhaseChanged(document.phase, document))
        changes += _epochs(before, document)
        changes += _ranks(before, document)
        changes += _alerts(before, document)
        changes += self._read_waits(document)
        changes += _bundles(before, document)
        return changes

    def _read_waits(self, document: StateDocument) -> list[Change]:
        told: list[Change] = []
        present = {}
        for wait in document.waits:
            key = (wait.rank, wait.host, wait.phase)
            last = self._waits.get(key)
            if last is None or wait.age_s < last or wait.age_s - last >= WAIT_REPEAT_S:
                told.append(WaitShown(wait))
                last = wait.age_s
            present[key] = last
        self._waits = present
        return told


def _membership(before: StateDocument | None, document: StateDocument) -> list[Change]:
    old = {(one.host, one.ranks): one for one in (before.members if before else ())}
    new = {(one.host, one.ranks): one for one in document.members}
    hosts = {one.host for one in document.members}
    changes: list[Change] = [MemberGone(one) for one in old.values() if one.host not in hosts]
    changes += [MemberJoined(one) for key, one in new.items() if key not in old]
    refused = document.refusals - (before.refusals if before else 0)
    if refused > 0:
        changes.append(JoinRefused(refused, document.last_refusal))
    return changes


def _epochs(before: StateDocument | None, document: StateDocument) -> list[Change]:
    old = {row.epoch: row for row in (before.epochs if before else ())}
    last = max(old, default=-1)
    total = document.training.epochs if document.training else 0
    changes: list[Change] = []
    for row in document.epochs:
        if row.epoch > last:
            changes.append(EpochEnded(row, total))
        elif row.epoch in old and old[row.epoch].metric is None and row.metric is not None:
            changes.append(EpochEvaluated(row, total))
    return changes


def _ranks(before: StateDocument | None, document: StateDocument) -> list[Change]:
    old = {row.rank: row.state for row in (before.ranks if before else ())}
    return [
        RankChanged(row)
        for row in document.ranks
        if row.state in _TOLD_STATES and old.get(row.rank) != row.state
    ]


def _alerts(before: StateDocument | None, document: StateDocument) -> list[Change]:
    old = set(before.alerts) if before else set()
    return [AlertRaised(alert) for alert in document.alerts if alert not in old]


def _bundles(before: StateDocument | None, document: StateDocument) -> list[Change]:
    saved = document.checkpoint
    if saved is None or saved.path is None:
        return []
    old = before.checkpoint if before else None
    if old is not None and (old.path, old.version, old.at) == (saved.path, saved.version, saved.at):
        return []
    return [BundleSaved(saved.path, saved.version)]
