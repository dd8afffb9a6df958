"""Every error a user can meet: what happened, what was expected, what to do.

Each class builds its own text from its fields and names the exit code that the
command ends with. `LocalProtocolError` is our own bug and stops the run;
`RemoteProtocolError` is a peer's and closes that peer only.
"""

from typing import Final

from flodl_core.ids import ExitCode

MAX_SHOWN_CHARS: Final = 200
"""Of a value that an error repeats."""


def kind_of(value: object) -> str:
    """Return what a value is, as an error says it: `a list`, `an int`."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


class FlodlError(Exception):
    """Base of all our errors.

    Attributes:
        happened: one clause, what happened.
        fix: one clause, what to do.
        exit_code: what the command exits with when this ends it.
    """

    exit_code: int = ExitCode.FAILED

    def __init__(self, happened: str, *, fix: str = "") -> None:
        self.happened = happened
        self.fix = fix
        super().__init__(f"{happened}\n  Fix: {fix}" if fix else happened)


class ConfigError(FlodlError):
    """A setting cannot be used; nothing was started."""

    exit_code = ExitCode.USAGE

    def __init__(self, field: str, value: object, reason: str, *, source: str, fix: str) -> None:
        self.field, self.value, self.reason, self.source = field, value, reason, source
        super().__init__(f"{field} = {_shown(value)} ({source}): {reason}", fix=fix)


class WindowFailedError(FlodlError):
    """The join window closed without a world."""

    exit_code = ExitCode.WINDOW_FAILED


class JobError(FlodlError):
    """The job cannot be found, built or inspected."""

    exit_code = ExitCode.USAGE


class LayoutError(FlodlError):
    """A tensor of the model cannot be reduced; it is named."""


class NonFiniteError(FlodlError):
    """Values that are not finite ended the run."""


class SchemaDriftError(FlodlError):
    """The set, shape or dtype of a model's tensors changed during the run."""


class RefusedError(FlodlError):
    """The controller did not admit this host; another dial changes nothing."""

    exit_code = ExitCode.WINDOW_FAILED


class TransientJoinError(FlodlError):
    """The controller could not be reached or could not take us now."""

    exit_code = ExitCode.JOIN_TRANSIENT


class RunLostError(FlodlError):
    """The controller went away while the run was on."""

    exit_code = ExitCode.JOIN_RUN_LOST


class LocalProtocolError(FlodlError):
    """We broke our own protocol: a bug of ours."""


class RemoteProtocolError(FlodlError):
    """A peer broke the protocol; its connection is closed."""


class BadFrameError(RemoteProtocolError):
    """Bytes from a peer are not a frame of ours, or its tag does not hold."""


class WrongTokenError(RefusedError):
    """The two ends hold different join tokens."""


class TokenRequiredError(RefusedError):
    """The controller admits nobody without the join token."""


class TlsRequiredError(RefusedError):
    """The controller admits nobody without TLS, and we know no fingerprint to trust."""


class WrongCertificateError(RefusedError):
    """What answered over TLS is not the run that our token means."""


class CheckpointError(FlodlError):
    """A checkpoint could not be written or read."""

    exit_code = ExitCode.NOT_SAVED


def _shown(value: object) -> str:
    """Return a value as an error repeats it, cut where it is longer than a line or two."""
    text = repr(value)
    if len(text) <= MAX_SHOWN_CHARS:
        return text
    return f"{text[:MAX_SHOWN_CHARS]}… ({len(text)} characters)"
