"""The words by which a command names the run that it is about.

What it is: five options and their values in one record.
What it is not: the search for the run; `attach` does that, and loads what it takes.
Who drives it: `status`, `start`, `stop`, `checkpoint` and `drain`, at their import.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

Address: TypeAlias = Annotated[
    str | None,
    typer.Argument(
        metavar="HOST:PORT",
        help="The run's address; the newest live run of --run-dir if not given.",
        show_default=False,
    ),
]
Attach: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--attach", metavar="HOST:PORT", help="The same as the argument.", show_default=False
    ),
]
RunName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--run",
        metavar="NAME",
        help="Take the run of this name, id or directory; where none has it, the one whose begins "
        "so.",
        show_default=False,
    ),
]
RunDir: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--run-dir",
        metavar="DIR",
        help="The directory of all runs, or one run's own. [default: runs]",
        show_default=False,
    ),
]
TokenFile: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        help="File with the run's join token; its operator token is made from it. FLODL_TOKEN "
        "does the same; the run directory's own is used where it is on this machine.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line said about the run."""

    address: str | None = None
    attach: str | None = None
    run: str | None = None
    run_dir: str | None = None
    token_file: str | None = None
    config_file: Path | None = None
