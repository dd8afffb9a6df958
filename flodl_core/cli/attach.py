"""Finding the run that a command is about, and asking it.

What it is: the run that `run_finding` finds, behind a client that carries the
operator's token where it is known.
What it is not: any action; `status`, `start`, `stop`, `checkpoint`, `drain` and `evict` ask.
Who drives it: those six.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from flodl_core.cli.run_options import Wanted
from flodl_core.errors import ConfigError, FlodlError
from flodl_core.net.http_client import ControllerAnswer, ControllerClient
from flodl_core.net.tls import pinned_context
from flodl_core.run_finding import find_wanted_run
from flodl_core.telemetry.run_directory import RunDirectory
from flodl_core.telemetry.state import StateDocument, read_document_untrusted


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
    found = find_wanted_run(
        _one_address(wanted),
        name=wanted.run,
        run_dir=wanted.run_dir,
        token_file=wanted.token_file,
        config_file=wanted.config_file,
    )
    trusted = None if found.fingerprint is None else pinned_context(found.fingerprint)
    with ControllerClient(
        found.host, found.port, operator_token=found.operator_token, trusted=trusted
    ) as client:
        yield Attachment(client, found.directory)


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
