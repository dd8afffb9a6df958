"""What an operator may do now, why not, and what follows.

What it is: the same rules as the run's own, so that a key is enabled only where the run
would accept it; and what a confirm box says.
What it is not: the run's answer; the run decides.
Who drives it: the app's action registry, the confirm box.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from flodl_console.view.confirm import (
    drain_lines,
    evict_lines,
    start_lines,
    stop_now_lines,
    stop_save_lines,
    typed_name_of,
)
from flodl_console.view.facts import OPEN_PHASES, alive_ranks, is_over, place_of
from flodl_console.view.model import ConsoleView
from flodl_console.view.records import LinkState, SourceKind
from flodl_console.view.texts import fit, says
from flodl_core.ids import ClusterPhase, RankPhase, StartMode
from flodl_core.telemetry.state import StateDocument

REASON_CELLS = 76


class ActionId(StrEnum):
    """What can be asked of a run."""

    START = "start"
    STOP_SAVE = "stop_save"
    STOP_NOW = "stop_now"
    CHECKPOINT = "checkpoint"
    DRAIN = "drain"
    EVICT = "evict"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmBasis:
    """What a confirm box was opened upon; it closes itself when this changes."""

    run_id: str
    phase: str
    members: tuple[tuple[str, tuple[int, ...]], ...]
    """Hosts with their ranks."""
    alive_ranks: tuple[int, ...]
    is_current: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmText:
    """What a confirm box says."""

    title: str
    """A question, at most 60 cells."""
    lines: tuple[str, ...]
    """Consequences in numbers, each at most 66 cells, at most 5."""
    yes: str
    """What the button that does it says, at most 24 cells."""
    no: str
    typed_name: str
    """What must be typed before it is done; empty where a key suffices."""
    basis: ConfirmBasis


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOffer:
    """One action as it stands now."""

    action: ActionId
    is_enabled: bool
    reason: str
    """Why not, at most 76 cells; empty if it is enabled."""
    what_follows: str
    """What it does, at most 76 cells."""
    confirm: ConfirmText | None
    """None where it is not enabled, or needs no confirmation."""
    request: str
    """The word for `Feed.ask`."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """The named parameters for `Feed.ask`."""


def offers(
    view: ConsoleView, *, rank: int | None = None, host: str | None = None
) -> Mapping[ActionId, ActionOffer]:
    """Return every action as it stands now; `rank` and `host` are those under the cursor."""
    return {action: offer(view, action, rank=rank, host=host) for action in ActionId}


def offer(
    view: ConsoleView, action: ActionId, *, rank: int | None = None, host: str | None = None
) -> ActionOffer:
    """Return one action as it stands now.

    Args:
        view: of this moment.
        action: which one.
        rank: that would be evicted.
        host: that would be drained.
    """
    reason = refusal(view, action, rank=rank, host=host)
    return ActionOffer(
        action=action,
        is_enabled=not reason,
        reason=fit(reason, REASON_CELLS),
        what_follows=_FOLLOWS[action],
        confirm=None if reason else _confirm(view, action, rank=rank, host=host),
        request=_REQUESTS[action],
        parameters=_parameters(action, rank=rank, host=host),
    )


def refusal(
    view: ConsoleView, action: ActionId, *, rank: int | None = None, host: str | None = None
) -> str:
    """Return why an action would not be accepted now, not cut; empty if it would."""
    document = view.document
    if view.source is SourceKind.REPLAY:
        return "this is a record: there is no run to ask"
    if view.is_read_only:
        return "this console was opened read-only"
    if document is None:
        return "nothing is known of the run yet"
    if is_over(document) or view.link is LinkState.ENDED:
        return "the run is over"
    if not view.is_current:
        return "the run does not answer: what is shown is old"
    if action is ActionId.START:
        return _start_refusal(document)
    untrained = _untrained(document)
    if action in _STOPS or untrained or action is ActionId.CHECKPOINT:
        return "" if action in _STOPS else untrained
    if action is ActionId.DRAIN:
        return _drain_refusal(document, host)
    return _evict_refusal(document, rank)


_STOPS = (ActionId.STOP_SAVE, ActionId.STOP_NOW)


def basis_of(view: ConsoleView) -> ConfirmBasis:
    """Return what a confirm box that opens now stands upon."""
    document = view.document
    if document is None:
        return ConfirmBasis(run_id="", phase="", members=(), alive_ranks=(), is_current=False)
    return ConfirmBasis(
        run_id=document.run.id,
        phase=document.phase.value,
        members=tuple((member.host, member.ranks) for member in document.members),
        alive_ranks=tuple(rank.rank for rank in alive_ranks(document)),
        is_current=view.is_current,
    )


def voided(confirm: ConfirmText, view: ConsoleView) -> str:
    """Return why a confirm box must close; empty while what it says still holds."""
    was, now = confirm.basis, basis_of(view)
    if now == was:
        return ""
    if now.run_id != was.run_id:
        return "closed: this is another run now"
    if not now.is_current:
        return "closed: the run does not answer"
    if now.phase != was.phase:
        return f"closed: the run is {now.phase} now"
    if now.alive_ranks != was.alive_ranks:
        return f"closed: {len(now.alive_ranks)} ranks are alive now, not {len(was.alive_ranks)}"
    return f"closed: the roster changed, {len(now.members)} hosts are in"


_FOLLOWS: Mapping[ActionId, str] = {
    ActionId.START: "Closes the window: the run begins with the ranks that are in.",
    ActionId.STOP_SAVE: "Ends the window, averages, saves, and ends the run.",
    ActionId.STOP_NOW: "Ends the run at once; nothing more is saved.",
    ActionId.CHECKPOINT: "Saves at the next commit; training goes on.",
    ActionId.DRAIN: "The host's ranks bring what they have done and leave.",
    ActionId.EVICT: "Kills the rank; the others take over its samples.",
}


_REQUESTS: Mapping[ActionId, str] = {
    ActionId.START: "start",
    ActionId.STOP_SAVE: "stop",
    ActionId.STOP_NOW: "stop",
    ActionId.CHECKPOINT: "checkpoint",
    ActionId.DRAIN: "drain",
    ActionId.EVICT: "evict",
}


def _parameters(action: ActionId, *, rank: int | None, host: str | None) -> Mapping[str, str]:
    if action in _STOPS:
        return {"kind": "save" if action is ActionId.STOP_SAVE else "now"}
    if action is ActionId.DRAIN and host:
        return {"host": host}
    return {"rank": str(rank)} if action is ActionId.EVICT and rank is not None else {}


def _start_refusal(document: StateDocument) -> str:
    if document.phase not in OPEN_PHASES:
        return f"the window is closed: the run is {document.phase.value}"
    if document.start_mode == StartMode.AUTO:
        return "start mode is auto: the window closes by itself"
    missing = document.min_rank_start - document.joined_ranks
    if missing > 0:
        return (
            f"quorum not met: {document.joined_ranks}/{document.min_rank_start}, "
            f"{missing} more must join"
        )
    return "the start was asked for already" if document.start_armed else ""


def _untrained(document: StateDocument) -> str:
    if document.phase is ClusterPhase.TRAINING:
        return ""
    return f"the run is not training yet: it is {document.phase.value}"


def _drain_refusal(document: StateDocument, host: str | None) -> str:
    if not host:
        return "no host is chosen"
    if host not in {rank.host for rank in document.ranks}:
        return f"the run has no host {says(host, 32)}"
    alive = {rank.host for rank in alive_ranks(document)}
    if host not in alive:
        return f"host {says(host, 32)} has no rank left"
    return f"host {says(host, 24)} is the last one with a rank" if alive == {host} else ""


def _evict_refusal(document: StateDocument, rank: int | None) -> str:
    if rank is None:
        return "no rank is chosen"
    found = next((one for one in document.ranks if one.rank == rank), None)
    if found is None:
        return f"the run has no rank {rank}"
    alive = {one.rank for one in alive_ranks(document)}
    if rank not in alive:
        gone = "lost" if found.state is RankPhase.LOST else "gone"
        return f"{place_of(rank, found.host)} is {gone} already"
    return f"rank {rank} is the last one alive" if alive == {rank} else ""


_TITLES: Mapping[ActionId, tuple[str, str]] = {
    ActionId.START: ("Start the run?", "start"),
    ActionId.STOP_SAVE: ("Stop the run and save it?", "stop and save"),
    ActionId.STOP_NOW: ("Stop the run at once, without saving?", "stop now"),
    ActionId.DRAIN: ("Drain {place}?", "drain"),
    ActionId.EVICT: ("Evict {place}?", "evict"),
}


def _confirm(
    view: ConsoleView, action: ActionId, *, rank: int | None, host: str | None
) -> ConfirmText | None:
    document = view.document
    if document is None or action is ActionId.CHECKPOINT:
        return None
    hosts = {one.rank: one.host for one in document.ranks}
    is_of_rank = action is ActionId.EVICT and rank is not None
    place = place_of(rank, hosts.get(rank or 0)) if is_of_rank else place_of(None, host)
    title, yes = _TITLES[action]
    lines: Mapping[ActionId, tuple[str, ...]] = {
        ActionId.START: start_lines(document),
        ActionId.STOP_SAVE: stop_save_lines(document),
        ActionId.STOP_NOW: stop_now_lines(document),
        ActionId.DRAIN: drain_lines(document, host or ""),
        ActionId.EVICT: evict_lines(document, rank or 0),
    }
    typed_name = typed_name_of(document) if action in _STOPS else ""
    return ConfirmText(
        title=fit(title.replace("{place}", place), 60),
        lines=tuple(fit(line, 66) for line in lines[action]),
        yes=yes,
        no="no",
        typed_name=f"rank {rank}" if is_of_rank else typed_name,
        basis=basis_of(view),
    )
