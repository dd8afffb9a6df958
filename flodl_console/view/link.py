"""The banner: where the data comes from, and whether it is the present.

What it is: the designed states of the road to the run, in words.
What it is not: the state of the run; `view.waits` says that.
Who drives it: every screen shows it as its first or last line.
"""

from dataclasses import dataclass
from enum import StrEnum

from flodl_console.view.facts import is_gone, is_over
from flodl_console.view.formats import bounded, duration, finite
from flodl_console.view.model import ConsoleView
from flodl_console.view.records import LinkState, PlaybackMoved, SourceKind
from flodl_console.view.texts import clean, fit, says
from flodl_console.view.tones import Glyph, Tone

TEXT_CELLS = 160
SHORT_CELLS = 56


class LinkLook(StrEnum):
    """How a screen looks, as far as the road to the run decides it."""

    LOADING = "loading"
    """Nothing to show yet."""
    LIVE = "live"
    STALE = "stale"
    """The road answers no more, or not yet again; what is shown is old."""
    DISCONNECTED = "disconnected"
    ENDED = "ended"
    """The run is over and gone; what is shown is its last word."""
    GONE = "gone"
    """The run is gone and has not said how it ended: it was killed."""
    PLAYING = "playing"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkBanner:
    """One line about the road to the run."""

    look: LinkLook
    tone: Tone
    glyph: Glyph
    word: str
    """The look as one word, at most 12 cells."""
    text: str
    """The whole sentence, at most 160 cells; it begins with the word."""
    short: str
    """The same in at most 56 cells."""
    held: str
    """`held, 3 m 12 s old` while a person holds the picture, at most 24 cells; else empty."""
    is_quiet: bool
    """Whether the word says enough, because all is well."""
    is_current: bool
    """Whether what is shown is the present, so that nothing needs to be dimmed."""
    age_s: float | None
    """Age of what is shown; None if nothing is shown."""
    position: float | None
    """Where a replay or demo stands, 0 to 1; None for a live run."""
    is_whole: bool
    """Whether the whole sentence is worth more than one line of a narrow terminal."""


def link_banner(view: ConsoleView, *, held: ConsoleView | None = None) -> LinkBanner:
    """Return the banner of this moment.

    Args:
        view: the newest one.
        held: the older one that a person holds on the screen; None if the newest is shown.
    """
    look = _look(view)
    glyph, tone = _LOOKS[look]
    has_run_out = _has_run_out(view)
    age_s = view.age_s if held is None else _age_of_held(view, held)
    ends_unseen = held is not None and _ends_unseen(view, held)
    text, short = _words(view, look, age_s)
    if ends_unseen and look in _TALKING:
        text = short = f"{look.value}: the run has ended since then; Space shows it"
    is_well = look is LinkLook.LIVE and not (view.pages_fault or ends_unseen)
    is_odd = has_run_out or (look is LinkLook.LIVE and not (is_well and held is None))
    return LinkBanner(
        look=look,
        tone=Tone.WARN if is_odd else tone,
        glyph=glyph,
        word=look.value,
        text=fit(text, TEXT_CELLS),
        short=fit(short, SHORT_CELLS),
        held="" if held is None else "held" + ("" if age_s is None else f", {duration(age_s)} old"),
        is_quiet=is_well or (look is LinkLook.PLAYING and view.source is SourceKind.DEMO),
        is_current=view.is_current and held is None,
        age_s=age_s,
        position=_position(view.playback),
        is_whole=look in _TROUBLES or has_run_out or ends_unseen,
    )


def _age_of_held(view: ConsoleView, held: ConsoleView) -> float | None:
    """Return how old a held picture is by now; None if it shows nothing of the run."""
    return None if held.received_at_s is None else max(0.0, view.now_s - held.received_at_s)


def _ends_unseen(view: ConsoleView, held: ConsoleView) -> bool:
    """Whether the run has ended, and the held picture does not show it."""
    is_shown = held.document is not None and is_over(held.document)
    return view.document is not None and is_over(view.document) and not is_shown


