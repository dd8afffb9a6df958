"""Who has waited for long in a made-up run, and what will come of it.

What it is: the rows `waits` of the status document, those of the run first.
What it is not: a ceiling that is enforced; the script says what happens.
Who drives it: `demo.document`.
"""

from typing import Final

from flodl_console.demo.numbers import Numbers
from flodl_console.demo.rank_rows import Moment, heartbeat_age_s, is_missing
from flodl_console.demo.script import (
    HEARTBEAT_CEILING_S,
    STALL_CEILING_S,
    STOP_GRACE_S,
    Save,
)
from flodl_core.telemetry.state import MAX_WAIT_ROWS, WaitState

SHOWN_AFTER_S: Final = 5.0


def waits_at(numbers: Numbers, moment: Moment) -> tuple[WaitState, ...]:
    """Return the waits of a moment that are longer than five seconds."""
    script = numbers.script
    if script.ending is not None and moment.at_s >= script.ending.at_s:
        return ()
    rows = [*_run_waits(numbers, moment), *_silences(numbers, moment), *_batches(numbers, moment)]
    return tuple(row for row in rows if row.age_s > SHOWN_AFTER_S)[:MAX_WAIT_ROWS]


def _run_waits(numbers: Numbers, moment: Moment) -> list[WaitState]:
    script, window, at_s = numbers.script, moment.window, moment.at_s
    rows = []
    if window is not None and moment.is_pending:
        missing = [
            str(rank)
            for rank in range(len(script.cohort.ranks))
            if is_missing(numbers, moment, rank)
        ]
        rows.append(
            WaitState(
                phase=f"cycle {window.cycle} is reducing; not acknowledged by ranks: "
                f"{', '.join(missing) or 'none'}",
                age_s=at_s - window.computed_s,
                ceiling_s=STALL_CEILING_S,
                outcome="the last commit is saved and the run ends",
            )
        )
    for save in script.faults:
        if isinstance(save, Save) and save.from_s <= at_s < save.until_s:
            version = numbers.schedule.finished(save.from_s)
            rows.append(
                WaitState(
                    rank=0,
                    phase=f"writing the save of version {version}",
                    age_s=at_s - save.from_s,
                    ceiling_s=STALL_CEILING_S,
                    outcome="the run ends with what is saved",
                )
            )
    if script.stop is not None and at_s >= script.stop.at_s:
        rows.append(
            WaitState(
                phase="cutting the window",
                age_s=at_s - script.stop.at_s,
                ceiling_s=STOP_GRACE_S,
                outcome="the last commit is saved",
            )
        )
    return rows


def _silences(numbers: Numbers, moment: Moment) -> list[WaitState]:
    script = numbers.script
    rows = []
    for rank in script.cohort.ranks:
        silent_s, lost_s = script.silent_from_s[rank.rank], script.lost_at_s[rank.rank]
        if not silent_s <= moment.at_s < lost_s:
            continue
        rows.append(
            WaitState(
                rank=rank.rank,
                host=script.cohort.hosts[rank.host].name,
                phase="silent, last seen reducing",
                age_s=heartbeat_age_s(numbers, moment.at_s, rank.rank),
                ceiling_s=HEARTBEAT_CEILING_S,
                outcome="it is lost",
            )
        )
    return rows


def _batches(numbers: Numbers, moment: Moment) -> list[WaitState]:
    """Return ranks that have had one batch in hand for long."""
    window, script = moment.window, numbers.script
    if window is None or moment.is_pending:
        return []
    rows = []
    for rank in script.cohort.ranks:
        steps, is_alive = moment.steps[rank.rank], moment.era.alive[rank.rank]
        if not is_alive or steps >= window.plan.counts[rank.rank]:
            continue
        age_s = moment.at_s - window.start_s - steps * moment.era.true_ms[rank.rank] / 1000.0
        if age_s <= SHOWN_AFTER_S:
            continue
        rows.append(
            WaitState(
                rank=rank.rank,
                host=script.cohort.hosts[rank.host].name,
                phase="in a batch",
                age_s=age_s,
                ceiling_s=STALL_CEILING_S,
                outcome="it is evicted",
            )
        )
    return rows
