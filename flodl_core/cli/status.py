"""`flodl status`: where a run stands, once or until it ends.

What it is: the status document as text or JSON.
What it is not: the poller of --watch; that is `watch`.
Who drives it: `index`.
"""

import json
import time
from typing import Annotated

import typer

from flodl_core.cli.lines import write_json, write_line
from flodl_core.cli.options import AsJson, ConfigFile, Verbose
from flodl_core.cli.run_options import Address, Attach, RunDir, RunName, TokenFile, Wanted
from flodl_core.ids import ExitCode


def command(
    address: Address = None,
    attach: Attach = None,
    run: RunName = None,
    run_dir: RunDir = None,
    token_file: TokenFile = None,
    is_watching: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Show the run until it ends, and end with its exit code.",
            show_default=False,
        ),
    ] = False,
    as_json: AsJson = False,
    config_file: ConfigFile = None,
    is_verbose: Verbose = False,
) -> int:
    """Show where a run stands; with --watch until it ends.

    A run that does not answer for a moment is asked again for 30 s.
    """
    from flodl_core.cli.attach import attached
    from flodl_core.cli.display import open_display
    from flodl_core.cli.status_text import render_status
    from flodl_core.cli.watch import observed, watch
    from flodl_core.net import clock

    wanted = Wanted(
        address=address,
        attach=attach,
        run=run,
        run_dir=run_dir,
        token_file=token_file,
        config_file=config_file,
    )
    with attached(wanted) as found:
        if is_watching:
            with open_display(as_json=as_json) as display:
                return watch(observed(found), display, pause=time.sleep, now=clock.now)
        if as_json:
            write_json(json.dumps(found.body(), indent=2, ensure_ascii=False))
            return ExitCode.DONE
        for line in render_status(found.document()):
            write_line(line)
    return ExitCode.DONE
