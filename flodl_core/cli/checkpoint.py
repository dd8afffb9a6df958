"""`flodl checkpoint`: have a run save what it has, and go on.

What it is: one request, and its answer in words.
What it is not: the writer of checkpoints.
Who drives it: `index`.
"""

from flodl_core.cli.lines import write_line
from flodl_core.cli.options import ConfigFile, Verbose
from flodl_core.cli.run_options import Address, Attach, RunDir, RunName, TokenFile, Wanted


def command(
    address: Address = None,
    attach: Attach = None,
    run: RunName = None,
    run_dir: RunDir = None,
    token_file: TokenFile = None,
    config_file: ConfigFile = None,
    is_verbose: Verbose = False,
) -> int:
    """Have a run write a checkpoint at its next commit; it trains on.

    `flodl status` shows the newest one that is complete.
    """
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
        answer = found.act("/checkpoint").body
        follows = answer.get("what_follows") or "saved at the next commit"
        write_line(f"{found.label}: checkpoint requested; {follows}")
    return 0
