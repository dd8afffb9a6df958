"""The header: which run this is, how far it is, how well it goes.

What it is: the facts of the run as short fields, each with the room it needs.
What it is not: a verdict; `view.waits` says what is wrong.
Who drives it: the Training screen, and any screen that names the run.
"""

from dataclasses import dataclass

from flodl_console.view.facts import (
    alive_ranks,
    host_names,
    is_gone,
    is_over,
    lost_ranks,
    phase_look,
    share_reached,
)
from flodl_console.view.formats import (
    age_at,
    bounded,
    count,
    duration,
    number,
    percent,
    plural,
    rate,
    ratio,
)
from flodl_console.view.model import ConsoleView
from flodl_console.view.texts import cell_width, fit, fit_line, joined, says
from flodl_console.view.tones import Glyph, Line, Phrase, Tone
from flodl_core.telemetry.state import StateDocument, TrainingState

FIELD_CELLS = 36
NAME_CELLS = 40
OF_NOW_UP_TO = 1.05
"""Above this part of the ideal, the speed is of windows in which more ranks trained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderField:
    """One fact of the header."""

    key: str
    """mode, phase, epoch, progress, eta, loss, metric, rate, ideal, ranks, dropped, saved, up."""
    text: str
    """With its unit, at most 36 cells: `loss 0.4312`."""
    tone: Tone
    priority: int
    """1 is the last one to be left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderPanel:
    """Which run this is, how far it is, how well it goes."""

    name: str
    """The run's name, at most 40 cells."""
    run_id: str
    mode: str
    """`cpu_cadence`, at most 16 cells."""
    mode_reason: str
    """Why this mode was chosen, at most 160 cells."""
    phase: str
    """The phase as a word, at most 12 cells; `stopped` and `gone` where it is no longer so."""
    phase_tone: Tone
    phase_glyph: Glyph
    progress: float | None
    """Trained part of all samples, 0 to 1; None before training."""
    progress_text: str
    """`41.2 %  12,288 / 29,952 samples`, at most 48 cells."""
    fields: tuple[HeaderField, ...]
    """In reading order, absent facts left out."""
    report: str
    """What the job said of its model at the last evaluation; empty if nothing, one line."""
    title: Line
    """Glyph, phase, name and mode as one line, at most 76 cells."""


def header_panel(view: ConsoleView) -> HeaderPanel | None:
    """Return the header; None while there is no document."""
    document = view.document
    if document is None:
        return None
    run, training = document.run, document.training
    look = phase_look(view, document)
    name, mode = says(run.name or run.id, NAME_CELLS), says(run.mode, 16)
    title = (
        Phrase(f"{look.glyph} {look.word}", look.tone),
        Phrase(f"  {name}", Tone.ACCENT),
        Phrase(f"  {mode}", Tone.INFO),
    )
    return HeaderPanel(
        name=name,
        run_id=says(run.id, 16),
        mode=mode,
        mode_reason=says(run.mode_reason, 160),
        phase=look.word,
        phase_tone=look.tone,
        phase_glyph=look.glyph,
        progress=_progress(training),
        progress_text=_progress_text(training),
        fields=_fields(document, goes_on=not (is_over(document) or is_gone(view))),
        report=says(document.report or "", 240),
        title=fit_line(title, 76),
    )


def header_lines(panel: HeaderPanel, width: int, *, max_lines: int = 2) -> tuple[Line, ...]:
    """Return the fields as lines, each field whole or not at all.

    Args:
        panel: of this moment.
        width: cells of a line.
        max_lines: the more there are, the more fields are shown.
    """
    left = [field for field in panel.fields if cell_width(field.text) <= width]
    lines: list[Line] = []
    kept = set(_chosen(left, width, max_lines=max_lines))
    row: list[tuple[int, Phrase]] = []
    used = 0
    for field in left:
        if field.key not in kept:
            continue
        cells = cell_width(field.text)
        if row and used + 2 + cells > width:
            lines.append(joined(row, width))
            row, used = [], 0
        used += cells + (2 if row else 0)
        row.append((1, Phrase(field.text, field.tone)))
    return (*lines, joined(row, width)) if row else tuple(lines)


def _chosen(fields: list[HeaderField], width: int, *, max_lines: int) -> list[str]:
    """Return the keys of the most important fields that fit, in reading order, into the lines."""
    kept: list[HeaderField] = []
    for field in sorted(fields, key=lambda one: one.priority):
        tried = [one for one in fields if one in kept or one is field]
        if _lines_needed(tried, width) <= max_lines:
            kept.append(field)
    return [field.key for field in kept]


