"""Options of the command line, derived from the settings.

What it is: for each setting one option with its help, default and section; and
a decorator that gives a command those of some tables.
What it is not: any check of a value. Every value is passed on as text, so that
one place refuses it, with field, value, source and fix.
Who drives it: the commands, at their import.
"""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Concatenate, Final, ParamSpec, TypeAlias

import typer

from flodl_core.config.keys import JOB_ARGS, KEYS, TABLES, Key

Params = ParamSpec("Params")

Flags: TypeAlias = dict[str, object]
"""What was given on the command line, by the name that `load_run` and `load_agent` take."""

RUN_TABLES: Final = ("run", "join", "net")
AGENT_TABLES: Final = ("agent", "net")

SECTIONS: Final = {
    "run": "Run",
    "join": "Join window",
    "agent": "This host",
    "net": "Network",
}

ConfigFile: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Settings file to read instead of flodl.toml in the current directory.",
        show_default=False,
    ),
]
Verbose: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Show the traceback of an error, and log at debug level.",
        show_default=False,
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print JSON instead of text.", show_default=False)
]
JobName: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="A recipe, package.module:attribute or path/file.py:attribute.",
        show_default=False,
    ),
]
StepMs: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--step-ms",
        metavar="A,B,...",
        help="Extra milliseconds a step for each rank of the recipe synthetic; "
        "the same as --job-arg step_ms=A,B,...",
        rich_help_panel=SECTIONS["run"],
        show_default=False,
    ),
]

_METAVARS: Final = {
    JOB_ARGS: "KEY=VALUE",
    "run.on_event": "CMD",
    "run.on_event_classes": "A,B,...",
    "run.devices": "A,B,...",
    "run.pin_counts": "A,B,...",
    "run.speed_ratio": "RANK:R",
    "run.partition_ratios": "A,B,...",
    "run.callback_rank": "WHO",
    "agent.devices": "A,B,...",
    "run.sample_log": "FILE|auto",
    "run.save_path": "STEM",
    "run.resume": "[STEM|DIR|auto]",
    "run.max_failure": "N|P%",
    "join.bind": "ADDRESS",
    "join.tls_identity": "FILE",
    "agent.job": "JOB",
    "net.timeout_scale": "X",
}


def setting_keys(tables: tuple[str, ...]) -> tuple[Key, ...]:
    """Return the settings of the tables that get an option.

    A secret gets none: everybody on a machine can read the words of its commands.
    """
    return tuple(
        key
        for key in KEYS.values()
        if key.table in tables and not key.secret and key.flag.startswith("--")
    )


def with_settings(
    keys: tuple[Key, ...],
) -> Callable[[Callable[Concatenate[Flags, Params], int]], Callable[Params, int]]:
    """Return a decorator: the command gets the options of `keys` as its first argument."""

    def decorate(command: Callable[Concatenate[Flags, Params], int]) -> Callable[Params, int]:
        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]

        def run(*words: Params.args, **given: Params.kwargs) -> int:
            flags = {flag_name(key): given.pop(flag_name(key), None) for key in keys}
            return command(flags, *words, **given)

        run.__doc__ = command.__doc__
        run.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            sorted([*own, *map(_parameter, keys)], key=lambda parameter: parameter.kind)
        )
        return run

    return decorate


def flag_name(key: Key) -> str:
    """Return the name under which the loader takes a setting from the command line."""
    return f"net_{key.name}" if key.table == "net" else key.name


def with_step_ms(flags: Mapping[str, object], step_ms: str | None) -> Flags:
    """Return the flags with the shortcut written out as an option of the job."""
    if step_ms is None:
        return dict(flags)
    given = flags.get("job_args") or ()
    assert isinstance(given, list | tuple)
    return {**flags, "job_args": [*given, f"step_ms={step_ms}"]}


def _parameter(key: Key) -> inspect.Parameter:
    """Return a setting as a parameter of a command."""
    is_switch = isinstance(TABLES[key.table].model_fields[key.name].default, bool)
    annotation: object = str | None
    if is_switch:
        annotation = bool | None
    elif key.dotted == JOB_ARGS:
        annotation = list[str] | None
    default = default_text(key)
    option = typer.Option(
        None,
        f"{key.flag}/--no-{key.flag[2:]}" if is_switch else key.flag,
        help=f"{key.doc} [default: {default}]" if default else key.doc,
        metavar=None if is_switch else metavar(key),
        rich_help_panel=SECTIONS[key.table],
        show_default=False,
    )
    return inspect.Parameter(
        flag_name(key), inspect.Parameter.KEYWORD_ONLY, default=option, annotation=annotation
    )


def metavar(key: Key) -> str:
    """Return what stands for the value in the help."""
    if key.dotted in _METAVARS:
        return _METAVARS[key.dotted]
    kind = str(TABLES[key.table].model_fields[key.name].annotation)
    if "float" in kind:
        return "SECONDS" if key.name.endswith("_s") else "X"
    if "Path" in kind:
        return "FILE" if key.name.endswith("file") else "DIR"
    if "int" in kind:
        return "N"
    return key.name.rpartition("_")[2].upper()


def default_text(key: Key) -> str:
    """Return a setting's default as it would be typed; empty where the help's own words say it."""
    value: object = TABLES[key.table].model_fields[key.name].get_default(call_default_factory=True)
    if value is None or value in ((), {}):
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
