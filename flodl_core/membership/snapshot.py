"""What the join window looks like from outside, and the answer to a start.

What it is: a frozen snapshot with the fields of the status document, and the
rule that answers `POST /start` from it.
What it is not: the document; the launcher copies these fields into it.
Who drives it: `MembershipLedger.snapshot` makes it, status and start read it.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from flodl_core.ids import ClusterPhase, HostName, Rank, StartMode
from flodl_core.membership.roster import Member, seat
from flodl_core.membership.window import quorum_not_met
from flodl_core.units import Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberRow:
    """One host, as screens show it."""

    host: HostName
    address: str
    ranks: tuple[Rank, ...]
    local_devices: tuple[str, ...]
    gpus: tuple[str, ...]
    torch_variant: str
    nccl_version: str | None = None
    joined_at_s: Seconds
    """Seconds after the window opened."""
    connected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MembershipSnapshot:
    """Who is in, and what the window waits for."""

    phase: ClusterPhase
    reason: str
    """Why it is in that phase."""
    joined_ranks: int
    joined_hosts: int
    min_rank_start: int
    target_ranks: int | None
    window_remaining_s: Seconds | None
    """None once past, and once the window is closed."""
    cap_remaining_s: Seconds | None
    start_mode: StartMode
    start_armed: bool
    members: tuple[MemberRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAnswer:
    """The answer to an operator's start."""

    status: int
    """HTTP status."""
    reason: str
    joined_ranks: int | None = None
    min_rank_start: int | None = None

    @property
    def armed(self) -> bool:
        """Whether the start goes to the ledger."""
        return self.status == 200

    def body(self) -> dict[str, bool | int | str]:
        """Return the answer as JSON holds it."""
        if not self.armed:
            return {"error": self.reason}
        return {
            "armed": True,
            "joined_ranks": self.joined_ranks or 0,
            "min_rank_start": self.min_rank_start or 0,
        }


def member_rows(members: Iterable[Member]) -> tuple[MemberRow, ...]:
    """Return the members as rows, numbered."""
    return tuple(
        MemberRow(
            host=seated.member.host,
            address=seated.member.address,
            ranks=seated.ranks,
            local_devices=seated.member.hello.local_devices,
            gpus=seated.member.hello.gpus,
            torch_variant=seated.member.hello.torch_variant,
            nccl_version=seated.member.hello.nccl_version,
            joined_at_s=seated.member.joined_at_s,
            connected=seated.member.connected,
        )
        for seated in seat(members)
    )


def review_start(
    start_mode: StartMode, snapshot: MembershipSnapshot | None, *, trusted: bool
) -> StartAnswer:
    """Return the answer to a start request; the first test that fails decides.

    Args:
        start_mode: of the run.
        snapshot: as last published; None before the first.
        trusted: whether the peer may operate this run.
    """
    if start_mode is StartMode.AUTO:
        reason = "start mode is auto: the window closes by itself"
        return StartAnswer(status=409, reason=reason)
    if not trusted:
        return StartAnswer(status=403, reason="not trusted: send the operator token as Bearer")
    if snapshot is None:
        return StartAnswer(status=503, reason="nothing is published yet")
    if snapshot.phase not in (ClusterPhase.WAITING, ClusterPhase.STAGING):
        return StartAnswer(status=409, reason=f"the window is not open: {snapshot.phase}")
    if snapshot.joined_ranks < snapshot.min_rank_start:
        reason = quorum_not_met(snapshot.joined_ranks, snapshot.min_rank_start)
        return StartAnswer(status=409, reason=reason)
    return StartAnswer(
        status=200,
        reason="armed",
        joined_ranks=snapshot.joined_ranks,
        min_rank_start=snapshot.min_rank_start,
    )
