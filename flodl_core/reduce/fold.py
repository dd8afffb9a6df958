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
from typing import Final, NamedTuple, TypeAlias, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from flodl_core.errors import LocalProtocolError
from flodl_core.reduce.narrow import BF16, F32, PIECE_VALUES, Narrow

F64: TypeAlias = npt.NDArray[np.float64]

_SMALLEST_NORMAL: Final = float(np.finfo(np.float32).tiny)
_LARGEST: Final = float(np.finfo(np.float32).max)


class Term(NamedTuple):
    """One contribution to a sum: `mass` times `values` − `base`; a subtotal has mass 1."""

    values: F32 | BF16
    """f32, or bf16 as it came from a narrow wire."""
    mass: float
    base: F32 | None = None
    """What a narrow wire subtracts before the sum; None for nothing."""


def _pieces(size: int) -> Iterator[slice]:
    for start in range(0, size, PIECE_VALUES):
        yield slice(start, min(start + PIECE_VALUES, size))


def _is_narrow(values: F32 | BF16) -> TypeGuard[BF16]:
    return values.dtype == np.uint16


def _is_subtotal(term: Term) -> bool:
    """Whether a term is added as it is."""
    return term.mass == 1.0 and term.base is None and not _is_narrow(term.values)


def _is_plain(mass: float) -> bool:
    """Whether rounding this mass to f32 costs at most half a unit in the last place."""
    return _SMALLEST_NORMAL <= mass <= _LARGEST


class Fold:
    """The arithmetic of one folding thread, with its scratch.

    All arrays are one-dimensional and contiguous, of equal length per call.
    Masses are finite and > 0; a contribution of zero mass is left out by the caller,
    so that nothing of it, not even NaN, reaches the sum.
    """

    def __init__(self) -> None:
        self._scratch: F32 = np.empty(PIECE_VALUES, np.float32)
        self._apart: F32 | None = None
        self._sum: F32 | None = None
        self._narrow = Narrow()
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
        _check(out.size, terms, divisor)
        with np.errstate(all="ignore"):
            for piece in _pieces(out.size):
                self._combine_piece(out[piece], terms, piece, divisor)

    def combine_narrow(self, out: BF16, terms: Sequence[Term], *, divisor: float = 1.0) -> None:
        """Set out = (Σ mass · (values − base), in the order given) / divisor, rounded once.

        Args:
            out: bf16, overwritten; it shares no memory with a term.
            terms: at least one.
            divisor: finite, > 0.

        Raises:
            LocalProtocolError: as `combine`.
        """
        _check(out.size, terms, divisor)
        if self._sum is None:
            self._sum = np.empty(PIECE_VALUES, np.float32)
        with np.errstate(all="ignore"):
            for piece in _pieces(out.size):
                total = self._sum[: piece.stop - piece.start]
                self._combine_piece(total, terms, piece, divisor)
                self._narrow.round_into(out[piece], total)

    def _combine_piece(self, acc: F32, terms: Sequence[Term], piece: slice, divisor: float) -> None:
        done = self._begin(acc, terms, piece)
        for term in terms[done:]:
            self._accumulate(acc, self._operand(term, piece), term.mass)
        self._divide(acc, divisor)

    def _begin(self, acc: F32, terms: Sequence[Term], piece: slice) -> int:
        """Set acc to the first term, or in one pass to the first two; return how many."""
        first = terms[0]
        if len(terms) > 1 and _is_subtotal(first) and _is_subtotal(terms[1]):
            np.add(first.values[piece], terms[1].values[piece], out=acc)
            return 2
        if first.base is not None and not _is_narrow(first.values):
            np.subtract(first.values[piece], first.base[piece], out=acc)
            self._scale(acc, acc, first.mass)
        else:
            self._scale(acc, self._operand(first, piece), first.mass)
        return 1

    def _operand(self, term: Term, piece: slice) -> F32:
        """Return values − base of one piece, as f32; in scratch unless they are the values."""
        values = term.values[piece]
        plain = self._narrow.widen(values) if _is_narrow(values) else cast("F32", values)
        if term.base is None:
            return plain
        if self._apart is None:
            self._apart = np.empty(PIECE_VALUES, np.float32)
        apart = self._apart[: plain.size]
        np.subtract(plain, term.base[piece], out=apart)
        return apart

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


def _check(size: int, terms: Sequence[Term], divisor: float) -> None:
    if not terms:
        raise LocalProtocolError("a sum of no contributions was asked for, expected at least one")
    if not 0.0 < divisor < float("inf"):
        raise LocalProtocolError(f"the divisor is {divisor}, expected a finite number above 0")
    for values, mass, base in terms:
        if values.size != size or (base is not None and base.size != size):
            raise LocalProtocolError(
                f"a contribution has {values.size} values"
                + ("" if base is None else f" over {base.size}")
                + f", expected {size} as in the sum"
            )
        if not 0.0 < mass <= _LARGEST:
            raise LocalProtocolError(
                f"a contribution has mass {mass}, expected a number above 0 that fits f32"
            )
