"""What the keys of a playback do; a live run's picture can be held, nothing more.

What it is: pause, step, jump, seek and speed for a replay or a demo.
What it is not: the playback itself; feeds have that.
Who drives it: the app's actions.
"""

import re
from typing import Final, TypeGuard

from flodl_console.feed.source import Feed, Playback
from flodl_console.screens.prompt import PromptScreen
from flodl_console.shell import Shell

MIN_SPEED: Final = 0.25
MAX_SPEED: Final = 64.0

_CLOCK: Final = re.compile(r"(?:(\d{1,4}):)?(\d{1,4}):(\d{1,2})")
_UNITS: Final = re.compile(r"(?:(\d{1,6})\s*h)?\s*(?:(\d{1,6})\s*m)?\s*(?:(\d{1,8})\s*s?)?")
_LIVE_ONLY: Final = "a live run cannot be wound; its record can: flodl console --replay DIR"


class BadTimeError(ValueError):
    """A text is no time of a run."""


def parse_time(text: str) -> float:
    """Return a time of a run in seconds: `1:30:00`, `90:00`, `90m`, `1 h 30 m` or `5400`.

    Raises:
        BadTimeError: it is none of these.
    """
    words = text.strip().lower()
    clock = _CLOCK.fullmatch(words)
    if clock is not None:
        hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        return float(hours * 3600 + minutes * 60 + seconds)
    units = _UNITS.fullmatch(words)
    if units is None or not any(units.groups()):
        raise BadTimeError("give a time such as 1:30:00, 90m or 5400")
    hours, minutes, seconds = (int(part or 0) for part in units.groups())
    return float(hours * 3600 + minutes * 60 + seconds)


def is_playback(feed: Feed | None) -> TypeGuard[Playback]:
    """Return whether a feed has a position that can be moved."""
    return feed is not None and hasattr(feed, "set_paused") and hasattr(feed, "seek")


class Playing:
    """Moves the playback of a shell's feed."""

    def __init__(self, shell: Shell) -> None:
        """Work for a shell."""
        self._shell = shell

    def toggle_pause(self) -> bool:
        """Hold or go on with a playback; return whether there is one."""
        feed, moved = self._shell.feed, self._shell.latest.playback
        if not is_playback(feed):
            return False
        feed.set_paused(is_paused=moved is None or not moved.is_paused)
        return True

    def step(self, records: int) -> None:
        """Move by so many documents and pause."""
        if (feed := self._playback()) is not None:
            feed.step(records)

    def jump(self, by_s: float) -> None:
        """Move by so many seconds of the run."""
        moved = self._shell.latest.playback
        if (feed := self._playback()) is not None and moved is not None:
            feed.seek(moved.position_s + by_s)

    def change_speed(self, factor: float) -> None:
        """Play so many times as fast as before, between MIN_SPEED and MAX_SPEED."""
        moved = self._shell.latest.playback
        if (feed := self._playback()) is None:
            return
        speed = 1.0 if moved is None else moved.speed
        speed = min(MAX_SPEED, max(MIN_SPEED, speed * factor))
        feed.set_speed(speed)
        self._shell.notice(f"plays {speed:g} times as fast as it happened")

    def seek(self) -> None:
        """Ask for a time and go there."""
        if (feed := self._playback()) is None:
            return
        self._shell.ask_person(
            PromptScreen(
                "Go to which time of the run?",
                hint="since its start: 1:30:00, 90m, 1h 30m or 5400",
                complain=_complaint,
                clock=self._shell.clock,
            ),
            lambda text: None if text is None else feed.seek(parse_time(text)),
        )

    def _playback(self) -> Playback | None:
        feed = self._shell.feed
        if is_playback(feed):
            return feed
        self._shell.notice(_LIVE_ONLY, is_problem=True)
        return None


def _complaint(text: str) -> str:
    try:
        parse_time(text)
    except BadTimeError as error:
        return str(error)
    return ""
