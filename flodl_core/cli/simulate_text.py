"""A played cadence as text: a line a window, a summary, a plot.

What it is: words and columns; plotext is imported where a plot is asked for.
What it is not: the play.
Who drives it: `cli.simulate`.
"""

import json
import shutil
from collections.abc import Sequence
from typing import Final

from flodl_core.simulation.pace_profile import PaceProfile
from flodl_core.simulation.pace_world import PlayedWindow

_SHOWN_RANKS: Final = 8
_PLOT_ROWS: Final = 24
_MOST_COLUMNS: Final = 100


def head_line(profile: PaceProfile) -> str:
    """Return the names of the columns."""
    of_ranks = min(len(profile.batch_ms), _SHOWN_RANKS)
    batches = "batches by rank".ljust(6 * of_ranks)
    return f"{'window':>6} {'ms':>8} {'anchor':>6}  {batches} {'avg':>6} {'ideal':>6}  idle by rank"


def window_lines(window: PlayedWindow) -> list[str]:
    """Return a window's line, and one for each thing that was said meanwhile."""
    overhead = "-" if window.overhead is None else f"{window.overhead:.1%}"
    batches = "".join(f"{count:<6}" for count in window.batches[:_SHOWN_RANKS])
    idle = " ".join(_idle_words(window))
    anchor = f"{window.record.anchor}"
    line = (
        f"{window.number:>6} {window.took_ms:>8.1f} {anchor:>6}  {batches} "
        f"{overhead:>6} {window.share:>6.1%}  {idle}"
    )
    return [line.rstrip(), *(f"       {note}" for note in window.notes)]


def _idle_words(window: PlayedWindow) -> list[str]:
    gone = [count == 0 for count in window.record.batch_counts]
    words = [
        "gone" if is_gone and not count else f"{idle:.0%}"
        for idle, is_gone, count in zip(window.idle, gone, window.batches, strict=True)
    ]
    return words[:_SHOWN_RANKS]


def steady_share(played: Sequence[PlayedWindow]) -> float:
    """Return the part of the ideal in the second half of what was played."""
    later = played[len(played) // 2 :]
    done = sum(sum(window.batches) for window in later)
    ideal = sum(window.ideal_batches for window in later)
    return done / ideal if ideal else 0.0


def lockstep_share(profile: PaceProfile) -> float:
    """Return the part of the ideal if every batch were averaged, as in DDP, by the first speeds."""
    slowest = max(profile.batch_ms) + profile.sync_ms
    return len(profile.batch_ms) / slowest / sum(1 / ms for ms in profile.batch_ms)


def summary_lines(
    profile: PaceProfile, played: Sequence[PlayedWindow], *, asked: int, alive: int
) -> list[str]:
    """Return what the play came to.

    Args:
        profile: what was played.
        played: its windows.
        asked: how many windows it should have had.
        alive: ranks at its end.
    """
    if not played:
        return ["no window was finished"]
    last = played[-1]
    cause = "the clock's longest time has passed" if alive else "no rank is left"
    short = f"over after {len(played)} of {asked} windows: {cause}"
    return [
        *([short] if len(played) < asked else []),
        "",
        f"share of the ideal in the second half: {steady_share(played):.3f} "
        f"(averaging after every batch, as first: {lockstep_share(profile):.3f})",
        f"anchor {last.record.anchor} batches of rank {last.record.anchor_rank}, "
        f"phase {last.record.elche_phase}:",
        f"  {last.record.reason}",
    ]


def window_json(window: PlayedWindow) -> str:
    """Return a window as one line of JSON."""
    record = window.record
    return json.dumps(
        {
            "window": window.number,
            "window_ms": window.took_ms,
            "batches": window.batches,
            "idle": window.idle,
            "share_of_ideal": window.share,
            "overhead": window.overhead,
            "anchor": record.anchor,
            "anchor_rank": record.anchor_rank,
            "counts": record.batch_counts,
            "phase": record.elche_phase,
            "verdict": record.verdict,
            "reason": record.reason,
            "notes": window.notes,
        }
    )


def summary_json(profile: PaceProfile, played: Sequence[PlayedWindow]) -> str:
    """Return the summary as one line of JSON."""
    return json.dumps(
        {
            "windows": len(played),
            "share_of_ideal": steady_share(played),
            "lockstep_share_of_ideal": lockstep_share(profile),
        }
    )


def draw_plot(played: Sequence[PlayedWindow]) -> str:
    """Return counts and the share of the ideal by window, drawn without colours."""
    import plotext

    columns = min(shutil.get_terminal_size((80, _PLOT_ROWS)).columns, _MOST_COLUMNS)
    numbers = [window.number for window in played]
    plotext.clear_figure()
    plotext.subplots(2, 1)
    plotext.plot_size(columns, _PLOT_ROWS)
    counts = plotext.subplot(1, 1)
    for rank in range(min(len(played[0].batches), _SHOWN_RANKS)):
        ys = [window.batches[rank] for window in played]
        counts.plot(numbers, ys, label=f"rank {rank}", marker="braille")
    counts.title("batches of each rank")
    share = plotext.subplot(2, 1)
    share.plot(numbers, [window.share for window in played], marker="braille")
    share.ylim(0, 1)
    share.title("share of the ideal, by window")
    plotext.theme("clear")
    drawn = plotext.uncolorize(plotext.build())
    plotext.clear_figure()
    return "\n".join(line.rstrip() for line in drawn.split("\n"))
