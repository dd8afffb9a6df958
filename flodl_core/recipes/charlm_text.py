"""The text of `charlm`: Python's language reference, as every CPython ships it.

What it is: the text cut into a training and a validation part, and windows of
character ids over either. A paragraph that occurs several times falls on one side
only, so that the validation part holds nothing that was trained on.
What it is not: a model.
Who drives it: the recipe `charlm`.
"""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pydoc_data.topics import topics

import torch

VALIDATION_SHARE = 16
"""One paragraph in so many is held out."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """The two parts of the text, as character ids.

    Attributes:
        symbols: every character that occurs, in code point order; its index is its id.
        train_ids: int64.
        validation_ids: int64.
        digest: of the text, so that another Python's text is another dataset.
    """

    symbols: str
    train_ids: torch.Tensor
    validation_ids: torch.Tensor
    digest: str

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; characters that do not occur are left out."""
        index = {symbol: number for number, symbol in enumerate(self.symbols)}
        return [index[symbol] for symbol in text if symbol in index]

    def decode(self, ids: list[int]) -> str:
        """Return the text of ids."""
        return "".join(self.symbols[number] for number in ids)


@lru_cache(maxsize=1)
def load_corpus() -> Corpus:
    """Return the corpus; the same on every host with the same Python."""
    text = "\n\n".join(topics[name] for name in sorted(topics))
    symbols = "".join(sorted(set(text)))
    index = {symbol: number for number, symbol in enumerate(symbols)}
    parts: tuple[list[str], list[str]] = ([], [])
    for paragraph in text.split("\n\n"):
        parts[_is_held_out(paragraph)].append(paragraph)
    train, validation = (
        torch.tensor([index[symbol] for symbol in "\n\n".join(part)]) for part in parts
    )
    return Corpus(symbols, train, validation, hashlib.sha256(text.encode()).hexdigest())


def _is_held_out(paragraph: str) -> bool:
    digest = hashlib.sha256(paragraph.strip().encode()).digest()
    return int.from_bytes(digest[:4], "big") % VALIDATION_SHARE == 0


class Windows:
    """Windows of `context` characters over a text, each with the characters that follow.

    A sample is (inputs, targets), two int64 tensors of `context` ids; the targets
    are the inputs one character later.
    """

    def __init__(self, ids: torch.Tensor, *, context: int, stride: int) -> None:
        """Make the windows.

        Args:
            ids: of the text.
            context: characters of a window, at least 1 and below the text's length.
            stride: characters from one window's beginning to the next one's.
        """
        self._ids = ids
        self._context = context
        self._stride = stride

    def __len__(self) -> int:
        return max(0, (len(self._ids) - self._context - 1) // self._stride + 1)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        if not 0 <= index < len(self):
            raise IndexError(index)
        start = index * self._stride
        window = self._ids[start : start + self._context + 1]
        return window[:-1], window[1:]
