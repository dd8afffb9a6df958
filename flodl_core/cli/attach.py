"""Finding the run that a command is about, and asking it.

What it is: an address, or the newest live run of the run directory, turned into
a client that carries the operator's token where it is known.
What it is not: any action; `status`, `start`, `stop`, `checkpoint` and `drain` ask.
Who drives it: those five.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flodl_core.cli.run_options import Wanted
from flodl_core.config.load import LoadedRun, load_agent, load_run
from flodl_core.errors import ConfigError, FlodlError
from flodl_core.net.addresses import is_loopback, join_host_port, parse_host_port
from flodl_core.net.http_client import ControllerAnswer, ControllerClient
from flodl_core.telemetry.run_directory import NoLiveRunError, RunDirectory, find_run, list_runs
from flodl_core.telemetry.state import StateDocument, read_document_untrusted
from flodl_core.wire.handshake import operator_token

USUAL_PORT: Final = 1337


class ActionRefusedError(FlodlError):
    """The run answered that it does not do what was asked."""


class NothingPublishedError(ActionRefusedError):
    """The run is so young that it has published nothing."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A run that can be asked."""

    client: ControllerClient
    directory: RunDirectory | None
    """Where the run lies on this machine, if it does and was found."""

    @property
    def label(self) -> str:
        """What the run is called in answers."""
        return self.client.at if self.directory is None else self.directory.path.name

    def document(self) -> StateDocument:
        """Return the status document.

        Raises:
            ControllerUnreachableError: nobody answers.
            ActionRefusedError: it is not given to us, or there is none yet.
            RemoteProtocolError: what came is no status document.
        """
        return read_document_untrusted(json.dumps(self.body()).encode())

    def body(self) -> dict[str, object]:
        """Return the status document as it was served; raises as `document` does."""
        return dict(_accepted(self.client.state()).body)

    def act(self, path: str, **parameters: str) -> ControllerAnswer:
        """Ask for an action and return the answer.

        Raises:
            ControllerUnreachableError: nobody answers.
            ActionRefusedError: the run gave a reason against it.
        """
        return _accepted(self.client.post(path, **parameters))


@contextmanager
def attached(wanted: Wanted) -> Iterator[Attachment]:
    """Yield the run that is wanted.

    Raises:
        ConfigError: the address is none, or two were given.
        NoLiveRunError: no run that is on was found.
    """
    loaded = load_run({"run_dir": wanted.run_dir}, config_file=wanted.config_file)
    address = _one_address(wanted)
    if address is None:
        directory: RunDirectory | None = find_run(loaded.run.run_dir, name=wanted.run)
        assert directory is not None
        host, port = _address_of(directory)
    else:
        host, port = parse_host_port(address, default_port=loaded.join.port or USUAL_PORT)
        directory = _directory_at(loaded.run.run_dir, host, port)
    token = _given_token(wanted, loaded)
    if directory is not None and wanted.token_file is None:
        token = directory.read_token() or token
    bearer = None if token is None else operator_token(bytes.fromhex(token))
    with ControllerClient(host, port, operator_token=bearer) as client:
        yield Attachment(client, directory)


def _one_address(wanted: Wanted) -> str | None:
    given = [word for word in (wanted.address, wanted.attach) if word is not None]
    if given and wanted.run is not None:
        given.append(f"--run {wanted.run}")
    if len(given) > 1:
        raise ConfigError(
            "address",
            " and ".join(given),
            "two runs were named",
            source="command line",
            fix="name one",
        )
    return given[0] if given else None


def _address_of(directory: RunDirectory) -> tuple[str, int]:
    """Return where a live run listens.

    Raises:
        NoLiveRunError: it has not opened its port yet.
    """
    address = directory.read_address()
    if address is None:
        raise NoLiveRunError(
            f"run {directory.path.name} has not opened its port yet", fix="ask again shortly"
        )
    return parse_host_port(address)


def _directory_at(base: Path, host: str, port: int) -> RunDirectory | None:
    """Return the live run of this machine that listens at an address, if one does."""
    wanted = join_host_port(host, port)
    is_here = is_loopback(host) or host.lower() == "localhost"
    for run in list_runs(base):
        if not run.is_live():
            continue
        if run.read_address() == wanted or (is_here and run.read_port() == port):
            return run
    return None


def _given_token(wanted: Wanted, loaded: LoadedRun) -> str | None:
    """Return the join token that the user gave, if one."""
    agent = load_agent({"token_file": wanted.token_file}, config_file=wanted.config_file).agent
    return agent.token or loaded.join.token


def _accepted(answer: ControllerAnswer) -> ControllerAnswer:
    """Return an answer that grants what was asked.

    Raises:
        ActionRefusedError: with the run's own reason and fix.
    """
    if answer.is_ok:
        return answer
    reason = answer.error or f"the run answered with status {answer.status}"
    fix = answer.body.get("fix")
    if answer.status in (401, 403):
        fix = (
            "give the run's token with --token-file or in FLODL_TOKEN, or ask on the launcher's "
            "machine with --run-dir"
        )
    refused = NothingPublishedError if answer.status == 503 else ActionRefusedError
    raise refused(reason, fix=fix if isinstance(fix, str) else "")
