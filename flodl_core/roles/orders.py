"""What a child process is told: one frozen order each, in an inherited memory file.

The file has no name and holds no secret; a salt travels on a pipe of its own. The
command line of a child says only who it is, for a reader of `ps`.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter

from flodl_core.ids import HostName, Rank
from flodl_core.messages.job import Envelope, JobRef
from flodl_core.net.shared_memory import create_memfd
from flodl_core.units import Seconds

OrderT = TypeVar("OrderT")


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOrder:
    """Build this job once and print its facts as JSON."""

    job: JobRef
    job_path: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloOrder:
    """Measure this job on one device."""

    job: JobRef
    job_path: Path | None
    device: str
    rank: int
    """That the device would have."""
    threads: int
    """Processors that a rank would have here."""
    batch_size: int | None
    """The job's own if None."""
    micro_batch: int | None
    budget_s: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOrder:
    """Train as this rank."""

    rank: Rank
    host: HostName
    device: str
    threads: int
    job: JobRef
    job_path: Path | None
    control_fd: int
    data_fd: int
    log_path: Path
    is_verbose: bool
    envelope: Envelope
    loader_workers: int | None = None
    """Processes that read its samples; the job's own number if None."""
    has_relay: bool = False
    """Whether a relay stands between it and the launcher, which then speaks first of a loss."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayEnds:
    """The relay's descriptors of one rank."""

    rank: Rank
    control_fd: int
    data_fd: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayOrder:
    """Carry and fold for this host."""

    host: HostName
    ends: tuple[RelayEnds, ...]
    salt_fd: int
    log_path: Path
    is_verbose: bool
    envelope: Envelope


def write_order(order: object) -> int:
    """Return a descriptor of a memory file that holds the order; the caller closes it."""
    body = TypeAdapter(type(order)).dump_json(order)
    fd = create_memfd("flodl-order", len(body))
    os.pwrite(fd, body, 0)
    return fd


def read_order(fd: int, kind: type[OrderT]) -> OrderT:
    """Read the order of this process and close its descriptor."""
    try:
        body = os.pread(fd, os.fstat(fd).st_size, 0)
    finally:
        os.close(fd)
    order: OrderT = TypeAdapter(kind).validate_json(body)
    return order
