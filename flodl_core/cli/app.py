"""The command group `flodl`: its words, its exit codes, its errors as lines.

What it is: the one place where an exception becomes a line on standard error and
an exit code.
What it is not: any subcommand; `index` names their modules and loads the one
that is asked for, so that neither torch nor a terminal library is imported here.
Who drives it: `main`, the entry point, and tests.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from flodl_core import __version__
from flodl_core.cli.bare_options import fill_bare_options
from flodl_core.cli.failure import LostOutputError, describe_failure, error_row, tell_failure
from flodl_core.cli.index import COMMANDS, CommandIndex, CommandInterruptedError
from flodl_core.cli.lines import (
    fill_standard_streams,
    flush_standard_streams,
    take_loss,
    write_error_line,
    write_json,
    write_line,
)
from flodl_core.ids import ExitCode

PROGRAM: Final = "flodl"
HELP: Final = "Train one PyTorch model on whatever devices you have, as if they were one."
HELP_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

_INTERRUPTED: Final = {
    "headless": "interrupted; nothing was started",
    "join": "interrupted",
    "inspect-job": "interrupted",
}
"""What an interrupt says that came where the command does not take it itself."""

_JSON_LINES: Final = {"headless": {"--json"}, "status": {"--json", "--watch"}}
"""The commands that print one JSON object a line, and with which options; an error is the last."""
_LIVES_ON: Final = frozenset({"headless", "join", "console"})
"""Commands that do more than print: their exit code is of what they did."""

app = typer.Typer(
    cls=CommandIndex,
    add_completion=False,
    rich_markup_mode=None,
    help=HELP,
    context_settings=HELP_SETTINGS,
)


@app.callback(invoke_without_command=True)
def root(
    ctx: typer.Context,
    is_version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", show_default=False)
    ] = False,
) -> None:
    """Print the version, or the help where no command is named."""
    if is_version:
        write_line(f"{PROGRAM} {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        write_line(ctx.get_help())


def run_command(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: the words after the program's name; the process's own if None.
    """
    words = fill_bare_options(sys.argv[1:] if argv is None else argv)
    options = words[: words.index("--")] if "--" in words else words
    named = words[0] if words and words[0] in COMMANDS else ""
    command = f"{PROGRAM} {named}" if named else PROGRAM
    has_json_lines = named in _JSON_LINES and _JSON_LINES[named].issubset(options)
    fill_standard_streams()
    group = typer.main.get_command(app)
    try:
        code = group.main(args=words, prog_name=PROGRAM, standalone_mode=False)
    except (KeyboardInterrupt, CommandInterruptedError):
        code = ExitCode.INTERRUPTED_SAVED
        if (said := _INTERRUPTED.get(named)) is not None:
            if has_json_lines:
                write_json(error_row(CommandInterruptedError(said)))
            write_error_line(said)
    except SystemExit as error:
        code = error.code
    except BaseException as error:
        if has_json_lines:
            write_json(error_row(describe_failure(error, command=command)))
        is_verbose = not {"-v", "--verbose"}.isdisjoint(options)
        code = tell_failure(error, command=command, is_verbose=is_verbose)
    flush_standard_streams()
    if (lost := take_loss()) is not None and not code and named not in _LIVES_ON:
        code = tell_failure(LostOutputError(command, lost), command=command, is_verbose=False)
    return code if isinstance(code, int) else 0
