"""Refusals of values, in our words: field, value, source, reason and fix.

What it is: the translation of pydantic's verdicts, and the refusals of names
that do not exist.
What it is not: any rule; those are in the schema.
Who drives it: `load`.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from flodl_core.config.keys import Key
from flodl_core.config.sources import Source, SourceKind
from flodl_core.errors import ConfigError, kind_of

_HIDDEN: Final = "(hidden)"

_REASONS: Final[Mapping[str, str]] = {
    "int_parsing": "is not a whole number",
    "int_type": "is not a whole number",
    "int_from_float": "is not a whole number",
    "int_parsing_size": "is too large",
    "float_parsing": "is not a number",
    "float_type": "is not a number",
    "finite_number": "is not finite",
    "bool_parsing": "is neither true nor false",
    "bool_type": "is neither true nor false",
    "string_type": "is not text",
    "tuple_type": "is not a list of words",
    "dict_type": "is not a table of names and values",
    "path_type": "is not a path",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "enum": "must be {expected}",
    "string_too_short": "is empty",
    "string_too_long": "is longer than {max_length} characters",
}


def refused_value(key: Key, error: ValidationError, source: Source) -> ConfigError:
    """Return the refusal of a value that pydantic refused.

    Args:
        key: the setting that the first of the errors is about.
        error: pydantic's.
        source: where the value came from.
    """
    first = error.errors(include_url=False)[0]
    value = _HIDDEN if key.secret else first["input"]
    return ConfigError(
        key.dotted, value, reason_of(first), source=str(source), fix=how_to_set(key, source)
    )


def refused_rule(key: Key, error: ConfigError, source: Source) -> ConfigError:
    """Return a refusal of the schema's own with the source that it could not know."""
    return ConfigError(key.dotted, error.value, error.reason, source=str(source), fix=error.fix)


def refused_name(name: str, source: Source, *, known: Iterable[str]) -> ConfigError:
    """Return the refusal of a setting that does not exist, with the nearest one that does."""
    names = list(known)
    near = _nearest(name, names)
    fix = f"did you mean {near}?" if near else f"the known names are {', '.join(names)}"
    if len(fix) > 400:
        fix = "`flodl config` prints every setting"
    return ConfigError(name, "…", "there is no such setting", source=str(source), fix=fix)


def _nearest(name: str, names: Sequence[str]) -> str | None:
    """Return the name that was meant, if one is near; what all begin with says nothing."""
    columns = zip(name, *names, strict=False) if len(names) > 1 else ()
    shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))
    own = {one[shared:]: one for one in names}
    near = difflib.get_close_matches(name[shared:], own, n=1, cutoff=0.6)
    return own[near[0]] if near else None


def refused_kind(key: Key, value: object, source: Source) -> ConfigError:
    """Return the refusal of a value whose type another table of TOML would hold."""
    shown = _HIDDEN if key.secret else value
    reason = "is empty" if value == "" else f"is {kind_of(value)}, which says nothing here"
    return ConfigError(key.dotted, shown, reason, source=str(source), fix=how_to_set(key, source))


def how_to_set(key: Key, source: Source) -> str:
    """Return how a setting is given, in the way in which it was given."""
    if source.kind is SourceKind.FILE:
        value = f"{key.name} = {_toml(key.example)} in [{key.file_table}] of flodl.toml"
    elif source.kind is SourceKind.ENVIRONMENT:
        value = f"{key.env}={key.example}"
    else:
        value = f"{key.flag} {key.example}" if key.flag.startswith("-") else key.example
    return f"give a value such as {value} ({key.doc.rstrip('.')})"


def _toml(example: str) -> str:
    bare = example in {"true", "false"} or example.replace(".", "", 1).isdigit()
    return example if bare else f'"{example}"'


def reason_of(first: ErrorDetails) -> str:
    """Return one of pydantic's verdicts in our words."""
    template = _REASONS.get(first["type"])
    if template is None:
        return first["msg"][:200]
    return template.format(**{k: _plain(v) for k, v in first.get("ctx", {}).items()})


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
