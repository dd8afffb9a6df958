"""Alerts: what somebody should know at once, with repeats folded into one.

What it is: the collapse rule of alerts as a pure machine. The first
alert of a (class, path) is emitted at once; those that follow within ten seconds
of that emission are counted, and the next one after it carries the count.
What it is not: a writer. Its records go to the journal and the status document.
Who drives it: the launcher, with `now` in monotonic seconds.
"""

from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Final

from flodl_core.telemetry.line_file import show_untrusted
from flodl_core.units import Seconds

COLLAPSE_S: Final = 10.0
MAX_KEYS: Final = 200
RECENT_ALERTS: Final = 50

SEVERITIES: Final = {
    "rank_lost": "critical",
    "control_drop": "critical",
    "drift": "warn",
    "guard_failed": "warn",
    "overflow": "warn",
    "nonfinite": "warn",
    "save_failed": "warn",
    "on_event_failed": "warn",
}
"""The usual severity of each class; `raise_alert` may be given another."""

_OVERFLOW: Final = ("overflow", "root")
"""Its key does not count towards MAX_KEYS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertRecord:
    """One emitted alert."""

    severity: str
    alert_class: str
    path: str
    detail: str
    count: int
    """How many were folded into this one, itself included."""
    raised_at_s: Seconds

    def as_record(self) -> dict[str, object]:
        """Return it in the keys of the journal."""
        return {
            "sev": self.severity,
            "kind": "event",
            "class": self.alert_class,
            "detail": self.detail,
            "count": self.count,
        }


@dataclass(slots=True)
class _Key:
    emitted_at_s: Seconds
    active_at_s: Seconds
    owed: int
    severity: str
    detail: str


class AlertBook:
    """Collapses alerts and keeps the newest emitted ones in `recent`, oldest first."""

    def __init__(self) -> None:
        self.recent: deque[AlertRecord] = deque(maxlen=RECENT_ALERTS)
        self.emitted = 0
        self._keys: OrderedDict[tuple[str, str], _Key] = OrderedDict()

    def raise_alert(
        self,
        alert_class: str,
        path: str,
        *,
        detail: str,
        now: Seconds,
        severity: str | None = None,
    ) -> list[AlertRecord]:
        """Take an alert; returns the records to emit now, perhaps none.

        Args:
            alert_class: such as rank_lost.
            path: where in the tree, such as root/red/rank3.
            detail: one sentence; it may hold a peer's words.
            now: monotonic seconds, not earlier than in the previous call.
            severity: critical, warn or info; the usual one of the class if None.
        """
        chosen = severity or SEVERITIES.get(alert_class, "warn")
        return self._take(alert_class, path, chosen, show_untrusted(detail), now)

    def flush(self, now: Seconds) -> list[AlertRecord]:
        """Emit every count that is owed; calling it twice adds nothing."""
        emitted = []
        for (alert_class, path), key in self._keys.items():
            if key.owed:
                emitted.append(self._emit(alert_class, path, key, key.owed, now))
                key.owed = 0
                key.emitted_at_s = now
        return emitted

    def deadline(self) -> Seconds | None:
        """Return when the oldest owed count could be flushed, or None if none is owed."""
        due = [key.emitted_at_s + COLLAPSE_S for key in self._keys.values() if key.owed]
        return min(due, default=None)

    def flush_due(self, now: Seconds) -> list[AlertRecord]:
        """Emit the owed counts whose ten seconds are over."""
        emitted = []
        for (alert_class, path), key in self._keys.items():
            if key.owed and now - key.emitted_at_s >= COLLAPSE_S:
                emitted.append(self._emit(alert_class, path, key, key.owed, now))
                key.owed = 0
                key.emitted_at_s = now
        return emitted

    def _take(
        self, alert_class: str, path: str, severity: str, detail: str, now: Seconds
    ) -> list[AlertRecord]:
        name = (alert_class, path)
        key = self._keys.get(name)
        if key is None:
            evicted = [] if name == _OVERFLOW else self._make_room(now)
            key = _Key(now, now, 0, severity, detail)
            self._keys[name] = key
            return [*evicted, self._emit(alert_class, path, key, 1, now)]
        self._keys.move_to_end(name)
        key.active_at_s, key.severity, key.detail = now, severity, detail
        if now - key.emitted_at_s < COLLAPSE_S:
            key.owed += 1
            return []
        count, key.owed, key.emitted_at_s = key.owed + 1, 0, now
        return [self._emit(alert_class, path, key, count, now)]

    def _make_room(self, now: Seconds) -> list[AlertRecord]:
        counted = len(self._keys) - (_OVERFLOW in self._keys)
        if counted < MAX_KEYS:
            return []
        victim = next(name for name in self._keys if name != _OVERFLOW)
        key = self._keys.pop(victim)
        emitted = [self._emit(*victim, key, key.owed, now)] if key.owed else []
        detail = f"more than {MAX_KEYS} kinds of alert at once; the quietest was forgotten"
        return [*emitted, *self._take(*_OVERFLOW, SEVERITIES["overflow"], detail, now)]

    def _emit(
        self, alert_class: str, path: str, key: _Key, count: int, now: Seconds
    ) -> AlertRecord:
        record = AlertRecord(
            severity=key.severity,
            alert_class=alert_class,
            path=path,
            detail=key.detail,
            count=count,
            raised_at_s=now,
        )
        self.recent.append(record)
        self.emitted += 1
        return record


def path_of(rank: int | None, host: str | None, *, hosts: int, ranks: int) -> str:
    """Return the path of a rank's records in the tree.

    Args:
        rank: None for something of a host, or of the run.
        host: None or unknown puts the rank directly under root.
        hosts: in the world; with one, hosts are left out.
        ranks: in the world; the lone rank of a world is root.
    """
    parts = ["root"]
    if host is not None and hosts > 1:
        parts.append(host)
    if rank is not None and ranks > 1:
        parts.append(f"rank{rank}")
    return "/".join(parts)
