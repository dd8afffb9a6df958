"""`flodl start`: the operator closes the join window.

What it is: one request, and its answer in words.
What it is not: the switch itself; the run decides whether it can start.
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
    """Close the join window of a run with start mode manual or hybrid.

    The run refuses while its quorum is not met, and says how many ranks it has.
    """
    from flodl_core.cli.attach import attached
    from flodl_core.telemetry.quantities import plural

    wanted = Wanted(
        address=address,
        attach=attach,
        run=run,
        run_dir=run_dir,
        token_file=token_file,
        config_file=config_file,
    )
    with attached(wanted) as found:
        answer = found.act("/start").body
        joined, quorum = answer.get("joined_ranks"), answer.get("min_rank_start")
        ranks = plural(joined, "rank") if isinstance(joined, int) else f"{joined} ranks"
        write_line(f"{found.label}: the world forms with {ranks} (quorum {quorum})")
    return 0
