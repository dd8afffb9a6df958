"""Adding and dividing contributions, in f32, in cache-sized pieces.

The three moves of the algebra: scale by the mass at the source, sum through any
number of tiers, divide once. A tier folds with `combine` and no divisor; only the
root passes one. The order of the terms is the order of the sum, so the caller
decides the bits.

Not a place for policy: who is in, with which mass, is decided before. Each call
handles at most `PIECE_VALUES` values at a time, which keeps the working set in the
second-level cache and gives the interpreter lock away in between. A `Fold` owns
kept scratch and belongs to one thread.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from flodl_core.errors import LocalProtocolError

F32: TypeAlias = npt.NDArray[np.float32]
F64: TypeAlias = npt.NDArray[np.float64]

PIECE_VALUES: Final = 64 * 1024
"""Values handled by one call: 256 KiB of f32."""

_SMALLEST_NORMAL: Final = float(np.finfo(np.float32).tiny)
_LARGEST: Final = float(np.finfo(np.float32).max)


class Term(NamedTuple):
    """One contribution to a sum: `mass` times `values`; a subtotal has mass 1."""

    values: F32
    mass: float


def _pieces(size: int) -> Iterator[slice]:
    for start in range(0, size, PIECE_VALUES):
        yield slice(start, min(start + PIECE_VALUES, size))


def _is_plain(mass: float) -> bool:
    """Whether rounding this mass to f32 costs at most half a unit in the last place."""
    return _SMALLEST_NORMAL <= mass <= _LARGEST


class Fold:
    """The arithmetic of one folding thread, with its scratch.

    All arrays are one-dimensional, contiguous f32 of equal length per call.
    Masses are finite and > 0; a contribution of zero mass is left out by the caller,
    so that nothing of it, not even NaN, reaches the sum.
    """

    def __init__(self) -> None:
        self._scratch: F32 = np.empty(PIECE_VALUES, np.float32)
        self._wide: F64 | None = None

    def scale_into(self, acc: F32, x: F32, mass: float) -> None:
        """Set acc = mass · x."""
        self.combine(acc, (Term(x, mass),))

    def add_scaled(self, acc: F32, x: F32, mass: float) -> None:
        """Add mass · x to acc."""
        self.combine(acc, (Term(acc, 1.0), Term(x, mass)))

    def add(self, acc: F32, x: F32) -> None:
        """Add x to acc."""
        self.combine(acc, (Term(acc, 1.0), Term(x, 1.0)))

    def divide_once(self, acc: F32, mass: float) -> None:
        """Divide acc by the summed mass of exactly the contributions in it."""
        self.combine(acc, (Term(acc, 1.0),), divisor=mass)

    def combine(self, out: F32, terms: Sequence[Term], *, divisor: float = 1.0) -> None:
        """Set out = (Σ mass · values, in the order given) / divisor.

        Args:
            out: f32, overwritten. It may be the values of the first term.
            terms: at least one.
            divisor: finite, > 0; 1 leaves the sum as it is.

        Raises:
            LocalProtocolError: no term, lengths that differ, or a mass outside (0, f32 max].
        """
        _check(out, terms, divisor)
        with np.errstate(all="ignore"):
            for piece in _pieces(out.size):
                acc = out[piece]
                for values, mass in terms[self._begin(acc, terms, piece) :]:
                    self._accumulate(acc, values[piece], mass)
                self._divide(acc, divisor)

    def _begin(self, acc: F32, terms: Sequence[Term], piece: slice) -> int:
        """Set acc to the first term, or in one pass to the first two; return how many."""
        first = terms[0]
        if len(terms) > 1 and first.mass == terms[1].mass == 1.0:
            np.add(first.values[piece], terms[1].values[piece], out=acc)
            return 2
        self._scale(acc, first.values[piece], first.mass)
        return 1

    def _scale(self, acc: F32, x: F32, mass: float) -> None:
        if mass == 1.0:
            if acc.ctypes.data != x.ctypes.data:
                np.copyto(acc, x)
        elif _is_plain(mass):
            np.multiply(x, np.float32(mass), out=acc)
        else:
            np.copyto(acc, self._wide_product(x, mass), casting="same_kind")

    def _accumulate(self, acc: F32, x: F32, mass: float) -> None:
        if mass == 1.0:
            np.add(acc, x, out=acc)
            return
        scaled = self._scratch[: x.size]
        if _is_plain(mass):
            np.multiply(x, np.float32(mass), out=scaled)
        else:
            np.copyto(scaled, self._wide_product(x, mass), casting="same_kind")
        np.add(acc, scaled, out=acc)

    def _divide(self, acc: F32, divisor: float) -> None:
        if divisor == 1.0:
            return
        if _is_plain(divisor):
            np.divide(acc, np.float32(divisor), out=acc)
            return
        wide = self._widened(acc)
        np.divide(wide, divisor, out=wide)
        np.copyto(acc, wide, casting="same_kind")

    def _widened(self, x: F32) -> F64:
        if self._wide is None:
            self._wide = np.empty(PIECE_VALUES, np.float64)
        wide = self._wide[: x.size]
        np.copyto(wide, x)
        return wide

    def _wide_product(self, x: F32, mass: float) -> F64:
        """Masses below the smallest normal f32 lose bits as f32, so the product is taken in f64."""
        wide = self._widened(x)
        np.multiply(wide, mass, out=wide)
        return wide


def _check(out: F32, terms: Sequence[Term], divisor: float) -> None:
    if not terms:
        raise LocalProtocolError("a sum of no contributions was asked for, expected at least one")
    if not 0.0 < divisor < float("inf"):
        raise LocalProtocolError(f"the divisor is {divisor}, expected a finite number above 0")
    for values, mass in terms:
        if values.size != out.size:
            raise LocalProtocolError(
                f"a contribution has {values.size} values, expected {out.size} as in the sum"
            )
        if not 0.0 < mass <= _LARGEST:
            raise LocalProtocolError(
                f"a contribution has mass {mass}, expected a number above 0 that fits f32"
            )
