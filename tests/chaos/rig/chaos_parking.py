"""Stopping places: a process waits at one until the test lets it go, or for ever.

`CHAOS_PARK` names them, as `who:place:nth` with commas between several; `who` is rank3,
relay or launcher, `nth` counts from 1 how often the place is come to. A process that
waits leaves the file `who.place` in `CHAOS_DIR`; the file `go` there lets all go on.
"""

import os
import threading
from collections import Counter
from pathlib import Path

DIRECTORY = Path(os.environ["CHAOS_DIR"])
LOOK_EVERY_S = 0.01


def who_am_i() -> str:
    """Return the role of this process by its command line."""
    words = Path("/proc/self/cmdline").read_bytes().decode().split("\0")
    if "flodl_core.roles.rank" in words:
        return words[words.index("flodl_core.roles.rank") + 1]
    for word, name in (("flodl_core.roles.relay", "relay"), ("headless", "launcher")):
        if word in words:
            return name
    return "agent" if "join" in words else "other"


ME = who_am_i()
_seen: Counter[str] = Counter()


def _wanted() -> dict[str, int]:
    places = [one.split(":") for one in os.environ.get("CHAOS_PARK", "").split(",") if one]
    return {place: int(nth) for who, place, nth in places if who == ME}


WANTED = _wanted()


def park(place: str, *, always: bool = False) -> None:
    """Wait here if this is where and when the test wants it; or from then on, always."""
    if place not in WANTED:
        return
    _seen[place] += 1
    if _seen[place] == WANTED[place]:
        (DIRECTORY / f"{ME}.{place}").touch()
    if _seen[place] == WANTED[place] or (always and _seen[place] > WANTED[place]):
        pause = threading.Event()
        while not (DIRECTORY / "go").exists():
            pause.wait(LOOK_EVERY_S)
