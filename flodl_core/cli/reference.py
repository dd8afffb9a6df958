"""The page docs/cli.md, written from the commands themselves.

What it is: every command with its arguments and options, their defaults, their
environment variables and their effects, as Markdown.
What it is not: help on a terminal; each command prints its own.
Who drives it: `python -m flodl_core.cli.reference > docs/cli.md`; a test
compares that file with what this renders.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flodl_core.cli.index import COMMANDS, OPTIONS_SECTION, load_command
from flodl_core.cli.options import AGENT_TABLES, RUN_TABLES
from flodl_core.config.keys import KEYS

if TYPE_CHECKING:
    from typer._click import Command, Parameter

_DEFAULT: Final = re.compile(r"\s*\[default: (.*)\]$")

_HEAD: Final = """\
# The command line

`flodl COMMAND [ARGUMENTS] [OPTIONS]`. `flodl` alone prints the help, `flodl --version` the
version, `flodl COMMAND --help` what a command takes. This page is written by
`flodl_core.cli.reference`; a test compares the two.

## Where a value comes from
Flags beat `FLODL_…` variables beat `flodl.toml` beat defaults. `flodl config` takes the options
of `flodl headless` and prints every setting with its source. A setting that does not exist is an
error wherever it is written, and an error names field, value, source and fix. `flodl.toml` is
read from the current directory, or from `--config FILE`, or from `FLODL_CONFIG`:

```toml
[run]
hosts = 2
ranks_per_host = 2
[join]
start_mode = "hybrid"
[job]             # options of the job, as --job-arg gives them
step_ms = [5, 5, 20]
[agent]           # for flodl join
devices = "cuda:0"
[net]
timeout_scale = 2.0
```

## JOB
A packaged recipe (`charlm`, `digits`, `synthetic`), `package.module:attribute`, or
`path/to/file.py:attribute`; the attribute is `job` if none is given. `--job-arg key=value` gives
options of the job: `true` and `false` are switches, digits are numbers, commas make a list,
quotes make text of anything.

## Output
`headless` and `status --watch` draw a live view on a terminal, write plain lines elsewhere (also
where `TERM=dumb`; `NO_COLOR` is respected), and with `--json` one object a line. Each has
`event`: `state` (the whole status document, once a second), `run`, `phase`, `joined`, `left`,
`refused`, `epoch`, `eval`, `rank`, `alert`, `wait`, `saved`, `note` (a line for the operator),
`error`, and at the end `summary`. A terminal that hangs up, a closed pipe or a full disk takes
the output away, never the run; one that is stopped, or a reader who pauses, does not hold it up.

`console` needs a terminal that can draw; elsewhere it says so in one line and exits with 2. Its
exit code is that of leaving it, not the run's.

An error is one line on standard error and a line that says what to do; `--verbose` adds the
traceback.

## Exit codes
| code | meaning |
|---|---|
| 0 | done |
| 1 | failed, or the run refused what was asked |
| 2 | usage, configuration or job: nothing was started |
| 3 | the join window failed; for `join`: refused for good |
| 4 | stopped early and saved (`flodl stop`, SIGTERM) |
| 5 | trained, but not saved |
| 6 | `join`: the run could not be reached or could not take this host now |
| 7 | `join`: the run went away |
| 130 | SIGINT; a run that trains is saved, in the join window nothing was trained |

`status --watch` ends with the exit code of the run.

## Tokens
No command takes a token among its words, which everybody on the machine can read: `join` has
`--token-file` and `FLODL_TOKEN`; a run whose token is handed out beforehand has `FLODL_TOKEN`, or
`token` in `[controller]` of the settings file. `status`, `start`, `stop`, `checkpoint` and `drain`
make the operator's token from the join token of the run directory, or from the one they are given.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One argument or option."""

    names: tuple[str, ...]
    """As typed, such as `--port` and `-p`, or the word that stands for an argument."""
    metavar: str
    """What stands for the value; empty for a switch."""
    section: str
    default: str
    env: str
    effect: str


def render_reference() -> str:
    """Return the whole page."""
    commands = [_command_text(entry.name, entry.examples) for entry in COMMANDS.values()]
    return "\n".join([_HEAD, *commands])


def command_rows(name: str) -> tuple[Row, ...]:
    """Return the arguments and options of a command, `--help` left out."""
    command = load_command(name)
    flags = _settings_of(name)
    return tuple(_row(param, flags) for param in command.params)


def _command_text(name: str, examples: Iterable[str]) -> str:
    command = load_command(name)
    rows = command_rows(name)
    sections: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.section == OPTIONS_SECTION):
        sections.setdefault(row.section, []).append(row)
    lines = [f"## flodl {name}", _help(command), "", "```sh", *examples, "```", ""]
    for section, inside in sections.items():
        has_env = any(row.env for row in inside)
        head = (
            ["option", "default", "variable", "effect"]
            if has_env
            else ["option", "default", "effect"]
        )
        lines += [f"**{section}**", "", _cells(head), "|" + "---|" * len(head)]
        for row in inside:
            env = [f"`{row.env}`" if row.env else ""] if has_env else []
            default = f"`{row.default}`" if row.default else ""
            lines.append(_cells([f"`{_option(row)}`", default, *env, row.effect]))
        lines.append("")
    return "\n".join(lines)


def _help(command: "Command") -> str:
    return " ".join((command.help or "").split())


def _option(row: Row) -> str:
    names = ", ".join(row.names)
    return f"{names} {row.metavar}" if row.metavar else names


def _cells(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _settings_of(name: str) -> dict[str, str]:
    """Return the environment variable of each option of a command that is a setting."""
    if name == "join":
        tables: tuple[str, ...] = AGENT_TABLES
    elif name in {"headless", "config", "inspect-job"}:
        tables = RUN_TABLES
    else:
        return {KEYS[key].flag: KEYS[key].env or "" for key in ("run.run_dir", "agent.token_file")}
    return {key.flag: key.env or "" for key in KEYS.values() if key.table in tables}


def _row(param: "Parameter", env: dict[str, str]) -> Row:
    text = " ".join((getattr(param, "help", None) or "").split())
    default = _DEFAULT.search(text)
    is_option = param.param_type_name == "option"
    is_switch = bool(getattr(param, "is_flag", False))
    word = param.metavar or ""
    names = (*param.opts, *param.secondary_opts) if is_option else (word,)
    return Row(
        names=tuple(sorted(names, key=lambda name: not name.startswith("--"))),
        metavar=word if is_option and not is_switch else "",
        section=(getattr(param, "rich_help_panel", None) or OPTIONS_SECTION)
        if is_option
        else "Arguments",
        default=default.group(1) if default else "",
        env=next((env[name] for name in names if name in env), ""),
        effect=_DEFAULT.sub("", text),
    )


if __name__ == "__main__":
    print(render_reference(), end="")
