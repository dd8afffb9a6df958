"""Every setting with its value and its source, for `flodl config` and the run directory.

What it is: rows of text, and one document that JSON can hold. Secrets are
shown as set or not set.
What it is not: a table on a screen; the command line draws that.
Who drives it: the command `config`, and the launcher when it writes `config.json`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from flodl_core.config.job_args import job_value_text
from flodl_core.config.keys import KEYS, Key
from flodl_core.config.sources import Resolved, Source
from flodl_core.config.workers import WORKERS, WorkerConfig

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"

HIDDEN: Final = "(hidden)"
UNSET: Final = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRow:
    """One line of `flodl config`."""

    name: str
    """`table.name`."""
    value: str
    source: str
    env: str
    """The environment variable, or `-`."""
    flag: str
    doc: str


def explain(resolved: Mapping[str, Resolved[object]]) -> tuple[ConfigRow, ...]:
    """Return one row a setting, in the order of the schema."""
    return tuple(
        ConfigRow(
            name=name,
            value=_text(KEYS[name], given.value),
            source=str(given.source),
            env=KEYS[name].env or UNSET,
            flag=KEYS[name].flag,
            doc=KEYS[name].doc,
        )
        for name, given in resolved.items()
    )


def config_document(resolved: Mapping[str, Resolved[object]]) -> dict[str, Plain]:
    """Return values and sources as plain types; a token is never in it."""
    return {
        name: {
            "value": HIDDEN if KEYS[name].secret and given.value else _plain(given.value),
            "source": str(given.source),
        }
        for name, given in resolved.items()
    }


def explain_workers(workers: Sequence[tuple[WorkerConfig, Source]]) -> tuple[ConfigRow, ...]:
    """Return one row a host that the file lists; values of its variables are not shown."""
    return tuple(
        ConfigRow(
            name=f"{WORKERS}.{worker.host}",
            value=" ".join(
                f"{name}={_worker_text(part)}" for name, part in _worker_parts(worker).items()
            ),
            source=str(source),
            env=UNSET,
            flag=UNSET,
            doc="One further host.",
        )
        for worker, source in workers
    )


def workers_document(workers: Sequence[tuple[WorkerConfig, Source]]) -> list[Plain]:
    """Return the hosts that the file lists as plain types, without values of variables."""
    return [
        {"value": _plain(_worker_parts(worker)), "source": str(source)}
        for worker, source in workers
    ]


def _worker_parts(worker: WorkerConfig) -> dict[str, object]:
    """Return what a worker's item sets; of its variables only the names."""
    parts = worker.model_dump(exclude_defaults=True)
    if worker.env:
        parts["env"] = tuple(worker.env)
    return parts


def _worker_text(part: object) -> str:
    return ",".join(map(str, part)) if isinstance(part, tuple) else str(part)


def _text(key: Key, value: object) -> str:
    if value is None or value in ((), {}):
        return UNSET
    if key.secret:
        return HIDDEN
    if isinstance(value, Mapping):
        return " ".join(f"{name}={job_value_text(part)}" for name, part in value.items())
    if isinstance(value, tuple):
        return ",".join(_text(key, part) for part in value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _plain(value: object) -> Plain:
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(part) for part in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    return str(value)
