"""The cases of the matrix: which process is struck, how, and where the run then stands.

Roles: launcher, agent, relay, `near` (a rank of the launcher's host), `far` (one of the
guest's). A phase is set by a process that stops there; it is the victim where the victim
comes to that place itself, else one that the others then wait for.
"""

import signal
from dataclasses import dataclass

from chaos_world import GUEST, MANY_BUCKETS

ROLES = ("launcher", "agent", "relay", "near", "far")
PHASES = (
    "forming",
    "compute",
    "data",
    "snapshot",
    "mid_bucket",
    "round_end",
    "adopt",
    "callback",
    "saving",
    "epoch_end",
)
NTH = {"forming": 1, "mid_bucket": 3, "callback": 1, "saving": 2, "epoch_end": 1}
"""How often a place is come to before the process stops there; 4 where nothing is said.

The first save is only asked for the buffers of the start; the second ends the run.
"""
OFTEN = 4


@dataclass(frozen=True, slots=True)
class Case:
    """One fault in one phase.

    Attributes:
        number: the signal.
        role: who gets it.
        phase: where the run stands then.
    """

    number: signal.Signals
    role: str
    phase: str

    def __str__(self) -> str:
        """Return the case's name among the tests."""
        return f"{self.number.name}-{self.role}-{self.phase}"

    @property
    def parked(self) -> tuple[str, str]:
        """Which process stops, and at which place."""
        at_launcher = self.role == "launcher"
        if self.phase == "mid_bucket":
            return ("launcher" if at_launcher else "relay"), self.phase
        if self.phase == "round_end" and self.role in ("launcher", "relay"):
            return self.role, self.phase
        if self.phase == "saving" and at_launcher:
            return "launcher", self.phase
        if self.phase in ("callback", "saving"):
            return "rank0", self.phase
        return ("rank1" if self.role in ("near", "launcher") else "rank3"), self.phase

    @property
    def park(self) -> str:
        """The stopping place, in the words of the rig."""
        who, place = self.parked
        nth = 1 if (who, place) == ("launcher", "saving") else NTH.get(place, OFTEN)
        return f"{who}:{place}:{nth}"

    @property
    def options(self) -> dict[str, object]:
        """Options of the job."""
        return {"params": MANY_BUCKETS} if self.phase == "mid_bucket" else {}

    @property
    def victim(self) -> str:
        """The struck process, by its name in the run."""
        if self.role == "near":
            return "rank0" if self.parked[0] == "rank0" else "rank1"
        return "rank3" if self.role == "far" else self.role

    @property
    def lost(self) -> tuple[int, ...]:
        """The ranks that the run goes on without, or misses when it cannot form."""
        if self.role in ("near", "far"):
            return (int(self.victim.removeprefix("rank")),)
        return (2, 3) if self.role in ("agent", "relay") else ()

    @property
    def names(self) -> str:
        """What the story of the fault must name."""
        if self.number is signal.SIGSTOP:
            return "relay or link is down" if self.role == "relay" else "silent for"
        if self.role in ("near", "far"):
            return "SIGKILL"
        return f"relay of host {GUEST}" if self.role == "relay" else f"host {GUEST} is gone"


def cases(number: signal.Signals, *roles: str, phases: tuple[str, ...] = PHASES) -> list[Case]:
    """Every combination."""
    return [Case(number, role, phase) for role in roles for phase in phases]
