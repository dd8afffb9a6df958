"""The topology: launcher, hosts, relays and ranks as a tree with their states.

What it is: lines with tree guides, top down.
What it is not: a picture of the network; it shows who talks through whom.
Who drives it: the Topology screen.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from flodl_console.view.facts import GONE, MAX_HOST_CELLS, host_names, lost_ranks, phase_look
from flodl_console.view.formats import age_of, number_ranges, plural
from flodl_console.view.marks import UNMARKED, Marked, mark_ranks
from flodl_console.view.model import ConsoleView
from flodl_console.view.rank_cells import batches_of, look_of
from flodl_console.view.texts import clean, fit, says
from flodl_console.view.tones import Glyph, Tone
from flodl_core.config.addresses import is_loopback_address
from flodl_core.ids import RankPhase
from flodl_core.telemetry.state import MemberState, RankState, StateDocument

TEXT_CELLS: Final = 120


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


@dataclass(frozen=True, slots=True)
class _Node:
    """A line before its guides are known."""

    line: TreeLine
    children: "tuple[_Node, ...]" = ()


def topology_panel(view: ConsoleView) -> TopologyPanel:
    """Return the tree: the launcher, its hosts, their relays and ranks, then the missing hosts."""
    document = view.document
    if document is None:
        return TopologyPanel(lines=(), summary="", empty_text="no document has come yet")
    marks = mark_ranks(view)
    members = {member.host: member for member in document.members}
    first = document.members[0].host if document.members else None
    hosts = [
        _host(
            host,
            members.get(host),
            ranks=[rank for rank in document.ranks if rank.host == host],
            marks=marks,
            is_local=host == first and _is_local(members[host]),
        )
        for host in dict.fromkeys((*members, *host_names(document)))
    ]
    expected = [_expected(host) for host in document.expected_hosts]
    root = _Node(_launcher(view, document), (*hosts, *expected))
    return TopologyPanel(
        lines=tuple(_lines(root, guides="", is_last=True, is_root=True)),
        summary=_summary(document),
        empty_text="",
    )


def _lines(node: _Node, *, guides: str, is_last: bool, is_root: bool = False) -> list[TreeLine]:
    own = "" if is_root else guides + ("└─ " if is_last else "├─ ")
    below = "" if is_root else guides + ("   " if is_last else "│  ")
    line = node.line
    found = [_line(line, own)]
    for place, child in enumerate(node.children):
        last = place == len(node.children) - 1
        found += _lines(child, guides=below, is_last=last)
    return found


def _line(line: TreeLine, guides: str) -> TreeLine:
    return TreeLine(
        key=line.key,
        kind=line.kind,
        guides=guides,
        text=fit(line.text, TEXT_CELLS),
        glyph=line.glyph,
        tone=line.tone,
        host=line.host,
        rank=line.rank,
    )


def _launcher(view: ConsoleView, document: StateDocument) -> TreeLine:
    look = phase_look(view, document)
    port = f", port {document.run.port}" if document.run.port is not None else ""
    pid = f", pid {document.run.pid}" if document.run.pid is not None else ""
    return TreeLine(
        key="root",
        kind=NodeKind.LAUNCHER,
        guides="",
        text=f"launcher  {look.word}{port}{pid}",
        glyph=look.glyph,
        tone=look.tone,
        host=None,
        rank=None,
    )


def _is_local(member: MemberState) -> bool:
    """Whether a member's ranks are children of the launcher: its own host joins first."""
    address = member.address
    if address.count(":") == 1:
        address = address.split(":")[0]
    elif address.startswith("["):
        address = address[1:].split("]")[0]
    return is_loopback_address(address)


def _host(
    host: str,
    member: MemberState | None,
    *,
    ranks: Sequence[RankState],
    marks: Mapping[int, Marked],
    is_local: bool,
) -> _Node:
    children = tuple(_rank(rank, marks.get(rank.rank, UNMARKED)) for rank in ranks)
    gone = sum(rank.state in GONE for rank in ranks)
    glyph, tone = _host_look(ranks)
    if ranks and not is_local:
        relay = TreeLine(
            key=f"relay/{host}",
            kind=NodeKind.RELAY,
            guides="",
            text=f"relay  {'gone' if gone == len(ranks) else 'folds what its ranks average'}",
            glyph=glyph,
            tone=tone,
            host=host,
            rank=None,
        )
        children = (_Node(relay, children),)
    line = TreeLine(
        key=f"host/{host}",
        kind=NodeKind.HOST,
        guides="",
        text=_host_text(host, member, ranks=ranks, gone=gone),
        glyph=glyph,
        tone=tone,
        host=host,
        rank=None,
    )
    return _Node(line, children)


def _host_look(ranks: Sequence[RankState]) -> tuple[Glyph, Tone]:
    lost = sum(rank.state is RankPhase.LOST for rank in ranks)
    if lost and lost == len(ranks):
        return Glyph.BAD, Tone.BAD
    return (Glyph.WARN, Tone.WARN) if lost else (Glyph.OK, Tone.OK)


def _host_text(
    host: str, member: MemberState | None, *, ranks: Sequence[RankState], gone: int
) -> str:
    parts = [f"host {says(host, MAX_HOST_CELLS)}"]
    if member is not None:
        parts.append(says(member.address, 45))
    if ranks:
        alive = f"{len(ranks) - gone} of " if gone else ""
        parts.append(f"{alive}{plural(len(ranks), 'rank')}")
    else:
        parts.append(f"ranks {number_ranges(member.ranks if member else ())}")
    if member is not None and member.gpus:
        parts.append(f"{len(member.gpus)} × {says(member.gpus[0], 32)}")
    return "  ".join(parts)


def _rank(rank: RankState, marked: Marked) -> _Node:
    glyph, tone = look_of(rank, marked.mark)
    heard = age_of(rank.heartbeat_age_s, rank.heartbeat_ceiling_s)
    note = clean(marked.note).removeprefix(f"{rank.state.value}: ")
    told = note or f"{batches_of(rank)} batches, heard {heard}"
    text = f"rank {rank.rank}  {says(rank.device, 12)}  {rank.state.value}  {told}"
    return _Node(
        TreeLine(
            key=f"rank/{rank.rank}",
            kind=NodeKind.RANK,
            guides="",
            text=text,
            glyph=glyph,
            tone=tone,
            host=rank.host,
            rank=rank.rank,
        )
    )


def _expected(host: str) -> _Node:
    return _Node(
        TreeLine(
            key=f"expected/{host}",
            kind=NodeKind.EXPECTED,
            guides="",
            text=f"host {says(host, MAX_HOST_CELLS)}  not heard from",
            glyph=Glyph.WAITING,
            tone=Tone.WARN,
            host=host,
            rank=None,
        )
    )


def _summary(document: StateDocument) -> str:
    ranks = len(document.ranks) or document.joined_ranks
    lost = len(lost_ranks(document))
    parts = [plural(len(host_names(document)), "host"), plural(ranks, "rank")]
    parts += [f"{lost} lost"] if lost else []
    missing = len(document.expected_hosts)
    parts += [f"{plural(missing, 'host')} not heard from"] if missing else []
    return " · ".join(parts)
