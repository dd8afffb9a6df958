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
from flodl_core.cli.failure import tell_failure
from flodl_core.cli.index import COMMANDS, CommandIndex, CommandInterruptedError
from flodl_core.cli.lines import fill_standard_streams, flush_standard_streams, write_error_line
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
        typer.echo(f"{PROGRAM} {__version__}")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())


def run_command(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: the words after the program's name; the process's own if None.
    """
    words = fill_bare_options(sys.argv[1:] if argv is None else argv)
    fill_standard_streams()
    group = typer.main.get_command(app)
    try:
        code = group.main(args=words, prog_name=PROGRAM, standalone_mode=False)
    except (KeyboardInterrupt, CommandInterruptedError):
        if words and (said := _INTERRUPTED.get(words[0])) is not None:
            write_error_line(said)
        code = ExitCode.INTERRUPTED_SAVED
    except SystemExit as error:
        code = error.code
    except BaseException as error:
        options = words[: words.index("--")] if "--" in words else words
        code = tell_failure(
            error,
            command=f"{PROGRAM} {words[0]}" if words and words[0] in COMMANDS else PROGRAM,
            is_verbose=not {"-v", "--verbose"}.isdisjoint(options),
        )
    flush_standard_streams()
    return code if isinstance(code, int) else 0
