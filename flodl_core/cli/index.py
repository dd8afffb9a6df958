"""The list of subcommands; a command's module is imported when it is asked for.

What it is: a table of names, and the group and command classes that load and
show them. Help needs no terminal library: options stand under their sections
as plain text.
What it is not: a command.
Who drives it: `main` dispatches through it, `reference` reads it.
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Final

import typer
from typer.core import TyperCommand, TyperGroup

from flodl_core.errors import FlodlError
from flodl_core.ids import ExitCode

if TYPE_CHECKING:
    from typer._click import Command, Context, HelpFormatter

EXAMPLES: Final = """\
Examples:
  flodl console charlm --hosts 2 --ranks-per-host 2
  flodl headless charlm --hosts 2 --ranks-per-host 2
  flodl headless train.py:job --ranks 4 --epochs 10 --save-path out/model
  flodl headless digits --bind 0.0.0.0 --start manual
  FLODL_TOKEN=... flodl join 10.0.0.5:1337
  flodl start
  flodl status --watch
  flodl stop

JOB is a packaged recipe (charlm, digits, synthetic), package.module:attribute or
path/to/file.py:attribute. Settings may also stand in flodl.toml and in FLODL_...
variables; `flodl config` prints each with its source.
"""

OPTIONS_SECTION: Final = "Options"


class UnknownCommandError(FlodlError):
    """There is no command of that name."""

    exit_code = ExitCode.USAGE


class CommandInterruptedError(FlodlError):
    """SIGINT came where the command does not take it itself."""

    exit_code = ExitCode.INTERRUPTED_SAVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One subcommand as the list shows it."""

    name: str
    module: str
    """In `flodl_core.cli`; its function `command` is the command."""
    summary: str
    examples: tuple[str, ...]


COMMANDS: Final = {
    entry.name: entry
    for entry in (
        Entry(
            name="console",
            module="console",
            summary="Watch a run in the terminal, act on it, launch one, or play a record.",
            examples=(
                "flodl console train.py:job --hosts 2 --ranks-per-host 2 --start manual",
                "flodl console --attach 10.0.0.5:1337 --token-file token",
                "flodl console --replay runs/night-0123456789abcdef",
                "flodl console --demo lost --demo-ranks 64",
            ),
        ),
        Entry(
            name="headless",
            module="headless",
            summary="Launch a run and train it, with its progress as lines or a live view.",
            examples=(
                "flodl headless charlm --hosts 2 --ranks-per-host 2",
                "flodl headless train.py:job --ranks 4 --job-arg lr=3e-4 --save-path out/model",
                "flodl headless synthetic --ranks 3 --step-ms 5,5,20 --json",
            ),
        ),
        Entry(
            name="join",
            module="join",
            summary="Bring this host's devices into a run.",
            examples=(
                "flodl join 10.0.0.5:1337 --token-file token",
                "FLODL_TOKEN=... flodl join 10.0.0.5:1337 --job train.py:job --devices cuda:0",
            ),
        ),
        Entry(
            name="status",
            module="status",
            summary="Show where a run stands, once or until it ends.",
            examples=("flodl status", "flodl status 10.0.0.5:1337 --json", "flodl status --watch"),
        ),
        Entry(
            name="start",
            module="start",
            summary="Close the join window of a run and start its training.",
            examples=("flodl start", "flodl start --run night"),
        ),
        Entry(
            name="stop",
            module="stop",
            summary="End the window of a run, save and end it.",
            examples=("flodl stop", "flodl stop --now"),
        ),
        Entry(
            name="checkpoint",
            module="checkpoint",
            summary="Have a run write a checkpoint at its next commit.",
            examples=("flodl checkpoint", "flodl checkpoint 10.0.0.5:1337"),
        ),
        Entry(
            name="drain",
            module="drain",
            summary="Have a host leave a run without losing what its ranks did.",
            examples=("flodl drain blue", "flodl drain blue --attach 10.0.0.5:1337"),
        ),
        Entry(
            name="evict",
            module="evict",
            summary="End one rank of a run; the others go on.",
            examples=("flodl evict 3", "flodl evict 3 --attach 10.0.0.5:1337"),
        ),
        Entry(
            name="simulate",
            module="simulate",
            summary="Play a cohort of given speeds under the real scheduler, without a run.",
            examples=(
                "flodl simulate cadence --speeds 5,5,60",
                "flodl simulate cadence --speeds 10,20,40,80 --jitter 0.2 --overhead-target 0.02",
                "flodl simulate cadence --step-at 20:1:10 --death 30:2 --hiccup 10:5000 --no-plot",
            ),
        ),
        Entry(
            name="probe",
            module="probe",
            summary="Look at this machine, and at what a job would gain from its devices.",
            examples=(
                "flodl probe",
                "flodl probe train.py:job --ranks 2 --devices cuda:0,cuda:1",
                "flodl probe --controller 10.0.0.5:1337 --token-file token --json",
            ),
        ),
        Entry(
            name="manifests",
            module="manifests",
            summary="Print a run as manifests of Kubernetes.",
            examples=(
                "flodl manifests charlm --image registry/flodl:1 --hosts 4 | kubectl apply -f -",
                "flodl manifests pkg.train:job --image registry/train:1 --hosts 4 --gpus 8",
            ),
        ),
        Entry(
            name="inspect-job",
            module="inspect_job",
            summary="Build a job once and print what it is, as JSON.",
            examples=("flodl inspect-job train.py:job", "flodl inspect-job charlm"),
        ),
        Entry(
            name="config",
            module="config",
            summary="Print every setting with its value and where the value comes from.",
            examples=("flodl config", "FLODL_SEED=7 flodl config --epochs 3 --json"),
        ),
    )
}
"""Every subcommand by name, in the order of the help."""


