"""Who is in: one frozen record a host, numbered in the order of admission.

What it is: members, what is expected of them, and the arithmetic of their ranks.
What it is not: the rule that admits them (`admission`) or their coming and
going (`ledger`).
Who drives it: the ledger keeps a tuple of members; the launcher turns a formed
roster into the hosts of an envelope.

A member has no number of its own: its ranks are the next contiguous block after
those of the members before it, so that a roster from which one is taken away is
numbered right by construction.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NewType

from flodl_core.ids import HostName, Mode, Rank, RunId
from flodl_core.messages.job import HostRanks
from flodl_core.messages.join import JoinHello
from flodl_core.units import Seconds

ConnectionId = NewType("ConnectionId", int)
"""One join connection; never used again once it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What a host must agree with; None gates nothing until a member brings it."""

    run_id: RunId | None = None
    mode: Mode | None = None
    """None while the mode is decided at forming: tests of NCCL modes refuse nothing."""
    needs_gpus: bool = False
    """Whether every rank must have a GPU."""
    wire_dtype: str | None = None
    n_samples: int | None = None
    dataset_sig: str | None = None
    model_sig: str | None = None
    model_entries: tuple[str, ...] = ()
    layout_sig: str | None = None
    geometry_sig: str | None = None
    torch_variant: str | None = None
    """The label whose GPU vendor everybody shares; see `gpu_vendor`."""
    nccl_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One admitted host."""

    connection: ConnectionId
    address: str
    hello: JoinHello
    joined_at_s: Seconds
    """Seconds after the window opened."""
    connected: bool = True
    """False once its connection ended after the world was final."""

    @property
    def host(self) -> HostName:
        """Its label."""
        return self.hello.host

    @property
    def count(self) -> int:
        """How many ranks it brings."""
        return len(self.hello.local_devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeatedMember:
    """A member with the ranks that it has in a roster."""

    member: Member
    ranks: tuple[Rank, ...]


def seat(members: Iterable[Member]) -> tuple[SeatedMember, ...]:
    """Return the members with contiguous ranks in admission order."""
    seated = []
    first = 0
    for member in members:
        ranks = tuple(Rank(first + i) for i in range(member.count))
        seated.append(SeatedMember(member=member, ranks=ranks))
        first += member.count
    return tuple(seated)


def count_ranks(members: Iterable[Member]) -> int:
    """Return how many ranks the members bring together."""
    return sum(member.count for member in members)


def host_ranks(roster: Iterable[SeatedMember]) -> tuple[HostRanks, ...]:
    """Return the hosts of a formed roster as an envelope lists them."""
    return tuple(
        HostRanks(host=seat.member.host, ranks=seat.ranks, devices=seat.member.hello.local_devices)
        for seat in roster
    )


def shares_layout(roster: Iterable[SeatedMember], layout_sig: str | None) -> bool:
    """Return whether every host declared this very layout, so that strides may stay."""
    return layout_sig is not None and all(s.member.hello.layout_sig == layout_sig for s in roster)


def seed_expected(expected: Expected, members: Iterable[Member]) -> Expected:
    """Return the expectation with its gaps filled by the first member that can.

    The run's own values come first; a vendor is taken from the first label that
    tells one.
    """
    for hello in (member.hello for member in members):
        if expected.dataset_sig is None:
            expected = replace(expected, dataset_sig=hello.dataset_sig, n_samples=hello.n_samples)
        if expected.model_sig is None and hello.model_sig is not None:
            expected = replace(
                expected, model_sig=hello.model_sig, model_entries=hello.model_entries
            )
        expected = replace(
            expected,
            run_id=expected.run_id or hello.run_id,
            geometry_sig=expected.geometry_sig or hello.geometry_sig,
            nccl_version=expected.nccl_version or hello.nccl_version,
        )
        if gpu_vendor(expected.torch_variant) is None and gpu_vendor(hello.torch_variant):
            expected = replace(expected, torch_variant=hello.torch_variant)
    return expected


def gpu_vendor(torch_variant: str | None) -> str | None:
    """Return NVIDIA or AMD, as a label of a torch build tells; None if it does not.

    Labels are torch's versions (`2.6.0+cu126`, `2.6.0+rocm6.2`) and builds'
    names (`precompiled/cu126`, `builds/sm_90`, `precompiled/rocm6.2`).
    """
    label = (torch_variant or "").lower()
    tail = label.rpartition("/")[2] if "/" in label else label.partition("+")[2]
    if tail.startswith("rocm"):
        return "AMD"
    return "NVIDIA" if re.match(r"(?:cu(?:da)?|sm_?)\d", tail) else None
