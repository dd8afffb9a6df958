"""What the launcher and the process of a user's guard say to each other, a line of JSON each.

What it is: the lines, and the buffer from which whole ones are taken.
What it is not: a socket, and not an opinion.
Who drives it: `asked_guard` in the launcher, `guard_process` at the other end.

    launcher ─ Restore, Review ─▶ guard
    launcher ◀─ GuardReady or GuardRefused, then an Opinion each ─ guard
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

from flodl_core.elche.guards import DivergenceReport, Verdict
from flodl_core.errors import BadFrameError

PIECE_BYTES: Final = 1 << 16
"""Received at once, at most."""
MAX_LINE_BYTES: Final = 4 << 20
"""Of one line; 1024 ranks take 60 KiB, the rest is for what a guard wants kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restore:
    """Take up what a checkpoint kept."""

    history: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """Judge a finished cycle; answered with one Opinion."""

    report: DivergenceReport


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReady:
    """The guard is there.

    Attributes:
        name: one word for it.
        history: what a checkpoint keeps of it.
    """

    name: str
    history: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRefused:
    """The guard cannot be had, and the process ends.

    Attributes:
        reason: one clause.
        fix: what to do.
    """

    reason: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Opinion:
    """What the guard said of one cycle.

    Attributes:
        verdict: Stable where there is trouble.
        trouble: why its opinion is missing; empty if it is not.
        history: what a checkpoint keeps from now on.
    """

    verdict: Verdict
    trouble: str
    history: tuple[float, ...]


Asked: TypeAlias = Restore | Review
Told: TypeAlias = GuardReady | GuardRefused | Opinion

_KINDS: Final[dict[str, TypeAdapter[Asked | Told]]] = {
    kind.__name__: TypeAdapter(kind)
    for kind in (Restore, Review, GuardReady, GuardRefused, Opinion)
}


def line_of(word: Asked | Told) -> bytes:
    """Return a word as a line, its end included."""
    name = type(word).__name__
    return name.encode() + b" " + _KINDS[name].dump_json(word) + b"\n"


class Lines:
    """Bytes as they come, and the words in them."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, piece: bytes) -> None:
        """Take in what was received.

        Raises:
            BadFrameError: a line is longer than any of ours.
        """
        self._bytes += piece
        if len(self._bytes) > MAX_LINE_BYTES and b"\n" not in self._bytes:
            raise BadFrameError(
                f"a line of more than {MAX_LINE_BYTES} bytes between launcher and guard"
            )

    def next(self) -> Asked | Told | None:
        """Return the next whole word; None while there is none.

        Raises:
            BadFrameError: a line is no word.
        """
        line, end, rest = self._bytes.partition(b"\n")
        if not end:
            return None
        self._bytes = rest
        name, _, body = bytes(line).partition(b" ")
        kind = _KINDS.get(name.decode(errors="replace"))
        try:
            return kind.validate_json(body) if kind is not None else _no_word(name)
        except ValidationError as error:
            raise BadFrameError(f"a line between launcher and guard: {error}") from error


def _no_word(name: bytes) -> Asked | Told:
    raise BadFrameError(f"a line between launcher and guard begins with {name[:40]!r}")
