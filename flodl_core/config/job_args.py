"""Options of the job: `key=value`, typed by how the value looks.

What it is: a parser of option texts and a check of values from TOML.
What it is not: which options a job has; the job itself refuses unknown ones.
Who drives it: `load`, for `--job-arg` and for `[job]` of `flodl.toml`.

`true` and `false` are switches, digits are numbers, commas make a list, quotes
make text of anything: `depth=4`, `lr=3e-4`, `step_ms=5,5,20`, `tag='7'`.
"""

import math
from collections.abc import Mapping, Sequence

from flodl_core.config.schema import JobValue
from flodl_core.config.sources import Source
from flodl_core.errors import ConfigError


def parse_job_args(given: object, *, source: Source) -> dict[str, JobValue | tuple[JobValue, ...]]:
    """Return options by name.

    Args:
        given: `key=value` texts, one or a sequence of them, or a mapping.
        source: where they came from, for errors.

    Raises:
        ConfigError: a text has no `=`, or a value is not text, number, switch or list.
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
        parsed[name.strip()] = parse_job_value(value)
    return parsed


def parse_job_value(text: str) -> JobValue | tuple[JobValue, ...]:
    """Return what a value's text stands for."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        return text[1:-1]
    if "," in text:
        return tuple(_scalar(part.strip()) for part in text.split(",") if part.strip())
    return _scalar(text)


def _scalar(text: str) -> JobValue:
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    for parse in (int, float):
        try:
            number = parse(text)
        except ValueError:
            continue
        return number if isinstance(number, int) or math.isfinite(number) else text
    return text


def _value(name: str, value: object, source: Source) -> JobValue | tuple[JobValue, ...]:
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        parts = tuple(part for part in value if isinstance(part, bool | int | float | str))
        if len(parts) == len(value):
            return parts
    raise _refuse(f"job.{name}", value, "is not text, number, switch or a list of those", source)


def _refuse(field: str, value: object, reason: str, source: Source) -> ConfigError:
    return ConfigError(
        field,
        value,
        reason,
        source=str(source),
        fix="give options such as --job-arg depth=4, or depth = 4 in [job] of flodl.toml",
    )