_LOOKS = {
    LinkLook.LOADING: (Glyph.STARTING, Tone.DIM),
    LinkLook.LIVE: (Glyph.RUNNING, Tone.OK),
    LinkLook.STALE: (Glyph.WARN, Tone.WARN),
    LinkLook.DISCONNECTED: (Glyph.BAD, Tone.BAD),
    LinkLook.ENDED: (Glyph.STOPPED, Tone.DIM),
    LinkLook.GONE: (Glyph.BAD, Tone.BAD),
    LinkLook.PLAYING: (Glyph.PINNED, Tone.ACCENT),
    LinkLook.PAUSED: (Glyph.PAUSED, Tone.ACCENT),
}

_TROUBLES = frozenset({LinkLook.DISCONNECTED, LinkLook.ENDED, LinkLook.GONE})
_TALKING = frozenset({LinkLook.LIVE, LinkLook.STALE})
"""Looks that do not tell of an end by themselves."""

_BY_LINK = {
    LinkState.LOADING: LinkLook.LOADING,
    LinkState.LIVE: LinkLook.LIVE,
    LinkState.DISCONNECTED: LinkLook.DISCONNECTED,
    LinkState.ENDED: LinkLook.ENDED,
}


def _look(view: ConsoleView) -> LinkLook:
    if view.playback is not None and view.link is LinkState.LIVE:
        return LinkLook.PAUSED if view.playback.is_paused else LinkLook.PLAYING
    if is_gone(view):
        return LinkLook.GONE
    return LinkLook.STALE if view.is_stale else _BY_LINK[view.link]


def _words(view: ConsoleView, look: LinkLook, age_s: float | None) -> tuple[str, str]:
    label = says(view.label, 48)
    detail = clean(view.link_detail)
    reason = f": {detail}" if detail else ""
    age, silence = duration(age_s), duration(view.age_s)
    match look:
        case LinkLook.LOADING:
            return f"loading {label}{reason}", f"loading {says(view.label, 40)}"
        case LinkLook.LIVE:
            if view.pages_fault:
                short = "live, but its past cannot be read"
                return f"{short}: {clean(view.pages_fault)}", short
            asked = ", read-only" if view.is_read_only else ""
            return f"live {label}{asked}", f"live {says(view.label, 38)}{asked}"
        case LinkLook.STALE:
            old = "that old" if age == silence else f"{age} old"
            text = f"stale: no answer of {label} for {silence}, what is shown is {old}"
            return text, f"stale: shown is {age} old"
        case LinkLook.DISCONNECTED:
            shown = f"; shown is {age} old" if age_s is not None else ""
            retry = _retry(view)
            return f"disconnected{reason}{shown}{retry}", f"disconnected{shown}{retry}"
        case LinkLook.ENDED:
            said = detail.removeprefix("the run has ended: ")
            return f"ended: {said or 'the run is over, shown is its last word'}", "ended"
        case LinkLook.GONE:
            return f"gone{reason}", "gone: the run left no word of its end"
    where = _where(view)
    kind = "demo" if view.source is SourceKind.DEMO else "replay"
    if _has_run_out(view):
        ends = "the record ends here and does not say how the run ended"
        return f"{look.value} {where}: {ends}; {label}", f"{look.value} {where}, no end recorded"
    return f"{look.value} {where}, {kind} of {label}", f"{look.value} {where}"


def _has_run_out(view: ConsoleView) -> bool:
    """Whether a replay stands at the end of a record that tells of no end of the run."""
    playback, document = view.playback, view.document
    if playback is None or document is None or view.source is not SourceKind.REPLAY:
        return False
    is_last = view.link is LinkState.LIVE and playback.position_s >= playback.length_s
    return is_last and not is_over(document)


def _retry(view: ConsoleView) -> str:
    if view.retry_at_s is None:
        return ""
    return f"; next try in {duration(view.retry_at_s - view.now_s)}"


def _where(view: ConsoleView) -> str:
    playback = view.playback
    assert playback is not None
    speed = f"×{playback.speed:g}"
    return f"{speed} {duration(playback.position_s)} of {duration(playback.length_s)}"


def _position(playback: PlaybackMoved | None) -> float | None:
    if playback is None:
        return None
    position, length = finite(playback.position_s), finite(playback.length_s)
    if position is None or length is None or length <= 0:
        return 0.0
    return bounded(position / length)
