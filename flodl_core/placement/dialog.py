"""What launcher and placed process say to each other, one JSON object a line.

    launcher                               placed process (`roles.placed`)
      PlaceOrder  ── standard input ─▶
                  ◀── standard output ──  HostReport
      JoinOrder   ── standard input ─▶
                                          the agent joins; the end of the process is its end

The end of standard input is the end of the road. Standard error is for people, and the
only thing on standard output beside the report is what a login prints by itself.

What it is: the three messages, and their lines.
What it is not: the road that carries them (`roads`), or who waits for what (`session`).
Who drives it: `session` on the launcher's side, `roles.placed` on the host.
"""

from dataclasses import dataclass, field
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError

LINE_BYTES: Final = 1 << 20
REPORT_MARK: Final = b'{"flodl_host_report":'
"""How the line of a report begins, whatever a login has printed before."""

MessageT = TypeVar("MessageT")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceOrder:
    """Look at yourself, and report."""

    host: str
    """Label of the host."""
    controller: str
    """`host:port` as this host dials the launcher."""
    word: str
    """What the launcher says at that address while it waits for reports."""
    directory: str | None = None
    """Working directory; None is where the login begins."""
    job_file: str | None = None
    """The job's file as it is found there; None where the job is no file."""
    data: str | None = None
    env: dict[str, str] = field(default_factory=dict)
    """Further variables of the host's processes."""
    timeout_s: float
    """Ceiling of what the host asks its devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinOrder:
    """Join the run."""

    token: str
    """The join token's text; it is handed on by the environment."""
    words: tuple[str, ...]
    """Of `flodl join`, after the controller's address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """What a host found out about itself; None is what could not be found out."""

    host: str
    machine: str
    """What the machine calls itself."""
    flodl: str
    python: str
    torch: str | None
    devices: tuple[str, ...]
    gpus: tuple[str, ...]
    driver: str | None
    memory_free_bytes: int | None
    disk_free_bytes: int | None
    job_sha256: str | None
    """Digest of the job's file; None where there is none."""
    utc_s: float
    """The host's wall clock when it wrote this."""
    complaints: tuple[str, ...] = ()
    """What keeps the host from taking part, one clause each."""


def line_of(message: object) -> bytes:
    """Return a message as a line; a report's begins with its mark."""
    body = TypeAdapter(type(message)).dump_json(message)
    return REPORT_MARK + body + b"}\n" if isinstance(message, HostReport) else body + b"\n"


def read_line(line: bytes, kind: type[MessageT]) -> MessageT:
    """Return what a line says.

    Raises:
        ValueError: it is no message of that kind.
    """
    if kind is HostReport:
        line = line.rstrip().removeprefix(REPORT_MARK).removesuffix(b"}")
    try:
        message: MessageT = TypeAdapter(kind).validate_json(line)
    except ValidationError as error:
        raise ValueError(f"no {kind.__name__}: {error.error_count()} faults") from None
    return message
