"""How many connections without a proof may be open, and who leaves for a newcomer.

Bookkeeping only: it holds no socket and reads no clock; the port asks it before
it serves a connection and closes whom it names. Two pools are counted apart:
connections that may become links, and HTTP requests. A newcomer is never
refused: the oldest that has sent no valid first message leaves, and where all
have sent one, the oldest of them.

    admitted ──first message──▶ spoke ──proof──▶ (no longer counted here)
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from flodl_core.errors import LocalProtocolError

MAX_UNAUTHENTICATED: Final = 256
MAX_PER_ADDRESS: Final = 16
MAX_LOOPBACK: Final = 128
MAX_HTTP: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimits:
    """Connections without a proof that may be open at a time."""

    unauthenticated: int = MAX_UNAUTHENTICATED
    per_address: int = MAX_PER_ADDRESS
    loopback: int = MAX_LOOPBACK
    """In place of `per_address`, for connections of this machine."""
    http: int = MAX_HTTP

    def __post_init__(self) -> None:
        smallest = min(self.unauthenticated, self.per_address, self.loopback, self.http)
        if smallest < 1:
            raise ValueError(f"a limit of {smallest} connections would serve nobody")


@dataclass(frozen=True, slots=True)
class _Entry:
    group: str
    limit: int
    has_spoken: bool = False


@dataclass(slots=True)
class _Pool:
    """Connections in the order of their arrival."""

    entries: dict[int, _Entry] = field(default_factory=dict)
    groups: Counter[str] = field(default_factory=Counter)

    def add(self, connection: int, entry: _Entry) -> None:
        self.entries[connection] = entry
        self.groups[entry.group] += 1

    def remove(self, connection: int) -> bool:
        entry = self.entries.pop(connection, None)
        if entry is None:
            return False
        self.groups[entry.group] -= 1
        if not self.groups[entry.group]:
            del self.groups[entry.group]
        return True

    def of_group(self, group: str) -> Iterator[int]:
        return (number for number, entry in self.entries.items() if entry.group == group)

    def leaver(self, candidates: Iterable[int]) -> int:
        """Return the oldest that has not spoken, else the oldest; there is one at least."""
        oldest: int | None = None
        for number in candidates:
            if not self.entries[number].has_spoken:
                return number
            if oldest is None:
                oldest = number
        if oldest is None:
            raise LocalProtocolError("a full pool of connections holds none")
        return oldest


class AdmissionGate:
    """Counts connections without a proof. Numbers are the caller's and are used once."""

    def __init__(self, limits: GateLimits) -> None:
        self._limits = limits
        self._unproven = _Pool()
        self._http = _Pool()

    def admit(self, connection: int, *, group: str, is_loopback: bool) -> list[int]:
        """Take a new connection in.

        Args:
            connection: its number, unused so far.
            group: the address group it is counted under.
            is_loopback: whether it comes from this machine.

        Returns:
            The connections that leave for it, already forgotten here; the
            caller closes them.
        """
        limit = self._limits.loopback if is_loopback else self._limits.per_address
        leavers = []
        if self._unproven.groups[group] >= limit:
            leavers.append(self._leave(self._unproven, self._unproven.of_group(group)))
        if len(self._unproven.entries) >= self._limits.unauthenticated:
            leavers.append(self._leave(self._unproven, self._unproven.entries))
        self._unproven.add(connection, _Entry(group=group, limit=limit))
        return leavers

    def is_http(self, connection: int) -> list[int]:
        """Move a connection to the HTTP pool; returns who leaves for it."""
        entry = self._unproven.entries.get(connection)
        if entry is None:
            return []
        self._unproven.remove(connection)
        leavers = []
        if self._http.groups[entry.group] >= entry.limit:
            leavers.append(self._leave(self._http, self._http.of_group(entry.group)))
        if len(self._http.entries) >= self._limits.http:
            leavers.append(self._leave(self._http, self._http.entries))
        self._http.add(connection, entry)
        return leavers

    def spoke(self, connection: int) -> None:
        """Note that a connection sent a valid first message: it leaves last."""
        for pool in (self._unproven, self._http):
            entry = pool.entries.get(connection)
            if entry is not None:
                pool.entries[connection] = _Entry(
                    group=entry.group, limit=entry.limit, has_spoken=True
                )

    def remove(self, connection: int) -> None:
        """Forget a connection that proved itself or ended; unknown numbers are fine."""
        for pool in (self._unproven, self._http):
            pool.remove(connection)

    def oldest(self) -> int | None:
        """Return and forget who leaves when the process has no descriptor left, if anyone."""
        for pool in (self._unproven, self._http):
            if pool.entries:
                return self._leave(pool, pool.entries)
        return None

    @property
    def unproven(self) -> int:
        """Connections that have proved nothing, HTTP excepted."""
        return len(self._unproven.entries)

    @property
    def http(self) -> int:
        """HTTP connections."""
        return len(self._http.entries)

    @staticmethod
    def _leave(pool: _Pool, candidates: Iterable[int]) -> int:
        leaver = pool.leaver(candidates)
        pool.remove(leaver)
        return leaver
