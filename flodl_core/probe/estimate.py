"""What a job would gain from several devices, from how fast each is alone.

    t_i   a batch of device i alone, B_i its samples; t_slow the longest
    solo  Σ B_i / t_i, what nothing can exceed; alone the largest B_i / t_i
    DDP   Σ B_i / (t_slow + r), r = 2 (N − 1)/N · bytes / link: each step waits for the
          slowest and for one ring all-reduce (Patarasuk and Yuan, Bandwidth optimal
          all-reduce algorithms for clusters of workstations, 2009)
    sync  Σ B_i / (t_slow + s), s = fixed + (2 N + 1) · bytes / copy: each rank's values
          are read once and the average is written once for all and once to each
    cadence  Σ c_i B_i / (max c_i t_i + s): c_slow is the first anchor at which
          s / (c_slow · t_slow + s) is within the overhead target, the others' counts
          follow from their speed, all within one pass over the data
    async    as cadence, with the two copies that a rank itself makes instead of s
    nccl     as sync and cadence, where every rank has a GPU of this machine, with
          s = fixed + ring + 4 · bytes / memory: one all-reduce among the GPUs, a look at
          each value before it and an adoption that reads two and writes one
    link     of a ring: copies from GPU to GPU where there are such, else of the machine

What it is: pure rules on numbers; the counts are those of the real scheduler.
What it is not: a measurement; the costs of averaging are a model, and its terms are shown.
Who drives it: `flodl probe`.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from flodl_core.elche.counts import bounded_counts, wanted_count
from flodl_core.ids import Mode, Rank
from flodl_core.probe.facts import SoloRate
from flodl_core.units import Seconds

FIXED_S: Final[Seconds] = 0.005
"""Of one averaging, whatever the model: messages, and the wait for the next look."""
NCCL_PASSES: Final = 4
"""Of the model through a GPU's memory: one look, then two reads and a write."""
_PAIR: Final = 2
WORTH: Final = 1.05
"""Times the fastest device alone, below which several devices are not worth it."""
DDP: Final = "DDP"
ALONE: Final = "fastest alone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The settings that the estimate depends on."""

    overhead_target: float
    anchor: int
    """The slowest rank's batches in a window, at first."""
    max_anchor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedRate:
    """What one way of training would do."""

    name: str
    """A mode, DDP, or the fastest device alone."""
    samples_per_s: float
    share: float = 0.0
    """Of the sum of what the devices do alone."""
    counts: tuple[int, ...] = ()
    """Batches of each rank in a window; empty where each does one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Every way beside each other, and whether more than one device is worth it."""

    ways: tuple[ExpectedRate, ...]
    sum_samples_per_s: float
    averaging_s: Seconds
    """Of one averaging on the CPU plane, by the model."""
    nccl_averaging_s: Seconds | None
    """Of one on NCCL, likewise; None where the ranks cannot average there."""
    best: str
    """The fastest of our modes."""
    is_worth_it: bool
    """Whether it beats the fastest device alone by more than a little."""
    verdict: str


def estimate(rates: Sequence[SoloRate], plan: Plan, *, has_nccl: bool = False) -> Estimate:
    """Return what each way of training would do with these devices.

    Args:
        rates: one a rank, in the order of ranks; at least one.
        plan: the settings that matter.
        has_nccl: whether what the modes on NCCL need is installed.
    """
    total = sum(rate.samples_per_s for rate in rates)
    fastest = max(rates, key=lambda rate: rate.samples_per_s)
    average_s = averaging_s(rates)
    nccl_s = nccl_averaging_s(rates) if has_nccl else None
    modes: list[ExpectedRate] = []
    if len(rates) > 1:
        copies_s = 2 * rates[0].model_bytes / rates[0].copy_bytes_per_s
        modes = [
            _sync(rates, average_s, Mode.CPU_SYNC),
            _windows(rates, plan, average_s, Mode.CPU_CADENCE),
            _windows(rates, plan, average_s, Mode.CPU_ASYNC, cost_s=copies_s),
        ]
    if nccl_s is not None:
        modes += [
            _sync(rates, nccl_s, Mode.NCCL_SYNC),
            _windows(rates, plan, nccl_s, Mode.NCCL_CADENCE),
        ]
    alone = ExpectedRate(name=f"{ALONE} ({fastest.device})", samples_per_s=fastest.samples_per_s)
    ways = [*modes, *([_ddp(rates)] if len(rates) > 1 else []), alone]
    best = max(modes or [alone], key=lambda way: way.samples_per_s)
    gain = best.samples_per_s / alone.samples_per_s
    return Estimate(
        ways=tuple(replace(way, share=way.samples_per_s / total) for way in ways),
        sum_samples_per_s=total,
        averaging_s=average_s,
        nccl_averaging_s=nccl_s,
        best=best.name,
        is_worth_it=gain >= WORTH,
        verdict=_verdict(best, alone, gain=gain),
    )


