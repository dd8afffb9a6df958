"""Stands in for `flodl_core.training.seat`, without a device of torch."""

from dataclasses import dataclass
from typing import Any

from flodl_core.messages.job import Envelope, HostRanks


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Which rank of which world."""

    envelope: Envelope
    rank: int
    source: Any = None
    loader_workers: int | None = None

    @property
    def host(self) -> HostRanks:
        """The host of this rank."""
        return next(host for host in self.envelope.hosts if self.rank in host.ranks)


def share_cores(_: Seat) -> None:
    """Do nothing: no library of tensors has threads here."""
