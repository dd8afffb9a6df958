"""The status document as the record tree keeps it: rounded, and cut into nodes.

What it is: pure functions. A document becomes one tree for the run, one for each host
and one for each rank; `joined` puts them together again. Ages and countdowns keep a
tenth of a second, other numbers six digits, because a record is for reading.
What it is not: a file, or a difference; the recorder and the replay have those.
Who drives it: the recorder cuts, the replay joins, tests compare.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from flodl_core.telemetry.merge_patch import Tree
from flodl_core.telemetry.run_directory import safe_name
from flodl_core.telemetry.state import RankState, Section, StateDocument

ROOT: Final = "root"
SPLICED: Final = frozenset({"epochs", "alerts", "waits", "recent_refusals"})
"""Lists of the document that lose rows in front and gain them at the end."""

FLOWING: Final = frozenset(
    {
        "heartbeat_age_s",
        "progress_age_s",
        "age_s",
        "pending_s",
        "window_remaining_s",
        "cap_remaining_s",
        "eta_s",
    }
)
"""Fields that change because time passes; they are kept to a tenth of a second."""

_MEMBERS: Final = "members"
_RANKS: Final = "ranks"
_NODES: Final = "nodes"
_OWN: Final = frozenset({_MEMBERS, _RANKS})
_DIGITS: Final = 6
_NAME_CHARS: Final = 70


@dataclass(frozen=True, slots=True)
class DocumentParts:
    """A document in pieces, each without a None.

    Attributes:
        root: what is of the run; under `members`, `ranks` and `nodes` it says which
            other pieces belong to it, in which order and where they lie.
        nodes: the pieces of hosts and ranks by their path in the tree.
    """

    root: Tree
    nodes: dict[str, Tree]


class NodeNames:
    """Gives each host a path of its own in the tree, whatever it calls itself."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}

    def host(self, name: str) -> str:
        """Return the path of a host, the same each time."""
        known = self._of.get(name)
        if known is None:
            stem = f"{ROOT}/{safe_name(safe_name(name)[:_NAME_CHARS])}"
            known, taken, number = stem, set(self._of.values()), 1
            while known in taken:
                number += 1
                known = f"{stem}-{number}"
            self._of[name] = known
        return known


def rank_node(host_node: str, rank: int) -> str:
    """Return the path of a rank."""
    return f"{host_node}/rank{rank}"


def cut(document: StateDocument, names: NodeNames) -> DocumentParts:
    """Return the pieces of a document, rounded."""
    root = tidied(document, leave_out=_OWN)
    nodes: dict[str, Tree] = {}
    places: dict[str, object] = {}
    for member in document.members:
        places[member.host] = names.host(member.host)
        nodes[names.host(member.host)] = tidied(member)
    runs: list[object] = []
    for host, ranks in _runs(document.ranks):
        places[host] = node = names.host(host)
        runs.append([host, [rank.rank for rank in ranks]])
        nodes.update((rank_node(node, rank.rank), tidied(rank)) for rank in ranks)
    root[_MEMBERS] = [member.host for member in document.members]
    root[_RANKS] = runs
    root[_NODES] = places
    return DocumentParts(root, nodes)


def joined(
    root: Mapping[str, object], node_of: Callable[[str], Mapping[str, object] | None]
) -> StateDocument:
    """Return the document that was cut; a piece that is not there is left out.

    Args:
        root: the piece of the run.
        node_of: returns the piece at a path, None if it is not there.

    Raises:
        ValueError: the pieces make no document.
    """
    places = root.get(_NODES)
    if not isinstance(places, Mapping):
        raise ValueError("a record of a run without its nodes")
    body = {key: value for key, value in root.items() if key not in (*_OWN, _NODES)}
    members = [node_of(str(places[host])) for host in _list(root, _MEMBERS)]
    ranks = []
    for host, numbers in _seats(root):
        ranks += [node_of(rank_node(str(places[host]), number)) for number in numbers]
    body[_MEMBERS] = [one for one in members if one is not None]
    body[_RANKS] = [one for one in ranks if one is not None]
    return StateDocument.model_validate(body)


def rounded_document(document: StateDocument) -> StateDocument:
    """Return the document as a record gives it back."""
    parts = cut(document, NodeNames())
    return joined(parts.root, parts.nodes.get)


def tidied(section: Section, *, leave_out: frozenset[str] = frozenset()) -> Tree:
    """Return a section as JSON values: rounded, and without what is absent."""
    dumped = section.model_dump(mode="json", exclude_none=True, exclude=set(leave_out))
    return _tidy_tree(dumped)


def _tidy_tree(tree: Mapping[str, object]) -> Tree:
    tidy = {key: _tidy(key, value) for key, value in tree.items()}
    return {key: value for key, value in tidy.items() if value is not None}


def _tidy(key: str, value: object) -> object:
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if key in FLOWING:
            return round(value, 1)
        return round(value, 3) if key == "uptime_s" else float(f"{value:.{_DIGITS}g}")
    if isinstance(value, Mapping):
        return _tidy_tree(value)
    if isinstance(value, list):
        return [_tidy(key, one) for one in value]
    return value


def _runs(ranks: Iterable[RankState]) -> list[tuple[str, list[RankState]]]:
    """Group ranks that follow one another and are of one host."""
    runs: list[tuple[str, list[RankState]]] = []
    for rank in ranks:
        if not runs or runs[-1][0] != rank.host:
            runs.append((rank.host, []))
        runs[-1][1].append(rank)
    return runs


def _seats(root: Mapping[str, object]) -> list[tuple[str, list[int]]]:
    """Return which ranks of which hosts a document has, in its order."""
    seats: list[tuple[str, list[int]]] = []
    for run in _list(root, _RANKS):
        if not (isinstance(run, list) and len(run) == 2 and isinstance(run[1], list)):
            raise ValueError("a record of a run with seats that are none")
        seats.append((str(run[0]), run[1]))
    return seats


def _list(root: Mapping[str, object], key: str) -> list[object]:
    value = root.get(key)
    if not isinstance(value, list):
        raise ValueError(f"a record of a run without its {key}")
    return value