def averaging_s(rates: Sequence[SoloRate]) -> Seconds:
    """Return how long one averaging takes on the CPU plane of one machine, by the model."""
    first = rates[0]
    return FIXED_S + (2 * len(rates) + 1) * first.model_bytes / first.copy_bytes_per_s


def ring_s(rates: Sequence[SoloRate]) -> Seconds:
    """Return how long one ring all-reduce of the model's values takes over the slowest link."""
    n_ranks = len(rates)
    link = min(rate.peer_bytes_per_s or rate.copy_bytes_per_s for rate in rates)
    return 2 * (n_ranks - 1) / n_ranks * rates[0].model_bytes / link


def nccl_averaging_s(rates: Sequence[SoloRate]) -> Seconds | None:
    """Return how long one averaging takes among GPUs, by the model; None if not all are some."""
    memories = [rate.memory_bytes_per_s for rate in rates if rate.memory_bytes_per_s is not None]
    has_peers = all(rate.peer_bytes_per_s is not None for rate in rates)
    devices = {rate.device for rate in rates}
    is_whole = has_peers and len(memories) == len(devices) == len(rates)
    if not is_whole or len(rates) < _PAIR:
        return None
    passes_s = NCCL_PASSES * rates[0].model_bytes / min(memories)
    return FIXED_S + ring_s(rates) + passes_s


def settled_anchor(slow_ms: float, average_s: Seconds, plan: Plan) -> int:
    """Return the slowest rank's batches once averaging keeps within the overhead target.

    Args:
        slow_ms: its batch.
        average_s: one averaging.
        plan: target and bounds.
    """
    target = plan.overhead_target
    needed = average_s * 1e3 * (1 - target) / (target * slow_ms)
    return min(max(plan.anchor, math.ceil(needed)), max(plan.max_anchor, plan.anchor))


def _ddp(rates: Sequence[SoloRate]) -> ExpectedRate:
    step_s = max(rate.batch_ms for rate in rates) / 1e3 + ring_s(rates)
    return ExpectedRate(name=DDP, samples_per_s=_samples(rates) / step_s)


def _sync(rates: Sequence[SoloRate], average_s: Seconds, mode: Mode) -> ExpectedRate:
    step_s = max(rate.batch_ms for rate in rates) / 1e3 + average_s
    return ExpectedRate(name=mode, samples_per_s=_samples(rates) / step_s)


def _windows(
    rates: Sequence[SoloRate],
    plan: Plan,
    average_s: Seconds,
    mode: Mode,
    *,
    cost_s: Seconds | None = None,
) -> ExpectedRate:
    """Return a mode whose windows are of several batches.

    Args:
        rates: one a rank.
        plan: the settings that matter.
        average_s: one averaging, which windows are measured out by.
        mode: its name.
        cost_s: what of it a rank waits for; all of it if None.
    """
    slow = max(range(len(rates)), key=lambda i: rates[i].batch_ms)
    slow_ms = rates[slow].batch_ms
    anchor = settled_anchor(slow_ms, average_s, plan)
    wanted = {Rank(i): wanted_count(anchor, slow_ms, rate.batch_ms) for i, rate in enumerate(rates)}
    pass_batches = rates[0].samples // rates[0].batch_samples
    bounded = bounded_counts(wanted, cap_batches=max(1, pass_batches), max_batch_diff=None)
    counts = tuple(bounded.counts[Rank(i)] for i in range(len(rates)))
    pairs = list(zip(counts, rates, strict=True))
    samples = sum(count * rate.batch_samples for count, rate in pairs)
    window_s = max(count * rate.batch_ms for count, rate in pairs) / 1e3
    spent_s = window_s + (average_s if cost_s is None else cost_s)
    return ExpectedRate(name=mode, samples_per_s=samples / spent_s, counts=counts)


def _samples(rates: Sequence[SoloRate]) -> int:
    return sum(rate.batch_samples for rate in rates)


def _verdict(best: ExpectedRate, alone: ExpectedRate, *, gain: float) -> str:
    if best is alone:
        return "not worth it: there is one device, and nobody to average with"
    said = f"{best.name} is expected at {gain:.2f} times the {alone.name}"
    return f"worth it: {said}" if gain >= WORTH else f"not worth it: {said}; train on that one"
