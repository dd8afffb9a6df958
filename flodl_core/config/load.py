"""Values from flags, environment and file, resolved once; the only reader of the environment.

What it is: flags beat `FLODL_…` variables beat `flodl.toml` beat defaults. Each
value keeps its source, so that an error and `flodl config` can name it.
What it is not: what values mean (`schema`) or depend on (`window`, `placement`).
Who drives it: each command once, at its start, before anything else.

A setting that does not exist is an error wherever it is written, with the
nearest one that does. Ceilings are multiplied by `net.timeout_scale`, after
they were validated as given.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from flodl_core.config.agent_schema import AgentConfig
from flodl_core.config.complaints import refused_kind, refused_name, refused_rule, refused_value
from flodl_core.config.file_values import read_settings, read_workers
from flodl_core.config.job_args import parse_job_args
from flodl_core.config.keys import (
    ENV_CHILD_PREFIX,
    ENV_CONFIG_FILE,
    ENV_PREFIX,
    JOB_ARGS,
    JOB_TABLE,
    KEYS,
    TABLES,
    Key,
)
from flodl_core.config.mode import resolve_mode
from flodl_core.config.place_rules import derive_placement
from flodl_core.config.rules import JOIN_FIX, review_token
from flodl_core.config.run_rules import review_heartbeats
from flodl_core.config.schema import (
    JoinConfig,
    NetConfig,
    RunConfig,
    default_cap_s,
    derived_ceiling_s,
)
from flodl_core.config.sources import Resolved, Source, SourceKind
from flodl_core.config.table import Settings
from flodl_core.config.toml_file import FILE_NAME, TomlFile, read_toml
from flodl_core.config.values import MAX_DURATION_S
from flodl_core.config.workers import WorkerConfig
from flodl_core.errors import ConfigError

SettingsT = TypeVar("SettingsT", bound=Settings)
Values = dict[str, Resolved[object]]
"""By dotted name."""

DEFAULT: Final = Source(SourceKind.DEFAULT)
MAX_TOKEN_FILE_BYTES: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """All that a command which launches or looks for a run was told."""

    run: RunConfig
    join: JoinConfig
    net: NetConfig
    resolved: Mapping[str, Resolved[object]]
    """Every value with its source, by dotted name, in the order of `KEYS`."""
    unscaled: Mapping[str, float]
    """Ceilings as they were given, before `net.timeout_scale`, by dotted name."""
    workers: tuple[tuple[WorkerConfig, Source], ...] = ()
    """The hosts that the file lists, each with the line that it begins at."""
    config_file: Path | None = None
    """The file that was read; None if there was none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedAgent:
    """All that `flodl join` was told."""

    agent: AgentConfig
    net: NetConfig
    resolved: Mapping[str, Resolved[object]]


def load_run(
    flags: Mapping[str, object],
    *,
    environ: Mapping[str, str] | None = None,
    config_file: Path | None = None,
    directory: Path | None = None,
    needs_job: bool = False,
) -> LoadedRun:
    """Resolve the settings of a run.

    Args:
        flags: by the setting's name without its table; None is not given.
            `job_args` is a sequence of `key=value` texts or a mapping.
        environ: instead of the process's own.
        config_file: `--config`; it must exist.
        directory: where `flodl.toml` is looked for; the current one if None.
        needs_job: whether a run without a job is refused.

    Raises:
        ConfigError: a value cannot be used, or a name is unknown.
    """
    env = dict(os.environ) if environ is None else dict(environ)
    toml = _find_file(env, config_file, directory)
    values = _gather(("run", "join", "net"), flags, env=env, toml=toml)
    net = _build(NetConfig, "net", values)
    run = _build(RunConfig, "run", values)
    join = _build(JoinConfig, "join", values)
    _check_mode(run.mode, _source(values, "run.mode"))
    if needs_job and run.job is None:
        raise ConfigError(
            "run.job",
            None,
            "no job was given",
            source=str(DEFAULT),
            fix="name a recipe (charlm), package.module:attribute or path/file.py:attribute",
        )
    unscaled = {**_ceilings(run, "run"), **_ceilings(join, "join")}
    run = _scaled(run, "run", values, scale=net.timeout_scale)
    _check_heartbeats(run, values)
    join = _scaled(join, "join", values, scale=net.timeout_scale)
    workers = read_workers(toml) if toml is not None else ()
    run, join = derive_placement(run, join, values, n_workers=len(workers))
    run, join = _derived(run, join, values, scale=net.timeout_scale)
    models: dict[str, Settings] = {"run": run, "join": join, "net": net}
    return LoadedRun(
        run=run,
        join=join,
        net=net,
        resolved=_resolved(models, values),
        unscaled=unscaled,
        workers=workers,
        config_file=toml.path.absolute() if toml is not None else None,
    )


