"""Where every seed of a run comes from: one function of (run seed, purpose, numbers).

Not a generator: who needs chance builds one from the number. A draw added in one
place cannot shift another, since each place has its own purpose.
"""

import hashlib

SEED_BITS = 63
_NUMBER_BYTES = 16


def derive_seed(run_seed: int, purpose: str, *numbers: int) -> int:
    """Return a seed of 63 bits that depends on every argument and on nothing else.

    Args:
        run_seed: the seed of the run; any integer of at most 127 bits.
        purpose: one word for the use, such as `permutation` or `compute`.
        numbers: what tells apart the seeds of one purpose: pass, rank, sample …

    Returns:
        0 … 2**63 - 1, the same on every machine and Python version.

    Raises:
        OverflowError: a number needs more than 127 bits.
    """
    return _seed_of(_digest_of(run_seed, purpose, numbers))


class SeedFamily:
    """The seeds whose last number alone differs, as `derive_seed` gives them, in half the time.

    Args:
        run_seed: as for `derive_seed`.
        purpose: likewise.
        numbers: all but the last.
    """

    def __init__(self, run_seed: int, purpose: str, *numbers: int) -> None:
        self._begun = _digest_of(run_seed, purpose, numbers)

    def seed(self, number: int) -> int:
        """Return derive_seed(run_seed, purpose, *numbers, number).

        Raises:
            OverflowError: the number needs more than 127 bits.
        """
        digest = self._begun.copy()
        digest.update(number.to_bytes(_NUMBER_BYTES, "big", signed=True))
        return _seed_of(digest)


def _digest_of(run_seed: int, purpose: str, numbers: tuple[int, ...]) -> "hashlib._Hash":
    word = purpose.encode()
    digest = hashlib.sha256(b"flodl seed 1")
    digest.update(len(word).to_bytes(4, "big") + word)
    for number in (run_seed, *numbers):
        digest.update(number.to_bytes(_NUMBER_BYTES, "big", signed=True))
    return digest


def _seed_of(digest: "hashlib._Hash") -> int:
    return int.from_bytes(digest.digest()[:8], "big") >> 1
