"""`flodl stop`: end a run, with or without finishing what is under way.

What it is: one request, and its answer in words.
What it is not: a signal; the run may be on another machine.
Who drives it: `index`.
"""

from typing import Annotated

import typer

from flodl_core.cli.lines import write_line
from flodl_core.cli.options import ConfigFile, Verbose
from flodl_core.cli.run_options import Address, Attach, RunDir, RunName, TokenFile, Wanted


def command(
    address: Address = None,
    attach: Attach = None,
    run: RunName = None,
    run_dir: RunDir = None,
    token_file: TokenFile = None,
    is_now: Annotated[
        bool,
        typer.Option("--now", help="End at once: the window is not finished.", show_default=False),
    ] = False,
    config_file: ConfigFile = None,
    is_verbose: Verbose = False,
) -> int:
    """Finish the window of a run, save and end it; with --now end it at once."""
    from flodl_core.cli.attach import attached

    wanted = Wanted(
        address=address,
        attach=attach,
        run=run,
        run_dir=run_dir,
        token_file=token_file,
        config_file=config_file,
    )
    with attached(wanted) as found:
        answer = found.act("/stop", kind="now" if is_now else "save").body
        usual = "ending at once" if is_now else "finishing the window, then saving"
        follows = str(answer.get("what_follows") or usual)
        write_line(f"{found.label}: {follows}")
    return 0
