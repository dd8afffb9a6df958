"""The join window: who is in, who is missing, when it closes and how it ends.

What it is: the Window screen's content in words and numbers.
What it is not: the decision to start; `view.actions` says whether a start is accepted.
Who drives it: the Window screen.
"""

from dataclasses import dataclass

from flodl_console.view.tones import Glyph, Line, Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class Countdown:
    """Time that runs out, and what happens then."""

    label: str
    """`window` or `gives up`."""
    text: str
    """`closes in 4 m 12 s`, at most 32 cells."""
    outcome: str
    """What happens at zero, one clause, at most 120 cells."""
    remaining_s: float | None
    """None where this clock does not run, or has run out."""
    fraction_left: float | None
    """0 to 1; None where the whole is not known."""
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumGauge:
    """Joined ranks against the quorum and the target."""

    joined_ranks: int
    quorum_ranks: int
    target_ranks: int | None
    """The number that closes the window at once; None if none does."""
    scale_ranks: int
    """The number at the bar's right end, at least 1."""
    is_met: bool
    text: str
    """`2 joined · quorum 2 (met) · target 4`, at most 60 cells."""
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRow:
    """One host of the roster."""

    host: str
    """At most 24 cells."""
    address: str
    """At most 45 cells."""
    ranks: str
    """`0–3`, at most 16 cells."""
    devices: str
    """`2 × cuda` or `cuda:0, cpu:0`, at most 32 cells."""
    gpus: str
    """Names of the cards, equal ones counted, at most 48 cells."""
    torch: str
    """torch variant, at most 24 cells."""
    nccl: str
    """NCCL version, at most 12 cells."""
    joined: str
    """`after 12 s`, at most 16 cells."""
    glyph: Glyph
    tone: Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalRow:
    """One host that was turned away."""

    host: str
    """At most 24 cells."""
    address: str
    """At most 45 cells."""
    when: str
    """Time of day in UTC as `14:03:07`, at most 10 cells."""
    reason: str
    """One sentence, at most 240 cells."""
    fix: str
    """What to do, at most 240 cells; empty if nothing is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPanel:
    """The join window at one moment."""

    is_open: bool
    """Whether hosts may still join."""
    phase: str
    """The phase as a word."""
    phase_tone: Tone
    phase_glyph: Glyph
    headline: str
    """What the window waits for and what it will come to, at most 156 cells (two lines of 78)."""
    quorum: QuorumGauge
    window: Countdown
    cap: Countdown
    start_mode: str
    """Who closes the window, in words, at most 60 cells."""
    hosts: tuple[HostRow, ...]
    """In the order of their ranks."""
    expected: tuple[str, ...]
    """Configured hosts that have not been heard from, each at most 24 cells."""
    expected_text: str
    """`not heard from: blue, green`, at most 78 cells; empty if none is missing."""
    refusals: tuple[RefusalRow, ...]
    """Newest first."""
    refusals_text: str
    """`3 joins refused, the last 2 are shown`, at most 60 cells; empty if none was."""
    join_line: str
    """What is typed on another host, never with the token; empty if nothing can be joined."""
    join_hint: str
    """What that line needs beside it, at most 120 cells; empty if nothing."""
    summary: Line
    """The window in one line of at most 78 cells."""
