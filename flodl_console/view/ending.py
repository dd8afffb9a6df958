"""How a run ended: the diagnosis, what was kept, what to do next.

What it is: the last screen of a run, finished or failed, in words.
What it is not: the summary that the run itself prints.
Who drives it: the finished and failed states of each screen, the verdict.
"""

from dataclasses import dataclass
from itertools import islice
from typing import Final

from flodl_console.view.facts import is_over
from flodl_console.view.formats import count, duration, number, plural
from flodl_console.view.model import ConsoleView
from flodl_console.view.texts import clean, fit, says
from flodl_console.view.tones import Glyph, Tone
from flodl_core.ids import ClusterPhase, ExitCode
from flodl_core.telemetry.records import EventRecord
from flodl_core.telemetry.state import EndState, StateDocument

MAX_DETAIL_LINES: Final = 12
_MOST_SCALARS: Final = 4

_MEANINGS: Final = {
    ExitCode.DONE: ("done", Tone.OK),
    ExitCode.FAILED: ("failed", Tone.BAD),
    ExitCode.USAGE: ("not started", Tone.BAD),
    ExitCode.WINDOW_FAILED: ("no world formed", Tone.BAD),
    ExitCode.STOPPED_SAVED: ("stopped early and saved", Tone.INFO),
    ExitCode.NOT_SAVED: ("trained but not saved", Tone.BAD),
    ExitCode.INTERRUPTED_SAVED: ("interrupted and saved", Tone.INFO),
}

