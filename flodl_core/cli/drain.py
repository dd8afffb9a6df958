"""`flodl drain`: have a host leave a run without a loss.

What it is: one request, and its answer in words.
What it is not: the leaving; the run's ranks do that at their next average.
Who drives it: `index`.
"""

from typing import Annotated

import typer

from flodl_core.cli.lines import write_line
from flodl_core.cli.options import ConfigFile, Verbose
from flodl_core.cli.run_options import Attach, RunDir, RunName, TokenFile, Wanted

HostLabel = Annotated[
    str,
    typer.Argument(
        metavar="HOST",
        help="The host's label, as `flodl status` shows it.",
        show_default=False,
    ),
]


def command(
    host: HostLabel,
    attach: Attach = None,
    run: RunName = None,
    run_dir: RunDir = None,
    token_file: TokenFile = None,
    config_file: ConfigFile = None,
    is_verbose: Verbose = False,
) -> int:
    """Have a host leave a run: its ranks bring what they have done, hand back the rest and end.

    Nothing is lost and nothing is repeated; the other hosts train on.
    """
    from flodl_core.cli.attach import attached

    wanted = Wanted(
        attach=attach,
        run=run,
        run_dir=run_dir,
        token_file=token_file,
        config_file=config_file,
    )
    with attached(wanted) as found:
        answer = found.act("/drain", host=host).body
        follows = answer.get("what_follows") or "its ranks leave at the next average"
        write_line(f"{found.label}: draining {host}; {follows}")
    return 0
