"""Options of the job: `key=value`, typed by how the value looks.

What it is: a parser of option texts, its inverse, and a check of values from TOML.
What it is not: which options a job has; the job itself refuses unknown ones.
Who drives it: `load`, for `--job-arg` and for `[job]` of `flodl.toml`; `words` and `explain`
for the way back.

`true` and `false` are switches, digits are numbers, commas make a list, quotes
make text of anything: `depth=4`, `lr=3e-4`, `step_ms=5,5,20`, `tag='7'`. A comma at the end
makes a list of one; in a list each part may have quotes, and two of them inside stand for one.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Final

from flodl_core.config.schema import JobValue
from flodl_core.config.sources import Source
from flodl_core.errors import ConfigError

LEAST_INT: Final = -(1 << 63)
MOST_INT: Final = (1 << 64) - 1
"""What 64 bits hold, with a sign or without: a message can carry it."""

_INT: Final = re.compile(r"[+-]?[0-9]+")
_FLOAT: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_PART: Final = re.compile(
    r"""\s*(?:'(?P<one>(?:[^']|'')*)'|"(?P<two>(?:[^"]|"")*)"|(?P<bare>[^,]*))\s*(?:,|\Z)"""
)
_PLAIN: Final = re.compile(r"[^\s,'\"=]+")
"""Text that needs no quotes, if it is no number and no switch."""


def parse_job_args(given: object, *, source: Source) -> dict[str, JobValue | tuple[JobValue, ...]]:
    """Return options by name.

    Args:
        given: `key=value` texts, one or a sequence of them, or a mapping.
        source: where they came from, for errors.

    Raises:
        ConfigError: a text has no `=`, a value is not text, number, switch or list, or a whole
            number does not fit 64 bits.
    """
    if isinstance(given, Mapping):
        return {str(name): _value(str(name), value, source) for name, value in given.items()}
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Sequence):
        raise _refuse("job_args", given, "is neither key=value nor a table", source)
    parsed = {}
    for text in texts:
        name, equals, value = str(text).partition("=")
        if not equals or not name.strip():
            raise _refuse("job_args", text, "is not key=value", source)
        parsed[name.strip()] = _value(name.strip(), parse_job_value(value), source)
    return parsed


def parse_job_value(text: str) -> JobValue | tuple[JobValue, ...]:
    """Return what a value's text stands for; a whole number of any size is one."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    return _list(text) if "," in text else _scalar(text)


def job_value_text(value: JobValue | Sequence[JobValue]) -> str:
    """Return the text of a value: `parse_job_value` makes the same value of it again."""
    if isinstance(value, str):
        return value if _is_plain(value) else f"'{value}'"
    if not isinstance(value, Sequence):
        return _scalar_text(value)
    parts = [_part_text(part) for part in value]
    text = ",".join(parts)
    is_clear = len(parts) > 1 and text[0] not in "\"'"
    return text if is_clear else f"{text},"


def _list(text: str) -> tuple[JobValue, ...]:
    parts: list[JobValue] = []
    at = 0
    while at < len(text):
        found = _PART.match(text, at)
        assert found is not None, "any text up to a comma is a part"
        at = found.end()
        bare = found["bare"]
        if bare is None:
            one, two = found["one"], found["two"]
            parts.append(two.replace('""', '"') if one is None else one.replace("''", "'"))
        elif bare.strip():
            parts.append(_scalar(bare.strip()))
    return tuple(parts)


def _scalar(text: str) -> JobValue:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    if _INT.fullmatch(text):
        try:
            return int(text)
        except ValueError:
            return MOST_INT + 1
    number = float(text) if _FLOAT.fullmatch(text) else math.nan
    return number if math.isfinite(number) else text


def _is_plain(text: str) -> bool:
    return _PLAIN.fullmatch(text) is not None and isinstance(_scalar(text), str)


def _scalar_text(value: float) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _part_text(value: JobValue) -> str:
    if not isinstance(value, str):
        return _scalar_text(value)
    doubled = value.replace("'", "''")
    return value if _is_plain(value) else f"'{doubled}'"


def _value(name: str, value: object, source: Source) -> JobValue | tuple[JobValue, ...]:
    if name != name.strip() or not name or "=" in name:
        raise _refuse("job_args", name, "is no name of an option", source)
    if isinstance(value, bool | int | float | str):
        _refuse_size(name, value, source)
        return value
    if isinstance(value, list | tuple):
        parts = tuple(part for part in value if isinstance(part, bool | int | float | str))
        if len(parts) == len(value):
            for part in parts:
                _refuse_size(name, part, source)
            return parts
    raise _refuse(f"job.{name}", value, "is not text, number, switch or a list of those", source)


def _refuse_size(name: str, value: JobValue, source: Source) -> None:
    """Refuse a number that no message can carry.

    Raises:
        ConfigError: it is a whole number that does not fit 64 bits.
    """
    if isinstance(value, int) and not LEAST_INT <= value <= MOST_INT:
        raise ConfigError(
            f"job.{name}",
            "…",
            "is a whole number that does not fit 64 bits",
            source=str(source),
            fix=f"give it as text, in quotes: --job-arg {name}=\"'…'\"",
        )


def _refuse(field: str, value: object, reason: str, source: Source) -> ConfigError:
    return ConfigError(
        field,
        value,
        reason,
        source=str(source),
        fix="give options such as --job-arg depth=4, or depth = 4 in [job] of flodl.toml",
    )