def terminal_type(environ: Mapping[str, str] | None = None) -> str:
    """Return what the terminal calls itself; empty if it does not."""
    return (os.environ if environ is None else environ).get("TERM", "")


def load_agent(
    flags: Mapping[str, object],
    *,
    environ: Mapping[str, str] | None = None,
    config_file: Path | None = None,
    directory: Path | None = None,
) -> LoadedAgent:
    """Resolve the settings of `flodl join`; a token file is read here.

    Raises:
        ConfigError: a value cannot be used, or a name is unknown.
    """
    env = dict(os.environ) if environ is None else dict(environ)
    toml = _find_file(env, config_file, directory)
    values = _gather(("agent", "net"), flags, env=env, toml=toml)
    net = _build(NetConfig, "net", values)
    agent = _build(AgentConfig, "agent", values)
    agent = _with_token_file(agent, values)
    agent = _scaled(agent, "agent", values, scale=net.timeout_scale)
    models: dict[str, Settings] = {"agent": agent, "net": net}
    return LoadedAgent(agent=agent, net=net, resolved=_resolved(models, values))


def _gather(
    tables: tuple[str, ...],
    flags: Mapping[str, object],
    *,
    env: Mapping[str, str],
    toml: TomlFile | None,
) -> Values:
    """Return what was given, unjudged, the strongest source of each setting."""
    values: Values = {}
    if toml is not None:
        values.update(read_settings(toml))
    values.update(_from_environment(env))
    values = {name: value for name, value in values.items() if KEYS[name].table in tables}
    values.update(_from_flags(flags, tables))
    _merge_job_args(values, toml)
    for name, given in values.items():
        key = KEYS[name]
        if given.value == "" or (isinstance(given.value, bool) and not _is_switch(key)):
            raise refused_kind(key, given.value, given.source)
    return values


def _find_file(
    env: Mapping[str, str], file: Path | None, directory: Path | None
) -> TomlFile | None:
    if file is not None:
        return read_toml(file)
    if named := env.get(ENV_CONFIG_FILE):
        return read_toml(Path(named))
    usual = (Path() if directory is None else directory) / FILE_NAME
    return read_toml(usual) if usual.is_symlink() or usual.exists() else None


def _from_environment(env: Mapping[str, str]) -> Values:
    values: Values = {}
    by_env: dict[str, list[Key]] = {}
    for key in KEYS.values():
        if key.env is not None:
            by_env.setdefault(key.env, []).append(key)
    for variable in sorted(env):
        if not variable.startswith(ENV_PREFIX) or variable == ENV_CONFIG_FILE:
            continue
        if variable.startswith(ENV_CHILD_PREFIX):
            continue
        source = Source(SourceKind.ENVIRONMENT, variable)
        if variable not in by_env:
            raise refused_name(variable, source, known=[*by_env, ENV_CONFIG_FILE])
        for key in by_env[variable]:
            values[key.dotted] = Resolved(env[variable].strip(), source)
    return values


def _from_flags(flags: Mapping[str, object], tables: Iterable[str]) -> Values:
    names = {name: f"{table}.{name}" for table in tables for name in TABLES[table].model_fields}
    names["net_timeout_scale"] = "net.timeout_scale"
    values: Values = {}
    for name, value in flags.items():
        if name not in names:
            raise refused_name(name, Source(SourceKind.FLAG, name), known=names)
        if value is not None:
            key = KEYS[names[name]]
            values[key.dotted] = Resolved(value, Source(SourceKind.FLAG, key.flag))
    return values


def _merge_job_args(values: Values, toml: TomlFile | None) -> None:
    """Put the options of the job together, one by one: flags beat [job] beats run.job_args."""
    given = values.get(JOB_ARGS)
    table = toml.tables.get(JOB_TABLE) if toml is not None else None
    if given is None and table is None:
        return
    merged: dict[str, object] = {}
    sources = []
    from_file = given is not None and given.source.kind is SourceKind.FILE
    rows = [(table, Source(SourceKind.FILE, toml.where(JOB_TABLE) if toml else ""))]
    rows.insert(0 if from_file else 1, (given.value, given.source) if given else (None, DEFAULT))
    for args, source in rows:
        if args is not None:
            merged.update(parse_job_args(args, source=source))
            sources.append(source)
    values[JOB_ARGS] = Resolved(merged, sources[-1])


def _is_switch(key: Key) -> bool:
    default: object = TABLES[key.table].model_fields[key.name].default
    return isinstance(default, bool) or key.dotted == "run.sample_log"


