"""The texts of one rank's cells, by the name of their column.

What it is: the formats of the rank table, each text no wider than its column.
What it is not: the table's order or its columns.
Who drives it: `view.ranks`; the rank's own page uses the same facts.
"""

from collections.abc import Mapping

from flodl_console.view import formats
from flodl_console.view.facts import STATE_LOOKS
from flodl_console.view.marks import MARK_LOOKS, Marked, RankMark
from flodl_console.view.texts import clean, says
from flodl_console.view.tones import Glyph, Phrase, Tone
from flodl_core.ids import RankPhase
from flodl_core.telemetry.state import RankState

LATE_PART = 0.25
"""From this part of its ceiling on, an age is worth a look."""
URGENT_PART = 0.5


def look_of(rank: RankState, mark: RankMark) -> tuple[Glyph, Tone]:
    """Return the mark and tone of a rank: of what sets it apart, else of its state."""
    if mark is RankMark.NONE:
        glyph, tone, _ = STATE_LOOKS[rank.state]
        return glyph, tone
    return MARK_LOOKS[mark]


def use_of(rank: RankState) -> float | None:
    """Return how busy its device is, 0 to 100; its process's CPU where no device tells."""
    resources = rank.resources
    if resources is None:
        return None
    return resources.cpu_percent if resources.gpu_percent is None else resources.gpu_percent


def memory_of(rank: RankState) -> tuple[float | None, float | None]:
    """Return used and whole device memory in bytes; its process's RAM where no device tells."""
    resources = rank.resources
    if resources is None:
        return None, None
    if resources.vram_used_bytes is None:
        return resources.ram_used_bytes, None
    return resources.vram_used_bytes, resources.vram_total_bytes


def rank_cells(rank: RankState, marked: Marked, *, is_anchor: bool) -> Mapping[str, Phrase]:
    """Return the phrases of a rank by column; those of flexible columns are not cut."""
    glyph, tone = look_of(rank, marked.mark)
    state_tone = STATE_LOOKS[rank.state][1]
    is_gone = rank.state is RankPhase.LOST
    plain = Tone.DIM if is_gone else Tone.INFO
    slow = Tone.WARN if marked.mark is RankMark.SLOW else plain
    return {
        "mark": Phrase(glyph.value, tone),
        "rank": Phrase(formats.count(rank.rank, width=5), plain),
        "host": Phrase(clean(rank.host), plain),
        "device": Phrase(says(rank.device, 7), plain),
        "state": Phrase(rank.state.value, state_tone),
        "batches": Phrase(batches_of(rank), plain),
        "ms_per_batch": Phrase(formats.milliseconds(rank.ms_per_batch), slow),
        "share": Phrase(formats.percent(rank.share), plain),
        "weight": Phrase(formats.percent(rank.weight), plain),
        "divergence": Phrase(formats.number(rank.divergence, digits=3), plain),
        "heartbeat": _age(rank.heartbeat_age_s, rank.heartbeat_ceiling_s, plain=plain),
        "progress": _age(rank.progress_age_s, rank.progress_ceiling_s, plain=plain),
        "throughput": Phrase(formats.rate(rank.throughput), plain),
        "loss": Phrase(formats.number(rank.loss, digits=3), plain),
        "throttled": Phrase("yes" if rank.throttled else "no", plain),
        "use": Phrase(formats.share_of_100(use_of(rank)), plain),
        "memory": Phrase(formats.size_of(*memory_of(rank)), plain),
        "note": Phrase(_note(marked, is_anchor=is_anchor), tone if marked.note else Tone.DIM),
    }


def batches_of(rank: RankState) -> str:
    """Return batches done and planned in the window under way, `12/60`; at most 9 cells."""
    done = _four(rank.steps_in_window)
    return done if rank.planned_batches is None else f"{done}/{_four(rank.planned_batches)}"


def _four(value: int) -> str:
    return str(value) if 0 <= value < 10_000 else formats.compact(max(0, value))


def _age(age_s: float | None, ceiling_s: float | None, *, plain: Tone) -> Phrase:
    part = formats.part_of(age_s, ceiling_s)
    text = formats.age_of(age_s, ceiling_s, is_tight=True)
    if part is None or part < LATE_PART:
        return Phrase(text, plain)
    return Phrase(text, Tone.BAD if part >= URGENT_PART else Tone.WARN)


def _note(marked: Marked, *, is_anchor: bool) -> str:
    word = "slow " if marked.mark is RankMark.SLOW else ""
    parts = [f"{word}{marked.note}"] if marked.note else []
    if is_anchor:
        parts.append("anchor")
    return ", ".join(parts)
