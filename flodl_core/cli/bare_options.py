"""Options that may stand without their value.

What it is: `--resume` alone is `--resume auto`.
What it is not: a parser; it looks at the words before one does.
Who drives it: `app`.
"""

from collections.abc import Sequence
from typing import Final

_BARE: Final = {"--resume": "auto"}


def fill_bare_options(words: Sequence[str]) -> list[str]:
    """Return the words of a command line with the values of options that stand bare.

    An option stands bare at the end and before another option.
    """
    filled: list[str] = []
    for index, word in enumerate(words):
        filled.append(word)
        if word == "--":
            return [*filled, *words[index + 1 :]]
        following = words[index + 1] if index + 1 < len(words) else "-"
        if word in _BARE and following.startswith("-"):
            filled.append(_BARE[word])
    return filled
