"""What the ledger is told and what it wants done.

What it is: frozen records; events in the past tense, effects in the imperative.
What it is not: messages; nothing here crosses a wire.
Who drives it: the launcher makes events and performs effects in their order.
"""

from dataclasses import dataclass
from typing import TypeAlias

from flodl_core.ids import ClusterPhase, HostName, Rank
from flodl_core.machines import Note, Tick
from flodl_core.membership.admission import Refused
from flodl_core.membership.roster import ConnectionId, SeatedMember
from flodl_core.messages.join import JoinHello
from flodl_core.units import Seconds


@dataclass(frozen=True, slots=True)
class WindowOpened:
    """The port listens; the window's clock runs from now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HelloReceived:
    """A host whose keys hold asks to join."""

    connection: ConnectionId
    hello: JoinHello
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberLeft:
    """A join connection ended, or its Accept could not be written."""

    connection: ConnectionId


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequested:
    """The operator asked for the start."""

    who: str = "operator"


@dataclass(frozen=True, slots=True)
class FormationFinished:
    """Every relay of the formed world is there; training begins."""


@dataclass(frozen=True, slots=True)
class TrainingEnded:
    """The run ended as it should."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """The run ends without a world, or without training on."""

    reason: str


LedgerEvent: TypeAlias = (
    WindowOpened
    | HelloReceived
    | MemberLeft
    | StartRequested
    | FormationFinished
    | TrainingEnded
    | Aborted
    | Tick
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitMember:
    """Send Accept, with the salt if the connection is to have one."""

    connection: ConnectionId
    ranks: tuple[Rank, ...]
    """Provisional until FormWorld."""
    formation_wait_s: Seconds
    """What is left of the hard cap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefuseMember:
    """Send Reject and close."""

    connection: ConnectionId
    refusal: Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class FormWorld:
    """The window closed with a world: compose its envelope, send WorldFormed to all."""

    roster: tuple[SeatedMember, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FailWindow:
    """The window closed without a world; end with this error."""

    reason: str
    detail: str
    """For a reader: what happened, who waits, who was never heard from."""
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortMember:
    """Send Abort to a member and close."""

    connection: ConnectionId
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclareHostLost:
    """A host of the final world is gone, and its ranks with it."""

    host: HostName
    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncePhase:
    """The phase changed: publish it."""

    phase: ClusterPhase
    reason: str


LedgerEffect: TypeAlias = (
    AdmitMember
    | RefuseMember
    | FormWorld
    | FailWindow
    | AbortMember
    | DeclareHostLost
    | AnnouncePhase
    | Note
)
