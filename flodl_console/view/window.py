"""The join window: who is in, who is missing, when it closes and how it ends.

What it is: the Window screen's content in words and numbers.
What it is not: the decision to start; `view.actions` says whether a start is accepted.
Who drives it: the Window screen.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from flodl_console.view.facts import MAX_HOST_CELLS, OPEN_PHASES, is_gone, phase_look
from flodl_console.view.formats import (
    clock_time,
    count,
    duration,
    finite,
    number_ranges,
    part_of,
    plural,
)
from flodl_console.view.model import ConsoleView
from flodl_console.view.outlook import SOON_S, WindowOutlook, window_outlook
from flodl_console.view.texts import clean, fit, fit_line, listed, says
from flodl_console.view.tones import Glyph, Line, Phrase, Tone
from flodl_core.ids import StartMode
from flodl_core.telemetry.state import MemberState, StateDocument

_MODES: Final = {
    StartMode.AUTO.value: "auto: the window closes by itself",
    StartMode.MANUAL.value: "manual: the operator starts the run",
    StartMode.HYBRID.value: "hybrid: the operator may start it early",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Countdown:
    """Time that runs out, and what happens then."""

    label: str
    """`window` or `gives up`."""
    text: str
    """`closes in 4 m 12 s`, at most 32 cells; empty where there is nothing to say of it."""
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
    """Who closes the window, in words, at most 60 cells; empty once it is closed."""
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


def window_panel(view: ConsoleView) -> WindowPanel | None:
    """Return the window's panel; None while there is no document."""
    document = view.document
    if document is None:
        return None
    is_open = document.phase in OPEN_PHASES and not is_gone(view)
    outlook = window_outlook(document) if is_open else None
    look = phase_look(view, document)
    headline = outlook.text if outlook else _closed(document)
    short = outlook.short if outlook else headline
    refusals = _refusals(document)
    line, hint = _join(document, is_open=is_open)
    return WindowPanel(
        is_open=is_open,
        phase=look.word,
        phase_tone=look.tone,
        phase_glyph=look.glyph,
        headline=fit(headline, 156),
        quorum=_quorum(document),
        window=_window_clock(document, outlook),
        cap=_cap_clock(document, outlook),
        start_mode=_mode_words(document) if is_open else "",
        hosts=tuple(_host(member) for member in document.members),
        expected=tuple(says(host, MAX_HOST_CELLS) for host in document.expected_hosts),
        expected_text=_expected(document),
        refusals=refusals,
        refusals_text=_refused(document, len(refusals)),
        join_line=line,
        join_hint=hint,
        summary=fit_line((Phrase(f"{look.glyph} ", look.tone), Phrase(short, look.tone)), 78),
    )


def _mode_words(document: StateDocument) -> str:
    return _MODES.get(document.start_mode, says(document.start_mode, 60))


def _closed(document: StateDocument) -> str:
    ranks = plural(document.joined_ranks, "rank")
    hosts = plural(document.joined_hosts, "host")
    return f"the window is closed with {ranks} on {hosts}: no host can join this run"


def _quorum(document: StateDocument) -> QuorumGauge:
    joined, quorum, target = document.joined_ranks, document.min_rank_start, document.target_ranks
    is_met = joined >= quorum
    goal = f" · target {count(target)}" if target else ""
    text = f"{count(joined)} joined · quorum {count(quorum)}{' (met)' if is_met else ''}{goal}"
    return QuorumGauge(
        joined_ranks=joined,
        quorum_ranks=quorum,
        target_ranks=target,
        scale_ranks=max(1, joined, quorum, target or 0),
        is_met=is_met,
        text=fit(text, 60),
        tone=Tone.OK if is_met else Tone.WARN,
    )


def _window_clock(document: StateDocument, outlook: WindowOutlook | None) -> Countdown:
    left_s = finite(document.window_remaining_s)
    whole_s = document.join.window_s if document.join else None
    if outlook is None:
        text = "closed"
    else:
        ends = "is over" if document.start_mode == StartMode.MANUAL else "closes"
        text = "over" if left_s is None else f"{ends} in {duration(left_s)}"
    is_soon = left_s is not None and left_s < SOON_S
    return Countdown(
        label="window",
        text=text,
        outcome=fit(outlook.window_outcome, 120) if outlook else "",
        remaining_s=left_s,
        fraction_left=part_of(left_s, whole_s) if outlook else None,
        tone=Tone.WARN if is_soon else Tone.INFO,
    )


def _cap_clock(document: StateDocument, outlook: WindowOutlook | None) -> Countdown:
    left_s = finite(document.cap_remaining_s)
    whole_s = document.join.cap_s if document.join else None
    is_soon = left_s is not None and left_s < SOON_S
    return Countdown(
        label="gives up",
        text="" if outlook is None else f"gives up in {duration(left_s)}",
        outcome=fit(outlook.cap_outcome, 120) if outlook else "",
        remaining_s=left_s,
        fraction_left=part_of(left_s, whole_s) if outlook else None,
        tone=Tone.BAD if is_soon else Tone.INFO,
    )


def _host(member: MemberState) -> HostRow:
    return HostRow(
        host=says(member.host, MAX_HOST_CELLS),
        address=says(member.address, 45),
        ranks=fit(number_ranges(member.ranks), 16),
        devices=_counted(member.local_devices, 32),
        gpus=_counted(member.gpus, 48),
        torch=says(member.torch_variant, 24),
        nccl=says(member.nccl_version or "", 12),
        joined=f"after {duration(member.joined_at_s)}",
        glyph=Glyph.OK,
        tone=Tone.OK,
    )


def _counted(names: Sequence[str], width: int) -> str:
    """Return names with equal ones counted, `2 × H200, cpu:0`."""
    counted = Counter(clean(name) for name in names)
    return listed(
        [name if times == 1 else f"{times} × {name}" for name, times in counted.items()], width
    )


def _expected(document: StateDocument) -> str:
    if not document.expected_hosts:
        return ""
    names = [says(host, MAX_HOST_CELLS) for host in document.expected_hosts]
    return f"not heard from: {listed(names, 60)}"


def _refusals(document: StateDocument) -> tuple[RefusalRow, ...]:
    rows = tuple(
        RefusalRow(
            host=says(one.host, MAX_HOST_CELLS),
            address=says(one.address, 45),
            when=clock_time(one.at),
            reason=says(one.reason, 240),
            fix=says(one.fix, 240),
        )
        for one in reversed(document.recent_refusals)
    )
    if rows or not document.last_refusal:
        return rows
    reason = says(document.last_refusal, 240)
    return (RefusalRow(host="–", address="–", when="–", reason=reason, fix=""),)


def _refused(document: StateDocument, shown: int) -> str:
    if not document.refusals:
        return ""
    told = f"{plural(document.refusals, 'join')} refused"
    return told if shown >= document.refusals else f"{told}, the last {shown} are shown"


def _join(document: StateDocument, *, is_open: bool) -> tuple[str, str]:
    join = document.join
    if not is_open or join is None or join.line is None:
        return "", ""
    if join.is_open:
        return clean(join.line), "no token is needed"
    run_dir = f" ({clean(document.run.run_dir)}/token)" if document.run.run_dir else ""
    hint = f"needs the run's token{run_dir}: --token-file, or FLODL_TOKEN"
    return clean(join.line), fit(hint, 120)
