"""How an agent dials: how often, how far apart, and which failures are worth another try.

The attempt itself is a function that the caller passes in, so this file knows no
socket. Only `TransientJoinError` is retried; a refusal for good, a wrong token
or a peer that is no flodl ends the dialling at once.
"""

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import anyio

from flodl_core.errors import TransientJoinError
from flodl_core.units import Seconds

ATTEMPTS: Final = 60
PAUSE_S: Final = 0.5
SMALLEST_SCALE: Final = 0.1
PERSIST_FIRST_S: Final[Seconds] = 5.0
PERSIST_LONGEST_S: Final[Seconds] = 60.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class DialPolicy:
    """How often to dial and how long to pause between two attempts.

    Raises:
        ValueError: no attempt at all, or a pause that is negative or not finite.
    """

    attempts: int = ATTEMPTS
    pause_s: Seconds = PAUSE_S

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts is {self.attempts}; at least 1 is needed")
        if not (math.isfinite(self.pause_s) and self.pause_s >= 0):
            raise ValueError(f"pause_s is {self.pause_s}; a finite pause of 0 or more is needed")


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedAttempt:
    """One dial that got nowhere, reported before the pause."""

    number: int
    """1 for the first."""
    attempts: int
    pause_s: Seconds
    error: TransientJoinError


def dial_policy(scale: float) -> DialPolicy:
    """Return the policy under `FLODL_NET_TIMEOUT_SCALE`.

    Args:
        scale: finite and at least 0.1; it scales the number of attempts, not
            the pause.
    """
    _require_scale(scale)
    return DialPolicy(attempts=max(1, math.ceil(ATTEMPTS * scale)))


def persist_pause_s(failed: int, scale: float) -> Seconds:
    """Return how long a host that is there for every run pauses before it dials again.

    5, 10, 20, 40, then 60 s, times the scale.

    Args:
        failed: dials in a row that led into no run; 0 after a run, 1 after the first.
        scale: finite and at least 0.1.
    """
    _require_scale(scale)
    doublings = min(max(failed - 1, 0), 10)
    return min(PERSIST_FIRST_S * (1 << doublings), PERSIST_LONGEST_S) * scale


def scaled_deadline_s(base_s: Seconds, scale: float) -> int:
    """Return `base_s` under the scale, in whole seconds, at least one."""
    _require_scale(scale)
    return max(1, math.ceil(base_s * scale))


async def dial(
    attempt: Callable[[], Awaitable[T]],
    policy: DialPolicy,
    *,
    on_failed: Callable[[FailedAttempt], None] | None = None,
) -> T:
    """Call `attempt` until it succeeds, and return what it returned.

    Args:
        attempt: one dial; raises `TransientJoinError` if a later one may succeed.
        policy: how often and how far apart.
        on_failed: told of each failure that another attempt follows.

    Raises:
        TransientJoinError: the last attempt's, when all of them failed.
        FlodlError: any other error of `attempt`, at once.
    """
    for number in range(1, policy.attempts):
        try:
            return await attempt()
        except TransientJoinError as error:
            if on_failed is not None:
                failed = FailedAttempt(
                    number=number, attempts=policy.attempts, pause_s=policy.pause_s, error=error
                )
                on_failed(failed)
        await anyio.sleep(policy.pause_s)
    return await attempt()


def _require_scale(scale: float) -> None:
    if not (math.isfinite(scale) and scale >= SMALLEST_SCALE):
        raise ValueError(f"the net timeout scale is {scale}; it must be finite and at least 0.1")
