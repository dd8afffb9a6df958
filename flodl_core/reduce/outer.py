"""Outer optimizers: what a cohort makes of an average, beyond adopting it.

With prev the last committed parameters, cons the average that was just formed,
g = prev − cons the cohort's step seen as a gradient, and v a velocity that begins at 0:

| rule               | velocity   | new parameters           | source                          |
|--------------------|------------|--------------------------|---------------------------------|
| `OuterAvg`         | none       | cons                     | local SGD, federated averaging  |
| `SlowMomentum`     | v ← μv + g | prev − lr·v              | SlowMo, arXiv 1910.00643        |
| `NesterovMomentum` | v ← μv + g | prev − lr·(μv + g)       | DiLoCo, arXiv 2311.08105        |

Everything is f32 and per element, so a bucket can be stepped as soon as it is formed.
Where differences from prev travel in place of values, the difference cons − prev goes in
and new − prev comes out, with the same velocity.

What it is: the rules and their arithmetic on arrays, in pieces that stay in a cache.
What it is not: a place where velocity is kept, or where it is decided which round is
stepped and when a velocity counts (`planes.velocity`).
Who drives it: the root's folding thread; whoever averages without a root uses the same
formulas.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Final, TypeAlias

import numpy as np

from flodl_core.errors import LocalProtocolError
from flodl_core.ids import OuterKind
from flodl_core.messages.job import OuterSpec
from flodl_core.reduce.narrow import F32

TYPICAL_LR: Final = {OuterKind.SLOWMO: 1.0, OuterKind.NESTEROV: 0.7}
"""Learning rates of the outer step as their papers recommend them."""

TYPICAL_MOMENTUM: Final = 0.9

MAX_LR: Final = 10.0

STEP_VALUES: Final = 16 * 1024
"""Values stepped at a time: six arrays of them stay in a core's own cache."""


@dataclass(frozen=True, slots=True)
class OuterAvg:
    """The average is adopted as it is."""

    kind: ClassVar[OuterKind] = OuterKind.AVG
    has_velocity: ClassVar[bool] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowMomentum:
    """Heavy-ball momentum over averages.

    Attributes:
        lr: of the outer step, > 0. With 1, and a momentum of 0, it is the plain average.
        momentum: μ, at least 0 and below 1.
    """

    kind: ClassVar[OuterKind] = OuterKind.SLOWMO
    has_velocity: ClassVar[bool] = True
    lr: float = TYPICAL_LR[OuterKind.SLOWMO]
    momentum: float = TYPICAL_MOMENTUM

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check_numbers(self.lr, self.momentum)


@dataclass(frozen=True, slots=True, kw_only=True)
class NesterovMomentum:
    """Nesterov's momentum over averages (DiLoCo).

    Attributes:
        lr: of the outer step, > 0.
        momentum: μ, at least 0 and below 1.
    """

    kind: ClassVar[OuterKind] = OuterKind.NESTEROV
    has_velocity: ClassVar[bool] = True
    lr: float = TYPICAL_LR[OuterKind.NESTEROV]
    momentum: float = TYPICAL_MOMENTUM

    def __post_init__(self) -> None:
        """Check the numbers."""
        _check_numbers(self.lr, self.momentum)


OuterMomentum: TypeAlias = SlowMomentum | NesterovMomentum
OuterRule: TypeAlias = OuterAvg | SlowMomentum | NesterovMomentum


def outer_rule(kind: OuterKind, *, lr: float | None, momentum: float | None) -> OuterRule:
    """Return the rule of that name; None takes the typical number.

    Raises:
        LocalProtocolError: a number is out of its range.
    """
    if kind is OuterKind.AVG:
        return OuterAvg()
    rule = SlowMomentum if kind is OuterKind.SLOWMO else NesterovMomentum
    return rule(
        lr=TYPICAL_LR[kind] if lr is None else lr,
        momentum=TYPICAL_MOMENTUM if momentum is None else momentum,
    )


def rule_of(spec: OuterSpec | None) -> OuterRule:
    """Return the rule of a run; None is the plain average."""
    if spec is None:
        return OuterAvg()
    return outer_rule(spec.kind, lr=spec.lr, momentum=spec.momentum)


class OuterStep:
    """The arithmetic of one rule, with its scratch; it belongs to one thread.

    All arrays are f32, one-dimensional, contiguous and of equal length per call. `before`
    is only read and `after` overwritten; neither shares memory with anything else.
    """

    def __init__(self, rule: OuterMomentum) -> None:
        self._looks_ahead = isinstance(rule, NesterovMomentum)
        self._lr = np.float32(rule.lr)
        self._momentum = np.float32(rule.momentum)
        self._gradient: F32 = np.empty(STEP_VALUES, np.float32)
        self._descent: F32 = np.empty(STEP_VALUES, np.float32)

    def step(self, out: F32, *, previous: F32, before: F32, after: F32) -> bool:
        """Turn an average into the stepped parameters.

        Args:
            out: the average; overwritten with what is adopted in its place.
            previous: the last committed parameters; only read.
            before: the velocity so far.
            after: gets the new velocity.

        Returns:
            Whether all results are finite. If not, `out` and `after` hold no values that
            could be used.
        """
        return self._run(out, previous, before=before, after=after)

    def step_difference(self, out: F32, *, before: F32, after: F32) -> bool:
        """Turn average − previous into stepped − previous; otherwise as `step`."""
        return self._run(out, None, before=before, after=after)

    def _run(self, out: F32, previous: F32 | None, *, before: F32, after: F32) -> bool:
        lengths = {
            out.size,
            before.size,
            after.size,
            out.size if previous is None else previous.size,
        }
        if len(lengths) > 1:
            raise LocalProtocolError(
                f"an outer step was given arrays of {sorted(lengths)} values, expected one length",
                fix="report this: the geometry and the velocity do not belong together",
            )
        with np.errstate(all="ignore"):
            for start in range(0, out.size, STEP_VALUES):
                piece = slice(start, start + STEP_VALUES)
                old = None if previous is None else previous[piece]
                if not self._step_piece(out[piece], old, before[piece], after[piece]):
                    return False
        return True

    def _step_piece(self, out: F32, previous: F32 | None, before: F32, after: F32) -> bool:
        gradient, descent = self._gradient[: out.size], self._descent[: out.size]
        if previous is None:
            np.negative(out, out=gradient)
        else:
            np.subtract(previous, out, out=gradient)
        np.multiply(before, self._momentum, out=after)
        np.add(after, gradient, out=after)
        if self._looks_ahead:
            np.multiply(after, self._momentum, out=descent)
            np.add(descent, gradient, out=descent)
            np.multiply(descent, self._lr, out=descent)
        else:
            np.multiply(after, self._lr, out=descent)
        if previous is None:
            np.negative(descent, out=out)
        else:
            np.subtract(previous, descent, out=out)
        return all_finite(after) and all_finite(out)


def all_finite(values: F32) -> bool:
    """Return whether no value is NaN or infinite: neither the largest nor the smallest one is."""
    if values.size == 0:
        return True
    least, most = float(np.minimum.reduce(values)), float(np.maximum.reduce(values))
    return math.isfinite(least) and math.isfinite(most)


def _check_numbers(lr: float, momentum: float) -> None:
    if not 0.0 < lr <= MAX_LR:
        raise LocalProtocolError(
            f"the outer learning rate is {lr}, expected a number above 0 and at most {MAX_LR:g}"
        )
    if not 0.0 <= momentum < 1.0:
        raise LocalProtocolError(
            f"the outer momentum is {momentum}, expected a number of at least 0 and below 1"
        )