def _build(model: type[SettingsT], table: str, values: Values) -> SettingsT:
    """Build one model from what was given.

    Raises:
        ConfigError: with the source of the value that is to blame.
    """
    raw: dict[str, object] = {}
    for name in model.model_fields:
        if (given := values.get(f"{table}.{name}")) is not None:
            raw[name] = given.value
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        location = error.errors(include_url=False, include_context=False)[0]["loc"]
        dotted = f"{table}.{location[0]}"
        raise refused_value(KEYS[dotted], error, _source(values, dotted)) from None
    except ConfigError as error:
        dotted = f"{table}.{error.field}"
        raise refused_rule(KEYS[dotted], error, _source(values, dotted)) from None


def _check_mode(mode: str, source: Source) -> None:
    try:
        resolve_mode(mode)
    except ConfigError as error:
        raise refused_rule(KEYS["run.mode"], error, source) from None


def _source(values: Values, dotted: str) -> Source:
    given = values.get(dotted)
    return DEFAULT if given is None else given.source


def _scaled(model: SettingsT, table: str, values: Values, *, scale: float) -> SettingsT:
    """Return the model with its ceilings multiplied, and note that in their sources."""
    if scale == 1.0:
        return model
    update: dict[str, float] = {}
    for dotted, value in _ceilings(model, table).items():
        scaled = min(value * scale, MAX_DURATION_S)
        update[KEYS[dotted].name] = scaled
        source = _source(values, dotted)
        where = f"{source.where} x net.timeout_scale {scale:g}".strip()
        values[dotted] = Resolved(scaled, Source(source.kind, where))
    return model.model_copy(update=update)


def _ceilings(model: Settings, table: str) -> dict[str, float]:
    """Return the values of a model that grow with the scale, by dotted name."""
    given = {f"{table}.{name}": getattr(model, name) for name in type(model).model_fields}
    return {
        dotted: value
        for dotted, value in given.items()
        if KEYS[dotted].scaled and value is not None
    }


def _check_heartbeats(run: RunConfig, values: Values) -> None:
    """Refuse a scale that makes one late heartbeat a death.

    Raises:
        ConfigError: the scaled silence is shorter than two intervals.
    """
    try:
        review_heartbeats(interval_s=run.heartbeat_interval_s, timeout_s=run.heartbeat_timeout_s)
    except ConfigError as error:
        dotted = "run.heartbeat_timeout_s"
        fix = "raise it or net.timeout_scale, or shorten heartbeat_interval_s"
        raise ConfigError(
            dotted, error.value, error.reason, source=str(_source(values, dotted)), fix=fix
        ) from None


def _derived(
    run: RunConfig, join: JoinConfig, values: Values, *, scale: float
) -> tuple[RunConfig, JoinConfig]:
    """Fill in the ceilings that other settings give."""
    ceiling_s = derived_ceiling_s(run.heartbeat_timeout_s, scale=scale)
    update: dict[str, float] = {}
    for name in ("progress_timeout_s", "stall_timeout_s"):
        if getattr(run, name) is None:
            update[name] = ceiling_s
            where = "from heartbeat_timeout_s"
            values[f"run.{name}"] = Resolved(ceiling_s, Source(SourceKind.DERIVED, where))
    run = run.model_copy(update=update)
    if join.max_join_timeout_s is None:
        cap_s = max(default_cap_s(join.start_mode) * scale, join.join_timeout_s)
        where = "from start_mode and join_timeout_s"
        values["join.max_join_timeout_s"] = Resolved(cap_s, Source(SourceKind.DERIVED, where))
        join = join.model_copy(update={"max_join_timeout_s": cap_s})
    return run, join


def _resolved(models: Mapping[str, Settings], values: Values) -> dict[str, Resolved[object]]:
    """Return each setting's final value with its source."""
    return {
        key.dotted: Resolved(getattr(models[key.table], key.name), _source(values, key.dotted))
        for key in KEYS.values()
        if key.table in models
    }


def _with_token_file(agent: AgentConfig, values: Values) -> AgentConfig:
    """Take the token from the file, unless a stronger source gave it directly."""
    if agent.token_file is None:
        return agent
    source = _source(values, "agent.token_file")
    direct = values.get("agent.token")
    strength = list(SourceKind).index
    if direct is not None and strength(direct.source.kind) <= strength(source.kind):
        return agent
    token = _read_token(agent.token_file, source)
    values["agent.token"] = Resolved(token, Source(SourceKind.DERIVED, f"from {agent.token_file}"))
    return agent.model_copy(update={"token": token})


def _read_token(path: Path, source: Source) -> str:
    try:
        with path.open("rb") as stream:
            token = stream.read(MAX_TOKEN_FILE_BYTES).decode("ascii", "replace").strip().lower()
    except OSError as error:
        raise ConfigError(
            "agent.token_file",
            str(path),
            f"cannot be read ({error.strerror})",
            source=str(source),
            fix="give the path of the run's token file",
        ) from error
    review_token("agent.token_file", token, source=f"{source}, {path}", fix=JOIN_FIX, may_pin=True)
    return token
