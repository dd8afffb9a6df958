"""How the Training screen divides its room: what stands where, and how high.

What it is: a pure function of width, height and the number of ranks.
What it is not: the content; each part has its panel.
Who drives it: the Training screen, whenever its size or the number of ranks changes.

    small                          large
    ┌ verdict ───────────┐         ┌ verdict ─────────────────┐
    │ header             │         │ header                   │
    │ rank table         │         │ rank table               │
    │ averaging, cadence │         │ averaging │ plot  │ plot  │
    │ plot (if any room) │         │ cadence   │ plot  │ plot  │
    └────────────────────┘         └──────────────────────────┘
"""

from dataclasses import dataclass
from typing import Final

HEAD_LINES: Final = 1
"""Of the rank table."""

SUMMARY_LINES: Final = 2
"""Averaging and cadence as one line each."""

GAP_LINES: Final = 1
"""Between the table and what stands below it, where there is much room."""

MIN_PLOT_LINES: Final = 6
MIN_PLOT_CELLS: Final = 46
SMALL_TABLE_ROWS: Final = 8
"""Ranks that are shown before a plot is given room, where there is little of it."""

LARGE_FROM_CELLS: Final = 110
LARGE_FROM_LINES: Final = 28
FACTS_CELLS: Final = 56
"""Room for the facts beside the plots."""

END_LINES: Final = 11
"""What the diagnosis of a run that ended is given before ranks are, where there is little room."""

FACTS_LINES: Final = 18
"""The lines that all facts need with their titles, and the least that plots beside them get."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """The room of each part, in lines and cells."""

    is_large: bool
    """Whether facts stand in panels of their own; otherwise each is one line."""
    header_lines: int
    table_lines: int
    """With its head."""
    below_lines: int
    """Of what stands below the table."""
    plot_columns: int
    plot_rows: int
    """Both 0 where there is no room for a plot."""

    @property
    def plots(self) -> int:
        """How many plots there is room for."""
        return self.plot_columns * self.plot_rows


def training_plan(width: int, height: int, *, ranks: int, is_over: bool = False) -> TrainingPlan:
    """Return how to divide the room.

    Args:
        width: cells of the screen.
        height: lines between the first lines and the keys of the screen.
        ranks: rows of the table; the note in an empty one counts as one row.
        is_over: whether the run has ended: how it ended needs more room than how it goes.
    """
    rows = max(1, ranks)
    if width >= LARGE_FROM_CELLS and height >= LARGE_FROM_LINES:
        return _large(width, height, rows)
    return _small_over(height, rows) if is_over else _small(width, height, rows)


def _small(width: int, height: int, rows: int) -> TrainingPlan:
    header = 2 if height >= 16 else 1
    left = height - 1 - header - SUMMARY_LINES
    wanted = HEAD_LINES + min(rows, SMALL_TABLE_ROWS)
    if left - wanted < MIN_PLOT_LINES:
        return TrainingPlan(
            is_large=False,
            header_lines=header,
            table_lines=max(HEAD_LINES + 1, left),
            below_lines=SUMMARY_LINES,
            plot_columns=0,
            plot_rows=0,
        )
    half = max(wanted, left // 2)
    table = min(HEAD_LINES + rows, half, left - MIN_PLOT_LINES)
    return TrainingPlan(
        is_large=False,
        header_lines=header,
        table_lines=table,
        below_lines=height - 1 - header - table,
        plot_columns=min(2, max(1, width // MIN_PLOT_CELLS)),
        plot_rows=1,
    )


def _small_over(height: int, rows: int) -> TrainingPlan:
    header = 2 if height >= 16 else 1
    left = height - 1 - header
    table = min(HEAD_LINES + rows, max(HEAD_LINES + 3, left - END_LINES))
    return TrainingPlan(
        is_large=False,
        header_lines=header,
        table_lines=table,
        below_lines=left - table,
        plot_columns=0,
        plot_rows=0,
    )


def _large(width: int, height: int, rows: int) -> TrainingPlan:
    left = height - 1 - 2
    table = min(
        HEAD_LINES + rows, max(HEAD_LINES + SMALL_TABLE_ROWS, left - GAP_LINES - FACTS_LINES)
    )
    below = left - table - GAP_LINES
    return TrainingPlan(
        is_large=True,
        header_lines=2,
        table_lines=table,
        below_lines=below,
        plot_columns=min(2, max(1, (width - FACTS_CELLS) // MIN_PLOT_CELLS)),
        plot_rows=2 if below >= 2 * (MIN_PLOT_LINES + 1) else 1,
    )
