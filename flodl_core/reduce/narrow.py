"""bf16 as numpy has it: the upper halves of f32 values, in arrays of 16-bit integers.

Rounding is to nearest; a tie goes away from zero, which costs one pass less than to
even. Everything goes through a small kept scratch, since an operation on two types at
once makes a temporary of the whole array. Values are finite and below 3.38e38 in size,
where rounding does not reach infinity. A `Narrow` belongs to one thread.
"""

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

F32: TypeAlias = npt.NDArray[np.float32]
BF16: TypeAlias = npt.NDArray[np.uint16]

BF16_ROUNDING: Final = 2.0**-8
"""Relative error of one rounding to bf16, at most, for normal values."""

PIECE_VALUES: Final = 64 * 1024
"""Values handled by one call: 256 KiB of f32."""

_HALF: Final = np.uint32(0x8000)
_UPPER: Final = np.uint32(16)


class Narrow:
    """Casts between f32 and bf16."""

    def __init__(self) -> None:
        self._bits = np.empty(PIECE_VALUES, np.uint32)

    def round_into(self, out: BF16, values: F32) -> None:
        """Set `out` to `values`, each rounded once; arrays of equal length."""
        for start in range(0, out.size, PIECE_VALUES):
            piece = values[start : start + PIECE_VALUES].view(np.uint32)
            bits = self._bits[: piece.size]
            np.add(piece, _HALF, out=bits)
            np.right_shift(bits, _UPPER, out=bits)
            np.copyto(out[start : start + PIECE_VALUES], bits, casting="unsafe")

    def widen(self, values: BF16) -> F32:
        """Return at most `PIECE_VALUES` values as f32, in scratch that the next call reuses."""
        bits = self._bits[: values.size]
        np.copyto(bits, values)
        np.left_shift(bits, _UPPER, out=bits)
        return bits.view(np.float32)

    def add_into(self, out: F32, base: F32, difference: BF16) -> None:
        """Set `out` to `base` + `difference`; `out` may be `base`."""
        for start in range(0, out.size, PIECE_VALUES):
            end = start + PIECE_VALUES
            np.add(base[start:end], self.widen(difference[start:end]), out=out[start:end])