_ADVICE: Final = {
    ExitCode.DONE: "Nothing is left to do.",
    ExitCode.FAILED: "Look at the first critical event: the others follow from it.",
    ExitCode.USAGE: "Correct what is named above and start the run again.",
    ExitCode.WINDOW_FAILED: "Start the missing hosts first, or lower join.min_rank_start.",
    ExitCode.STOPPED_SAVED: "The bundle holds what was trained until the stop.",
    ExitCode.NOT_SAVED: "Make room or rights where it saves, then start the run again.",
    ExitCode.INTERRUPTED_SAVED: "The bundle holds what was trained until then.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndPanel:
    """How the run ended."""

    is_over: bool
    """False while it is on; then everything else is empty."""
    tone: Tone
    glyph: Glyph
    title: str
    """What the exit code means, with the code: `failed (exit code 1)`, at most 60 cells."""
    exit_code: int | None
    reason: str
    """The root cause in one clause, at most 240 cells."""
    details: tuple[str, ...]
    """Whatever else is known of it, each at most 240 cells."""
    cause: str
    """The first critical event with its time, at most 240 cells; empty if none was."""
    cause_label: str
    """`cause`, or `earlier` where the run ended well in spite of it; at most 8 cells."""
    cause_seq: int | None
    """That event's number, to jump to."""
    facts: tuple[tuple[str, str], ...]
    """Label and value: trained, loss, time, ranks, bundle; values at most 240 cells."""
    advice: tuple[str, ...]
    """What to do next, each at most 240 cells."""


def end_panel(view: ConsoleView) -> EndPanel:
    """Return how the run ended."""
    document = view.document
    if document is None or not is_over(document):
        return _NOT_OVER
    tone = _meaning(document)[1]
    end = document.end
    first = _first_critical(view.events)
    return EndPanel(
        is_over=True,
        tone=tone,
        glyph=_glyph(tone),
        title=_title(document),
        exit_code=end.exit_code if end else None,
        reason=says(_spaced(end.reason), 240) if end else "the run has not said why yet",
        details=_details(end),
        cause=f"{first.at[11:19]} {says(first.text, 220)}" if first else "",
        cause_label="cause" if tone is Tone.BAD else "earlier",
        cause_seq=first.seq if first else None,
        facts=_facts(document),
        advice=_advice(view, document, first),
    )


def ending_words(document: StateDocument) -> tuple[Tone, str, str]:
    """Return how a run that is over ended: tone, one sentence, and a shorter one; not cut."""
    end = document.end
    title, tone = _title(document), _meaning(document)[1]
    why_ended = clean(_spaced(end.reason)) if end else ""
    reason = f": {why_ended}" if why_ended and why_ended not in title else ""
    detail = clean(end.detail.splitlines()[0]) if end and end.detail.strip() else ""
    why = f", {detail}" if detail and tone is Tone.BAD else ""
    saved = _saved(document)
    text = f"{title}{reason}{why}{f'; saved: {saved}' if saved else ''}"
    is_told = not saved or "and saved" in title
    return tone, text, f"{title}{reason}{why or ('' if is_told else '; saved')}"


def _spaced(reason: str) -> str:
    """Return a reason in words, also where it is one word with underscores."""
    return reason if " " in reason else reason.replace("_", " ")


_NOT_OVER: Final = EndPanel(
    is_over=False,
    tone=Tone.DIM,
    glyph=Glyph.NONE,
    title="",
    exit_code=None,
    reason="",
    details=(),
    cause="",
    cause_label="cause",
    cause_seq=None,
    facts=(),
    advice=(),
)


def _meaning(document: StateDocument) -> tuple[str, Tone]:
    if document.end is None:
        is_done = document.phase is ClusterPhase.DONE
        return ("done", Tone.OK) if is_done else ("failed", Tone.BAD)
    code = document.end.exit_code
    words, tone = _MEANINGS.get(code, ("ended", Tone.BAD))
    if document.checkpoint is None or document.checkpoint.path is None:
        words = words.replace(" and saved", ", nothing was saved")
    return words, tone


def _title(document: StateDocument) -> str:
    words, _ = _meaning(document)
    return words if document.end is None else f"{words} (exit code {document.end.exit_code})"


def _glyph(tone: Tone) -> Glyph:
    return {Tone.OK: Glyph.OK, Tone.BAD: Glyph.BAD}.get(tone, Glyph.STOPPED)


def _details(end: EndState | None) -> tuple[str, ...]:
    lines = [line for line in end.detail.splitlines() if line.strip()] if end else []
    kept = [fit(clean(line.expandtabs(4)), 240) for line in lines[:MAX_DETAIL_LINES]]
    more = len(lines) - len(kept)
    return (*kept, f"and {plural(more, 'more line')} in the run's log") if more else tuple(kept)


def _first_critical(events: tuple[EventRecord, ...]) -> EventRecord | None:
    return next((event for event in events if event.severity == "critical"), None)


def _saved(document: StateDocument) -> str:
    checkpoint = document.checkpoint
    return clean(checkpoint.path) if checkpoint and checkpoint.path else ""


def _facts(document: StateDocument) -> tuple[tuple[str, str], ...]:
    facts = []
    training = document.training
    if training is not None:
        done, total = count(training.samples_done), count(training.samples_total)
        facts.append(("trained", f"{done} of {total} samples"))
        facts.append(("loss", number(training.loss)))
        if training.metric is not None:
            facts.append((says(training.metric_name or "metric", 20), number(training.metric)))
    if document.epochs:
        noted = islice(document.epochs[-1].scalars.items(), _MOST_SCALARS)
        facts += [(says(name, 20), number(mean)) for name, mean in noted]
    facts.append(("time", duration(document.run.uptime_s)))
    if document.ranks:
        lost = sum(rank.state == "lost" for rank in document.ranks)
        facts.append(("ranks", f"{len(document.ranks)}, {lost} lost"))
    checkpoint = document.checkpoint
    facts.append(("bundle", fit(_saved(document) or "none", 240)))
    if checkpoint is not None and checkpoint.last_error:
        facts.append(("save failed", says(checkpoint.last_error, 240)))
    return tuple(facts)


def _advice(
    view: ConsoleView, document: StateDocument, first: EventRecord | None
) -> tuple[str, ...]:
    end = document.end
    advice = []
    if end is not None and end.exit_code in _ADVICE:
        advice.append(_ADVICE[end.exit_code])
    if first is not None and first.fix:
        advice.append(says(first.fix, 240))
    run_dir = document.run.run_dir
    if run_dir and view.playback is None:
        advice.append(fit(f"Play it again: flodl console --replay {clean(run_dir)}", 240))
    return tuple(advice)
