"""The settings of one `flodl.toml`, each with its line; and its list of workers.

What it is: the way from tables of the file to dotted names, and the refusal of names and
tables that do not exist, or of a setting that stands in two tables.
What it is not: a judgement of values (`schema`), or a precedence (`load`).
Who drives it: `load`.
"""

from collections.abc import Mapping
from typing import Final

from pydantic import ValidationError

from flodl_core.config.complaints import reason_of, refused_name
from flodl_core.config.file_tables import SUBJECTS
from flodl_core.config.keys import JOB_TABLE, KEYS, TABLES
from flodl_core.config.sources import Resolved, Source, SourceKind
from flodl_core.config.toml_file import TomlFile
from flodl_core.config.workers import WORKERS, WorkerConfig
from flodl_core.errors import ConfigError

MAX_WORKERS: Final = 1024


def read_settings(toml: TomlFile) -> dict[str, Resolved[object]]:
    """Return what the file says of settings, by dotted name.

    Raises:
        ConfigError: a table or name does not exist, or a setting is given twice.
    """
    values: dict[str, Resolved[object]] = {}
    known = [*TABLES, *SUBJECTS, JOB_TABLE, WORKERS]
    for table, content in toml.tables.items():
        source = Source(SourceKind.FILE, toml.where(table))
        if table not in known:
            homes = [
                f"{key.name} in [{key.file_table}]" for key in KEYS.values() if key.name == table
            ]
            raise refused_name(table, source, known=homes or known)
        if table == WORKERS:
            continue
        if not isinstance(content, dict):
            raise _no_table(table, content, source)
        if table != JOB_TABLE:
            _read_table(toml, table, content, values)
    return values


def read_workers(toml: TomlFile) -> tuple[tuple[WorkerConfig, Source], ...]:
    """Return the hosts that the file lists, each with the line that it begins at.

    Raises:
        ConfigError: a value cannot be used, or two have one label; with the line.
    """
    listed = toml.tables.get(WORKERS, [])
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        source = Source(SourceKind.FILE, toml.where(WORKERS))
        raise _no_table(WORKERS, listed, source)
    if len(listed) > MAX_WORKERS:
        raise ConfigError(
            WORKERS,
            len(listed),
            f"a run has at most {MAX_WORKERS} hosts",
            source=f"file {toml.path}",
            fix="list fewer hosts",
        )
    found: list[tuple[WorkerConfig, Source]] = []
    for index, raw in enumerate(listed):
        worker = _read_worker(toml, index, raw)
        source = Source(SourceKind.FILE, toml.where_item(WORKERS, index, "host"))
        if any(worker.host == other.host for other, _ in found):
            raise ConfigError(
                "workers.host",
                worker.host,
                "another worker has this label",
                source=str(source),
                fix="give each host a label of its own; ssh = says where it is",
            )
        found.append((worker, source))
    return tuple(found)


def _read_table(
    toml: TomlFile,
    table: str,
    content: Mapping[str, object],
    values: dict[str, Resolved[object]],
) -> None:
    model = SUBJECTS[table][0] if table in SUBJECTS else table
    names = SUBJECTS[table][1] if table in SUBJECTS else set(TABLES[table].model_fields)
    for name, value in content.items():
        source = Source(SourceKind.FILE, toml.where(table, name))
        if name not in names:
            homes = [
                f"{key.name} in [{key.file_table}]" for key in KEYS.values() if key.name == name
            ]
            raise refused_name(name, source, known=homes or sorted(names))
        dotted = f"{model}.{name}"
        if dotted in values:
            raise ConfigError(
                dotted,
                value,
                f"it is given twice, also in {values[dotted].source.where}",
                source=str(source),
                fix=f"keep the one in [{KEYS[dotted].file_table}]",
            )
        if _has_null(value):
            raise _null(dotted, source)
        values[dotted] = Resolved(value, source)


def _read_worker(toml: TomlFile, index: int, raw: Mapping[str, object]) -> WorkerConfig:
    fields = WorkerConfig.model_fields
    for name in raw:
        if name not in fields:
            source = Source(SourceKind.FILE, toml.where_item(WORKERS, index, name))
            raise refused_name(name, source, known=fields)
        if _has_null(raw[name]):
            source = Source(SourceKind.FILE, toml.where_item(WORKERS, index, name))
            raise _null(f"{WORKERS}.{name}", source)
    try:
        return WorkerConfig.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        missing = first["type"] == "missing"
        raise ConfigError(
            f"workers.{name}",
            None if missing else first["input"],
            "is missing" if missing else reason_of(first),
            source=str(Source(SourceKind.FILE, toml.where_item(WORKERS, index, name))),
            fix=_worker_fix(name),
        ) from None
    except ConfigError as error:
        source = Source(SourceKind.FILE, toml.where_item(WORKERS, index, error.field))
        raise ConfigError(
            f"workers.{error.field}", error.value, error.reason, source=str(source), fix=error.fix
        ) from None


def _worker_fix(name: str) -> str:
    info = WorkerConfig.model_fields[name]
    example = (info.examples or [""])[0]
    shown = f'"{example}"' if isinstance(example, str) else example
    if isinstance(example, dict):
        shown = "{ " + ", ".join(f'{key} = "{value}"' for key, value in example.items()) + " }"
    doc = " ".join((info.description or "").split()).rstrip(".")
    return f"give a value such as {name} = {shown} in [[workers]] of flodl.toml ({doc})"


def _has_null(value: object) -> bool:
    """Return whether a text of a value holds the one character that no path or variable can."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, Mapping):
        return any(map(_has_null, value)) or any(map(_has_null, value.values()))
    return isinstance(value, list) and any(map(_has_null, value))


def _null(name: str, source: Source) -> ConfigError:
    return ConfigError(
        name,
        "…",
        "it holds the character NUL",
        source=str(source),
        fix="take \\u0000 out of the text",
    )


def _no_table(table: str, content: object, source: Source) -> ConfigError:
    heading = f"[[{table}]]" if table == WORKERS else f"[{table}]"
    return ConfigError(
        table,
        content,
        "is the name of a table",
        source=str(source),
        fix=f"write {heading} on a line of its own and its settings below",
    )
