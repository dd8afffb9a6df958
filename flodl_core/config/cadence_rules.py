"""Settings of the cadence that are small texts of their own, and what they must not meet.

What it is: the forms of `guard`, `speed_ratio` and `callback_rank`, read and refused with
their fix, and the hints that exclude each other.
What it is not: what they do; the launcher fills the scheduler's settings in from here.
Who drives it: `schema` when it builds the table, the launcher when a world has formed.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flodl_core.config.rules import GIVEN
from flodl_core.config.values import AUTO
from flodl_core.errors import ConfigError
from flodl_core.ids import CallbackPolicy, GuardKind, Mode, Rank

_RATIO: Final = re.compile(r"(?P<rank>\d{1,6}):(?P<ratio>[0-9.eE+-]{1,32})")
_FIXED: Final = re.compile(r"rank:(?P<rank>\d{1,6})")
_MOST_RATIO: Final = 64.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedRatio:
    """A slow rank, and how many times as fast the others are."""

    rank: Rank
    ratio: float


def read_speed_ratio(text: str | None) -> SpeedRatio | None:
    """Return what `RANK:R` says.

    Raises:
        ConfigError: it is of another form, or R is not from 1 to 64.
    """
    if text is None:
        return None
    found = _RATIO.fullmatch(text.strip())
    try:
        ratio = float(found["ratio"]) if found else math.nan
    except ValueError:
        ratio = math.nan
    if found is None or not 1 <= ratio <= _MOST_RATIO:
        raise ConfigError(
            "speed_ratio",
            text,
            "is not RANK:R, the number of the slow rank and how many times as fast the others "
            f"are, 1 to {_MOST_RATIO:g}",
            source=GIVEN,
            fix="give for example 2:12, if a batch takes rank 2 twelve times as long",
        )
    return SpeedRatio(rank=Rank(int(found["rank"])), ratio=ratio)


def read_callback_rank(text: str) -> tuple[CallbackPolicy, Rank | None]:
    """Return who runs the callbacks: a policy, and the rank where one is fixed.

    Raises:
        ConfigError: it is none of fastest, sticky and rank:N.
    """
    word = text.strip().lower()
    if (found := _FIXED.fullmatch(word)) is not None:
        return CallbackPolicy.FIXED, Rank(int(found["rank"]))
    if word in (CallbackPolicy.FASTEST, CallbackPolicy.STICKY):
        return CallbackPolicy(word), None
    raise ConfigError(
        "callback_rank",
        text,
        "is not fastest, sticky or rank:N",
        source=GIVEN,
        fix="give fastest, sticky (keeps the rank that was chosen first) or, say, rank:0",
    )


def review_guard(text: str) -> None:
    """Refuse the name of a guard that can be none.

    Raises:
        ConfigError: it is no guard of ours and names no attribute.
    """
    before, colon, attribute = text.rpartition(":")
    if text in set(GuardKind) or (colon and before and attribute.isidentifier()):
        return
    raise ConfigError(
        "guard",
        text,
        "is not level, growth, none, package.module:attribute or path/file.py:attribute",
        source=GIVEN,
        fix="give one of those",
    )


def review_hints(
    *,
    mode: str,
    pin_counts: bool,
    speed_ratio: bool,
    partition_ratios: bool,
    for_async: Sequence[str] = (),
) -> None:
    """Refuse hints that have nothing to say in this mode, or that another setting overrules.

    Args:
        mode: asked for, or resolved; while it is `auto` nothing is refused for it.
        pin_counts: whether it is given.
        speed_ratio: likewise.
        partition_ratios: likewise.
        for_async: names of what is given and only cpu_async has a use for.

    Raises:
        ConfigError: naming the hint.
    """
    if partition_ratios and mode not in (AUTO, Mode.CPU_SYNC):
        raise ConfigError(
            "partition_ratios",
            "given",
            f"is for cpu_sync, and the mode is {mode}: there the counts follow the speeds",
            source=GIVEN,
            fix="give --mode cpu_sync, or leave partition_ratios out",
        )
    if for_async and mode not in (AUTO, Mode.CPU_ASYNC):
        raise ConfigError(
            for_async[0],
            "given",
            f"is for cpu_async, and the mode is {mode}: there nobody trains during an average",
            source=GIVEN,
            fix=f"give --mode cpu_async, or leave {for_async[0]} out",
        )
    if speed_ratio and (pin_counts or mode == Mode.CPU_SYNC):
        why = "pin_counts fixes the counts" if pin_counts else "in cpu_sync every count is 1"
        raise ConfigError(
            "speed_ratio",
            "given",
            f"is a guess at the first counts of cadence, and {why}",
            source=GIVEN,
            fix="leave speed_ratio out",
        )
