"""Which live run the console shows, as a feed.

What it is: an address, a directory of runs or a run just launched, turned into a feed.
What it is not: the search itself, which the commands share: `flodl_core.run_finding`.
Who drives it: the app, when it is opened and after a launch.
"""

from pathlib import Path

from flodl_console.feed.live import LiveFeed
from flodl_console.feed.run_port import NO_TRUST, RunTrust
from flodl_console.launch import LaunchedRun
from flodl_core.config.join_token import read_join_token
from flodl_core.run_finding import address_of, find_wanted_run
from flodl_core.wire.handshake import operator_token


def find_live_feed(
    address: str | None,
    *,
    run_dir: Path | None,
    token_file: Path | None = None,
    config_file: Path | None = None,
    is_read_only: bool = False,
) -> LiveFeed:
    """Return a feed of the run that is meant.

    Args:
        address: `host:port`; the newest live run of `run_dir` that can be asked if None.
        run_dir: of all runs, or one run's own; as configured if None.
        token_file: file with the join token, where the run directory is elsewhere.
        config_file: settings file instead of `flodl.toml`.
        is_read_only: whether nothing may be asked of the run.

    Raises:
        ConfigError: the address is none, or a setting cannot be used.
        NoLiveRunError: no run that is on was found.
        PortNotOpenError: a run is on, but none has opened its port yet.
    """
    found = find_wanted_run(
        address,
        run_dir=None if run_dir is None else str(run_dir),
        token_file=None if token_file is None else str(token_file),
        config_file=config_file,
        skips_unopened=True,
    )
    return LiveFeed(
        found.host,
        found.port,
        trust=RunTrust(
            operator_token=found.operator_token,
            fingerprint=found.fingerprint,
            join_token=found.join_token,
        ),
        is_read_only=is_read_only,
        directory=found.directory,
    )


def launched_feed(launched: LaunchedRun, *, is_read_only: bool = False) -> LiveFeed:
    """Return a feed of a run that this console started.

    Raises:
        PortNotOpenError: its address is not there.
        ConfigError: others may read its token.
    """
    host, port = address_of(launched.directory)
    text = launched.directory.read_token()
    token = None if text is None else read_join_token(text)
    return LiveFeed(
        host,
        port,
        trust=NO_TRUST
        if token is None
        else RunTrust(
            operator_token=operator_token(token.secret),
            fingerprint=token.fingerprint,
            join_token=token.text(),
        ),
        is_read_only=is_read_only,
        directory=launched.directory,
    )
