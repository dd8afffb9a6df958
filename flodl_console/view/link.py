"""The banner: where the data comes from, and whether it is the present.

What it is: the designed states of the road to the run, in words.
What it is not: the state of the run; `view.waits` says that.
Who drives it: every screen shows it as its first or last line.
"""

from dataclasses import dataclass
from enum import StrEnum

from flodl_console.view.tones import Glyph, Tone


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
    is_current: bool
    """Whether what is shown is the present, so that nothing needs to be dimmed."""
    age_s: float | None
    """Age of what is shown; None if nothing is shown."""
    position: float | None
    """Where a replay or demo stands, 0 to 1; None for a live run."""
