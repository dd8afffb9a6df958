"""What an open join window waits for, and what it will come to.

What it is: the window's own rules told ahead, for the three start modes.
What it is not: the rules; `membership.window` decides.
Who drives it: the verdict and the Window screen.
"""

from dataclasses import dataclass
from typing import Final

from flodl_console.view.formats import duration, finite, plural
from flodl_console.view.texts import clean, listed
from flodl_console.view.tones import Tone
from flodl_core.ids import StartMode
from flodl_core.telemetry.state import StateDocument

SOON_S: Final = 60.0
"""Below this, a clock that ends in a failure is urgent."""
MISSING_CELLS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowOutlook:
    """What the open window will come to."""

    tone: Tone
    text: str
    """One sentence, cleaned, not cut."""
    short: str
    window_outcome: str
    """What happens when the window's own time is over."""
    cap_outcome: str
    """What happens at the cap."""


def window_outlook(document: StateDocument) -> WindowOutlook:
    """Return what an open window waits for and comes to.

    Args:
        document: in phase waiting or staging.
    """
    is_met = document.joined_ranks >= document.min_rank_start
    window_outcome, cap_outcome = _outcomes(document, is_met=is_met)
    text, short = _told(document, is_met=is_met)
    return WindowOutlook(
        tone=_tone(document, is_met=is_met),
        text=text,
        short=short,
        window_outcome=window_outcome,
        cap_outcome=cap_outcome,
    )


def joined_of(document: StateDocument) -> str:
    """Return `2 of 4 ranks in`, against the target, or the quorum where there is no target."""
    wanted = document.target_ranks or document.min_rank_start
    if document.joined_ranks > wanted:
        return f"{plural(document.joined_ranks, 'rank')} in"
    return f"{document.joined_ranks} of {plural(wanted, 'rank')} in"


def _outcomes(document: StateDocument, *, is_met: bool) -> tuple[str, str]:
    is_manual = document.start_mode == StartMode.MANUAL
    short = document.min_rank_start - document.joined_ranks
    if is_manual:
        window = "it stays open: the operator starts the run"
        cap = "the run fails: nobody started it" if is_met else "the run fails: no quorum"
        return window, cap
    if is_met:
        starts = f"the run starts with {plural(document.joined_ranks, 'rank')}"
        return starts, starts
    missing = plural(short, "rank")
    return f"{missing} short, it waits on and starts when they are in", "the run fails: no quorum"


def _told(document: StateDocument, *, is_met: bool) -> tuple[str, str]:
    head = joined_of(document)
    if document.start_armed:
        text = f"{head}: the start was asked for, the window closes"
        return text, text
    window_s, cap_s = finite(document.window_remaining_s), finite(document.cap_remaining_s)
    mode, target = document.start_mode, document.target_ranks
    if is_met and mode != StartMode.AUTO:
        return _held(head, mode=mode, window_s=window_s, cap_s=cap_s)
    if is_met:
        is_full = target is not None and document.joined_ranks >= target
        if window_s is None or is_full:
            closes = "is starting"
        else:
            closes = f"starts in {duration(window_s)}{f', at once with {target}' if target else ''}"
        text = f"{head}, quorum {document.min_rank_start} is met: {closes}"
        return text, text
    return _short_of_quorum(document, head, window_s=window_s, cap_s=cap_s)


def _short_of_quorum(
    document: StateDocument, head: str, *, window_s: float | None, cap_s: float | None
) -> tuple[str, str]:
    fails = f"fails in {duration(cap_s)}"
    needs = f"{head}, needs {document.min_rank_start - document.joined_ranks} more"
    hosts = [clean(host) for host in document.expected_hosts]
    if window_s is not None and document.start_mode != StartMode.MANUAL:
        ends = f"the window closes in {duration(window_s)}, then it waits on and {fails}"
    else:
        ends = f"it {fails}"
    missing = f"; not heard from: {listed(hosts, 48)}" if hosts else ""
    named = f", missing {listed(hosts, MISSING_CELLS)}" if hosts else " to start"
    return f"{needs} to start; {ends}{missing}", f"{needs}{named}; {fails}"


def _held(head: str, *, mode: str, window_s: float | None, cap_s: float | None) -> tuple[str, str]:
    if mode == StartMode.MANUAL:
        then = f"fails in {duration(cap_s)} without it"
    elif window_s is not None:
        then = f"starts by itself in {duration(window_s)}"
    else:
        then = "is starting"
    text = f"{head}, quorum is met: waits for your start, {then}"
    return text, f"{head}: waits for your start, {then}"


def _tone(document: StateDocument, *, is_met: bool) -> Tone:
    if document.start_armed:
        return Tone.INFO
    fails = not is_met or document.start_mode == StartMode.MANUAL
    cap_s = finite(document.cap_remaining_s)
    if fails and cap_s is not None and cap_s < SOON_S:
        return Tone.BAD
    if is_met:
        return Tone.INFO if document.start_mode == StartMode.AUTO else Tone.ACCENT
    return Tone.WARN if document.refusals or document.window_remaining_s is None else Tone.INFO
