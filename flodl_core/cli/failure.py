"""How a command fails: one clear error on standard error, and its exit code.

What it is: the translation of an exception into text and a code. A traceback is
shown with --verbose only.
What it is not: the texts of our own errors; each class builds its own.
Who drives it: `main`, for whatever escapes a command.
"""

import json
import sys
import traceback
from typing import Final

from flodl_core.errors import FlodlError
from flodl_core.ids import ExitCode
from flodl_core.telemetry.line_file import show_untrusted

_ARGV_FIX: Final = (
    "a token among the words of a command is readable in the process list; "
    "give it in FLODL_TOKEN, or with --token-file where the command has that"
)


class UnexpectedError(FlodlError):
    """Something that none of our errors describes: a bug, or a broken installation."""


class LostOutputError(FlodlError):
    """What a command prints is all that it is for, and it could not be written."""

    def __init__(self, command: str, reason: str) -> None:
        super().__init__(
            f"what `{command}` prints is not whole ({reason})",
            fix="make room where its output goes, and run it again",
        )


class UsageError(FlodlError):
    """The words of the command line are not a command."""

    exit_code = ExitCode.USAGE


def tell_failure(error: BaseException, *, command: str = "flodl", is_verbose: bool) -> int:
    """Write an exception to standard error and return the exit code it stands for.

    Args:
        error: what escaped.
        command: whose help is pointed at where the error itself does not know.
        is_verbose: whether the traceback is written too.
    """
    known = describe_failure(error, command=command)
    if is_verbose and sys.stderr is not None:
        traceback.print_exception(error)
    if sys.stderr is not None:
        try:
            print(failure_text(known), file=sys.stderr, flush=True)
        except OSError:
            return known.exit_code
    return known.exit_code


def failure_text(error: FlodlError) -> str:
    """Return the lines that tell an error; control characters of peers are escaped."""
    lines = str(error).splitlines() or [type(error).__name__]
    return "\n".join(
        [
            f"error: {show_untrusted(lines[0])}",
            *(show_untrusted(line) for line in lines[1:]),
        ]
    )


def error_row(error: FlodlError) -> str:
    """Return an error as the last object of JSON lines."""
    row = {
        "event": "error",
        "exit_code": int(error.exit_code),
        "text": error.happened,
        "fix": error.fix,
    }
    return json.dumps(row, ensure_ascii=False)


def describe_failure(error: BaseException, *, command: str = "flodl") -> FlodlError:
    """Return the error of ours that an exception is, or that stands for it."""
    cause = root_cause(error)
    if isinstance(cause, FlodlError):
        return cause
    if callable(getattr(cause, "format_message", None)):
        return _usage_error(cause, command)
    text = " ".join(str(cause).split())
    name = type(cause).__name__
    return UnexpectedError(
        f"{name}: {text}" if text else name, fix="run again with --verbose to see where"
    )


def root_cause(error: BaseException) -> BaseException:
    """Return the first error of ours inside groups of exceptions, else the first of all."""
    leaves = _leaves(error)
    return next((leaf for leaf in leaves if isinstance(leaf, FlodlError)), leaves[0])


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


def _usage_error(error: BaseException, command: str) -> UsageError:
    """Return what the parser of the command line says, in our style."""
    option = getattr(error, "option_name", None)
    near = getattr(error, "possibilities", None)
    message = str(getattr(error, "message", "")) or str(error.format_message())  # type: ignore[attr-defined]
    message = message.rstrip(".")
    command = getattr(getattr(error, "ctx", None), "command_path", command)
    if near is not None:
        message = f"{command} has no option {option}"
    elif getattr(error, "param", None) is not None:
        message = str(error.format_message()).rstrip(".")  # type: ignore[attr-defined]
    if option == "--token" and near is not None:
        return UsageError(message, fix=_ARGV_FIX)
    fix = f"did you mean {' or '.join(near)}?" if near else f"`{command} --help` shows its options"
    return UsageError(message[:1].lower() + message[1:], fix=fix)
