"""What happened at the port, as counts, and one line where a flood would be ten thousand.

Pure: the port notes each connection that it let go and passes `now`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from flodl_core.units import Seconds

COLLAPSE_S: Final = 10.0


class DropReason(StrEnum):
    """Why a connection was let go before it became a link."""

    JUNK = "junk"
    """Its first bytes are no protocol of ours."""
    TLS = "tls"
    """It began a TLS handshake, and this run has no --tls."""
    PLAIN = "plain"
    """It spoke without TLS, and this run has --tls."""
    BAD_TLS = "bad_tls"
    """Its TLS handshake failed: another version, or none at all behind the first bytes."""
    DISTRUSTED = "distrusted"
    """It left at the sight of the certificate: most often, its token names another one."""
    SILENT = "silent"
    """It sent no valid first message within the handshake budget."""
    EARLY_END = "early_end"
    """It ended before its handshake did, as health checks and port scans do."""
    UNPROVEN = "unproven"
    """Its hello was valid, but it left without a first frame: most often, it has another token."""
    CROWDED_OUT = "crowded_out"
    """A newer connection took its place."""
    BAD_HANDSHAKE = "bad_handshake"
    """What it sent is no handshake of ours, or its first frame does not verify."""
    NO_TOKEN = "no_token"  # noqa: S105 - a name, no secret
    """It asked to join without the token, and was told."""
    TOO_MANY_LINKS = "too_many_links"
    """It proved itself, but as many links as allowed are open."""
    FAULT = "fault"
    """Serving it failed by a fault of ours; the launcher's log says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortStatistics:
    """Connections since the port opened, and those open now."""

    accepted: int
    joins: int
    """Agents that proved themselves."""
    muxes: int
    """Relays that proved themselves."""
    https: int
    """HTTP connections."""
    dropped: Mapping[DropReason, int]
    """Every reason is a key."""
    open_unproven: int
    open_http: int
    open_links: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DropNote:
    """One line about one or many connections that were let go."""

    reason: DropReason
    address: str
    """Of the latest."""
    count: int
    """Connections that this line stands for."""
    detail: str
    """What was wrong with the latest, where that is known."""


class FloodCollapser:
    """Lets the first drop of a reason through at once, then one line each `COLLAPSE_S`."""

    def __init__(self, collapse_s: Seconds = COLLAPSE_S) -> None:
        self._collapse_s = collapse_s
        self._quiet_until: dict[DropReason, Seconds] = {}
        self._held: dict[DropReason, int] = {}

    def note(
        self, reason: DropReason, now: Seconds, *, address: str, detail: str = ""
    ) -> DropNote | None:
        """Count one drop; returns the line to report, if it is time for one."""
        held = self._held.get(reason, 0) + 1
        if now < self._quiet_until.get(reason, now):
            self._held[reason] = held
            return None
        self._held[reason] = 0
        self._quiet_until[reason] = now + self._collapse_s
        return DropNote(reason=reason, address=address, count=held, detail=detail)