class SectionedCommand(TyperCommand):
    """A command whose options are shown under the sections they were given."""

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the arguments, then one list of options a section."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                own = getattr(param, "rich_help_panel", None)
                is_argument = param.param_type_name == "argument"
                title = "Arguments" if is_argument else own or OPTIONS_SECTION
                sections.setdefault(title, []).append(record)
        if OPTIONS_SECTION in sections:
            sections[OPTIONS_SECTION] = sections.pop(OPTIONS_SECTION)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the examples as they stand."""
        if self.epilog:
            formatter.write(f"\n{self.epilog}\n")


class CommandIndex(TyperGroup):
    """The group of all subcommands; loads each when it is named."""

    def list_commands(self, ctx: "Context") -> list[str]:
        """Return the names in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: "Context", cmd_name: str) -> "Command | None":
        """Load a command.

        Raises:
            UnknownCommandError: there is none of that name; the closest is named.
        """
        if cmd_name.startswith("-"):
            return None
        return load_command(cmd_name)

    def invoke(self, ctx: "Context") -> object:
        """Run what was named.

        Raises:
            CommandInterruptedError: SIGINT; the library below would make a bare code of it.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise CommandInterruptedError("interrupted") from error

    def format_commands(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the list from the table, so that help loads no command."""
        with formatter.section("Commands"):
            formatter.write_dl([(entry.name, entry.summary) for entry in COMMANDS.values()])

    def format_epilog(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write the examples as they stand."""
        formatter.write(f"\n{EXAMPLES}")


def load_command(name: str) -> "Command":
    """Import a command's module and return the command.

    Raises:
        UnknownCommandError: there is none of that name; the closest is named.
    """
    entry = COMMANDS.get(name)
    if entry is None:
        near = difflib.get_close_matches(name, COMMANDS, n=1)
        fix = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"
        raise UnknownCommandError(f"there is no command {name!r}", fix=fix)
    function: Callable[..., int] = import_module(f"flodl_core.cli.{entry.module}").command
    one = typer.Typer(add_completion=False, rich_markup_mode=None)
    one.command(
        entry.name,
        cls=SectionedCommand,
        help=" ".join((function.__doc__ or entry.summary).split()),
        epilog="\n".join(["Examples:", *(f"  {line}" for line in entry.examples)]),
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )(function)
    return typer.main.get_command(one)
