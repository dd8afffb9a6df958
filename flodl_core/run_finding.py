"""Where the run is that somebody means: an address, or the newest live run of a directory.

What it is: settings and run directories turned into host, port and operator token.
What it is not: a connection to it.
Who drives it: the commands that ask a run, and the console.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from flodl_core.config.addresses import is_loopback_address
from flodl_core.config.join_token import read_join_token
from flodl_core.config.load import load_agent, load_run
from flodl_core.errors import FlodlError
from flodl_core.net.addresses import join_host_port, parse_host_port
from flodl_core.telemetry.run_directory import RunDirectory, find_run, list_runs
from flodl_core.wire.handshake import operator_token

USUAL_PORT: Final = 1337


class PortNotOpenError(FlodlError):
    """A run is on, but it has not opened its port yet, so that nobody can ask it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRun:
    """Where a run can be asked, and by what right."""

    host: str
    port: int
    operator_token: str | None = field(repr=False)
    """None where no token of the run is known."""
    join_token: str | None = field(default=None, repr=False)
    """As another host would be given it; None where it is not known."""
    fingerprint: bytes | None = None
    """Of the run's certificate, as the token says; None where the run speaks no TLS."""
    directory: RunDirectory | None
    """Where the run lies on this machine, if it does and was found."""


def find_wanted_run(
    address: str | None = None,
    *,
    name: str | None = None,
    run_dir: str | None = None,
    token_file: str | None = None,
    config_file: Path | None = None,
    skips_unopened: bool = False,
) -> FoundRun:
    """Return the run that is wanted.

    Args:
        address: `host:port`; the newest live run of the run directory if None.
        name: keep only runs whose name or id begins so.
        run_dir: of all runs, or one run's own; as configured if None.
        token_file: file with the join token; else the run directory's own, else as configured.
        config_file: `--config`.
        skips_unopened: whether an older run will do where the newest has not opened its port
            yet, and none is named. Not for who acts at once: it would be another run than the
            one that is meant.

    Raises:
        ConfigError: the address is none, or a setting cannot be used.
        NoLiveRunError: no run that is on was found.
        PortNotOpenError: the run is on, but has not opened its port yet.
    """
    loaded = load_run({"run_dir": run_dir}, config_file=config_file)
    if address is None:
        directory: RunDirectory | None = find_run(loaded.run.run_dir, name=name)
        assert directory is not None
        if skips_unopened and name is None:
            directory = _newest_open(loaded.run.run_dir) or directory
        host, port = address_of(directory)
    else:
        host, port = parse_host_port(address, default_port=loaded.join.port or USUAL_PORT)
        directory = _directory_at(loaded.run.run_dir, host, port)
    agent = load_agent({"token_file": token_file}, config_file=config_file).agent
    token = agent.token or loaded.join.token
    if directory is not None and token_file is None:
        token = directory.read_token() or token
    known = None if token is None else read_join_token(token)
    pinned = None if agent.tls_fingerprint is None else bytes.fromhex(agent.tls_fingerprint)
    if known is not None and known.fingerprint is None:
        known = replace(known, fingerprint=pinned)
    return FoundRun(
        host=host,
        port=port,
        operator_token=None if known is None else operator_token(known.secret),
        join_token=None if known is None else known.text(),
        fingerprint=pinned if known is None else known.fingerprint,
        directory=directory,
    )


def address_of(directory: RunDirectory) -> tuple[str, int]:
    """Return where a live run listens.

    Raises:
        PortNotOpenError: it has not opened its port yet.
    """
    address = directory.read_address()
    if address is None:
        raise PortNotOpenError(
            f"run {directory.path.name} has not opened its port yet", fix="ask again shortly"
        )
    return parse_host_port(address)


def _newest_open(base: Path) -> RunDirectory | None:
    """Return the newest live run that has opened its port, if one has."""
    for run in list_runs(base):
        if run.read_address() is not None and run.is_live():
            return run
    return None


def _directory_at(base: Path, host: str, port: int) -> RunDirectory | None:
    """Return the live run of this machine that listens at an address, if one does."""
    wanted = join_host_port(host, port)
    is_here = is_loopback_address(host)
    for run in list_runs(base):
        if not run.is_live():
            continue
        if run.read_address() == wanted or (is_here and run.read_port() == port):
            return run
    return None
