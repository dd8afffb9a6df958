"""The order of a pass: position → sample id, the same on every rank and numpy version.

Up to `TABLE_LIMIT` samples the order is a table: the indices sorted by a keyed
mix of themselves. Above it is a keyed bijection (a Feistel network that walks its
cycle until it lands below n), which needs no memory. Not a sampler: it knows no
batches and no ranks. The loader and the sample log use it.
"""

import numpy as np
import numpy.typing as npt

from flodl_core.dispatch.seeds import derive_seed
from flodl_core.errors import LocalProtocolError

TABLE_LIMIT = 10_000_000
"""Up to here a pass's order is a table of 4 bytes a sample; 24 bits hold every index."""

MAX_SAMPLES = 2**62

Ids = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]

_INDEX_BITS = 24
_FEISTEL_ROUNDS = 6
_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_BLOCK = 1 << 18


def mix64(words: _Words) -> _Words:
    """Return the finalizer of splitmix64 of each word: a bijection of 64 bits, a new array."""
    mixed = words ^ (words >> np.uint64(30))
    mixed *= _MIX_1
    mixed ^= mixed >> np.uint64(27)
    mixed *= _MIX_2
    mixed ^= mixed >> np.uint64(31)
    return mixed


class Permutation:
    """The order of one pass over `n` samples.

    Args:
        n: samples of the dataset, 1 … 2**62.
        seed: the seed of the run.
        pass_index: which pass, from 0; each has its own order.

    Raises:
        LocalProtocolError: n is out of range.
    """

    def __init__(self, n: int, seed: int, pass_index: int) -> None:
        if not 1 <= n <= MAX_SAMPLES:
            raise LocalProtocolError(f"a permutation of {n} samples; expected 1 … 2**62")
        self.n = n
        key = derive_seed(seed, "permutation", pass_index)
        self._key = np.uint64(key)
        self._table: npt.NDArray[np.uint32] | None = None
        self._half_bits = np.uint64(max(1, ((n - 1).bit_length() + 1) // 2))
        self._round_keys = [
            np.uint64(derive_seed(key, "feistel", number)) for number in range(_FEISTEL_ROUNDS)
        ]

    def ids(self, offset: int, size: int) -> Ids:
        """Return the sample ids at positions `offset` … `offset + size - 1`, a new array.

        Raises:
            LocalProtocolError: a position lies outside 0 … n - 1.
        """
        if offset < 0 or size < 0 or offset + size > self.n:
            raise LocalProtocolError(
                f"positions {offset} … {offset + size} of a pass over {self.n} samples"
            )
        if self.n > TABLE_LIMIT:
            return self._walk(np.arange(offset, offset + size, dtype=np.uint64))
        if self._table is None:
            self._table = self._sort_table()
        return self._table[offset : offset + size].astype(np.int64)

    def _sort_table(self) -> npt.NDArray[np.uint32]:
        """Sort (40 bits of mix, 24 bits of index) words; all differ, so the result is unique."""
        low = np.uint64(2**_INDEX_BITS - 1)
        words = np.empty(self.n, dtype=np.uint64)
        for start in range(0, self.n, _BLOCK):
            index = np.arange(start, min(start + _BLOCK, self.n), dtype=np.uint64)
            words[start : start + _BLOCK] = (mix64(index * _GAMMA + self._key) & ~low) | index
        words.sort()
        words &= low
        return words.astype(np.uint32)

    def _walk(self, positions: _Words) -> Ids:
        """Apply the bijection of 0 … 4**half_bits - 1 until every value is below n."""
        values = self._feistel(positions)
        outside = np.flatnonzero(values >= np.uint64(self.n))
        while outside.size:
            values[outside] = self._feistel(values[outside])
            outside = outside[values[outside] >= np.uint64(self.n)]
        return values.astype(np.int64)

    def _feistel(self, words: _Words) -> _Words:
        mask = (np.uint64(1) << self._half_bits) - np.uint64(1)
        left, right = words >> self._half_bits, words & mask
        for round_key in self._round_keys:
            left, right = right, left ^ (mix64(right * _GAMMA + round_key) & mask)
        return (left << self._half_bits) | right
