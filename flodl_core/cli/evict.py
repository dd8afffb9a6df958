"""`flodl evict`: end one rank of a run.

What it is: one request, and its answer in words.
What it is not: the ending; the rank's host does that, and the others go on.
Who drives it: `index`.
"""

from typing import Annotated

import typer

from flodl_core.cli.lines import write_line
from flodl_core.cli.options import ConfigFile, Verbose
from flodl_core.cli.run_options import Attach, RunDir, RunName, TokenFile, Wanted

RankNumber = Annotated[
    int,
    typer.Argument(
        metavar="RANK",
        min=0,
        help="The rank's number, as `flodl status` shows it.",
        show_default=False,
    ),
]


def command(
    rank: RankNumber,
    attach: Attach = None,
    run: RunName = None,
    run_dir: RunDir = None,
    token_file: TokenFile = None,
    config_file: ConfigFile = None,
    is_verbose: Verbose = False,
) -> int:
    """End one rank of a run; what it had not averaged yet is trained by the others.

    Its process is asked to end, then killed. To have a whole host leave without a loss, drain it.
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
        answer = found.act("/evict", rank=str(rank)).body
        follows = answer.get("what_follows") or "the others train its samples"
        write_line(f"{found.label}: evicting rank {rank}; {follows}")
    return 0
