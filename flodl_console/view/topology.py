"""The topology: launcher, hosts, relays and ranks as a tree with their states.

What it is: lines with tree guides, top down.
What it is not: a picture of the network; it shows who talks through whom.
Who drives it: the Topology screen.
"""

from dataclasses import dataclass
from enum import StrEnum

from flodl_console.view.tones import Glyph, Tone


class NodeKind(StrEnum):
    """What a line of the tree stands for."""

    LAUNCHER = "launcher"
    HOST = "host"
    RELAY = "relay"
    RANK = "rank"
    EXPECTED = "expected"
    """A configured host that has not been heard from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeLine:
    """One line of the tree."""

    key: str
    """The same for the same thing in each view: `root`, `host/blue`, `rank/3`."""
    kind: NodeKind
    guides: str
    """Tree guides before the text, `│  ├─ `."""
    text: str
    """What it is and what it does, at most 120 cells."""
    glyph: Glyph
    tone: Tone
    host: str | None
    """As the run names it; None for the launcher."""
    rank: int | None
    """The rank to jump to; None if it is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyPanel:
    """The tree, top down."""

    lines: tuple[TreeLine, ...]
    summary: str
    """`2 hosts · 4 ranks · 1 lost`, at most 78 cells."""
    empty_text: str
    """What stands in the place of the tree where there is none; empty otherwise."""