def _lines_needed(fields: list[HeaderField], width: int) -> int:
    lines, used = 0, width
    for field in fields:
        cells = cell_width(field.text)
        if used + 2 + cells > width:
            lines, used = lines + 1, cells
        else:
            used += 2 + cells
    return lines


def _progress(training: TrainingState | None) -> float | None:
    if training is None:
        return None
    if training.samples_total <= 0:
        return 0.0
    reached = ratio(training.samples_done, training.samples_total)
    return None if reached is None else bounded(reached)


def _progress_text(training: TrainingState | None) -> str:
    if training is None:
        return "not training yet"
    done, total = count(training.samples_done), count(training.samples_total)
    return f"{percent(_progress(training))}  {done} / {total} samples"


_OF_NOW = frozenset({"eta", "rate", "ideal"})
"""What is true only while the run goes on."""


def _fields(document: StateDocument, *, goes_on: bool) -> tuple[HeaderField, ...]:
    fields = [*_training_fields(document), *_run_fields(document)]
    return tuple(
        HeaderField(key=key, text=fit(text, FIELD_CELLS), tone=tone, priority=priority)
        for key, text, tone, priority in fields
        if text and (goes_on or key not in _OF_NOW)
    )


_Field = tuple[str, str, Tone, int]


def _training_fields(document: StateDocument) -> list[_Field]:
    training = document.training
    if training is None:
        return []
    metric = says(training.metric_name or "metric", 16)
    reached = share_reached(document)
    epoch = f"epoch {count(min(training.epoch + 1, training.epochs))}/{count(training.epochs)}"
    shown = "" if training.metric is None else f"{metric} {number(training.metric)}"
    dropped = training.samples_dropped
    return [
        ("epoch", epoch, Tone.INFO, 3),
        ("progress", percent(_progress(training)), Tone.INFO, 1),
        ("eta", f"eta {duration(training.eta_s)}", Tone.INFO, 2),
        ("loss", f"loss {number(training.loss)}", Tone.ACCENT, 4),
        ("metric", shown, Tone.INFO, 8),
        ("rate", f"{rate(training.throughput)} samples/s", Tone.INFO, 5),
        ("ideal", _ideal(training, reached), _ideal_tone(reached), 7),
        ("dropped", f"{plural(dropped, 'sample')} dropped" if dropped else "", Tone.WARN, 9),
    ]


def _ideal(training: TrainingState, reached: float | None) -> str:
    if training.ideal_throughput is None:
        return ""
    if reached is not None and reached > OF_NOW_UP_TO:
        return f"ideal now {rate(training.ideal_throughput)}/s"
    return f"{percent(reached)} of ideal {rate(training.ideal_throughput)}/s"


def _ideal_tone(reached: float | None) -> Tone:
    return Tone.WARN if reached is not None and reached < 0.5 else Tone.INFO


def _run_fields(document: StateDocument) -> list[_Field]:
    lost = len(lost_ranks(document))
    total = len(document.ranks) or document.joined_ranks
    hosts = plural(len(host_names(document)), "host")
    alive = f"{len(alive_ranks(document))} of " if lost else ""
    ranks = f"{alive}{plural(total, 'rank')}, {hosts}"
    saved, saved_tone = _saved(document)
    return [
        ("ranks", ranks, Tone.BAD if lost else Tone.INFO, 6),
        ("saved", saved, saved_tone, 10),
        ("up", f"up {duration(document.run.uptime_s)}", Tone.DIM, 11),
    ]


def _saved(document: StateDocument) -> tuple[str, Tone]:
    checkpoint = document.checkpoint
    if checkpoint is None:
        return "", Tone.DIM
    if checkpoint.saving:
        return "saving …", Tone.ACCENT
    if checkpoint.last_error:
        return "save failed", Tone.BAD
    if checkpoint.path is None:
        return "not saved yet", Tone.DIM
    age_s = age_at(document.run.uptime_s, checkpoint.uptime_s)
    ago = "" if age_s is None else f" {duration(age_s)} ago"
    version = "" if checkpoint.version is None else f" v{count(checkpoint.version, width=6)}"
    return f"saved{version}{ago}", Tone.INFO
