"""The kinds of values that settings have, and how text becomes one.

What it is: conversions that run before pydantic judges, and the annotated types that
`schema` builds its tables from.
What it is not: a setting, nor a rule between two.
Who drives it: `schema`, at its import.
"""

from pathlib import Path
from typing import Annotated, Final, TypeAlias

from pydantic import BeforeValidator, Field

from flodl_core.ids import GuardKind

AUTO: Final = "auto"
MIN_CEILING_S: Final = 0.1
MAX_DURATION_S: Final = 1e9
"""Some thirty years; the system's own timers end not far above."""


def split_words(value: object) -> object:
    """Turn `"a, b"` into `("a", "b")`; anything else stays for pydantic to judge."""
    if isinstance(value, str):
        return tuple(word.strip() for word in value.split(",") if word.strip())
    return value


def split_numbers(value: object) -> object:
    """Turn `"10, 20"` into `("10", "20")`, and one number into a list of one."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return (value,) if is_number else split_words(value)


def lower_words(value: object) -> object:
    """Lower a word, as for modes and tokens, where case carries nothing."""
    return value.strip().lower() if isinstance(value, str) else value


def lower_guard(value: object) -> object:
    """Lower the name of a guard of ours; another one's name is a name of Python."""
    lowered = lower_words(value)
    return lowered if isinstance(lowered, str) and lowered in set(GuardKind) else value


def switch_or_path(value: object) -> object:
    """Turn a switch into `auto` or nothing, for a setting that may also be a path."""
    word = str(value).strip().lower()
    if word in {"true", "false"}:
        return AUTO if word == "true" else None
    return expand_home(value)


def expand_home(value: object) -> object:
    """Turn a leading `~` into a home directory, which no shell does for a file or a variable."""
    if not isinstance(value, str) or not value.startswith("~"):
        return value
    home, slash, rest = value.partition("/")
    try:
        return f"{Path(home).expanduser()}{slash}{rest}"
    except RuntimeError:
        return value


def number_as_text(value: object) -> object:
    """Turn a whole number into text, for a setting that may also be a percentage."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else value


Words: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(split_words)]
Counts: TypeAlias = Annotated[
    tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...], BeforeValidator(split_numbers)
]
Ratios: TypeAlias = Annotated[
    tuple[Annotated[float, Field(gt=0, le=1_000_000)], ...], BeforeValidator(split_numbers)
]
Ceiling: TypeAlias = Annotated[float, Field(ge=MIN_CEILING_S, le=MAX_DURATION_S)]
HomePath: TypeAlias = Annotated[Path, BeforeValidator(expand_home)]
HomeText: TypeAlias = Annotated[str, BeforeValidator(expand_home)]
Lowered: TypeAlias = Annotated[str, BeforeValidator(lower_words)]
