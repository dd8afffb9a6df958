"""The entry point of `flodl`: one line of words in, one exit code out.

What it is: the command group, and the one place where an exception becomes a
line on standard error and an exit code.
What it is not: any subcommand; `index` names their modules and loads the one
that is asked for, so that neither torch nor a terminal library is imported here.
Who drives it: the console script `flodl`, `python -m flodl_core.cli.main`, tests.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, Final

import typer

from flodl_core import __version__
from flodl_core.cli.failure import tell_failure
from flodl_core.cli.index import COMMANDS, CommandIndex
from flodl_core.cli.lines import fill_standard_streams, flush_standard_streams

PROGRAM: Final = "flodl"
HELP: Final = "Train one PyTorch model on whatever devices you have, as if they were one."
HELP_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 100}

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


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Args:
        argv: the words after the program's name; the process's own if None.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    fill_standard_streams()
    group = typer.main.get_command(app)
    try:
        code = group.main(args=words, prog_name=PROGRAM, standalone_mode=False)
    except KeyboardInterrupt:
        code = 130
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


if __name__ == "__main__":
    sys.exit(main())
