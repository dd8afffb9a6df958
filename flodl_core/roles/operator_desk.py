"""What an operator may read and ask of a run over HTTP.

What it is: the routes of `/history`, `/events` and `/metrics`, and of the actions start,
stop, checkpoint, drain and evict. Each answers at once: the machines act on a request,
the status document and the events show what came of it.
What it is not: trust, which is checked before any action is called.
Who drives it: the run's HTTP side.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from flodl_core.coordinator.events import StopKind
from flodl_core.ids import Rank, StartMode
from flodl_core.membership.snapshot import MembershipSnapshot, review_start
from flodl_core.net.http import JSON, Answer, Asked, GetRoute, PostRoute, start_route
from flodl_core.telemetry.metrics import CONTENT_TYPE, render_metrics
from flodl_core.telemetry.record_rings import MAX_PAGE, RecordRing
from flodl_core.telemetry.state import StateDocument

MAX_NUMBER: Final = 2**53
"""Of a record, rank or limit in a query; JSON readers count exactly up to here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorActions:
    """What the requests do; each takes who asked."""

    snapshot: Callable[[], MembershipSnapshot]
    start: Callable[[str], None]
    stop: Callable[[StopKind, str], str]
    """Returns what will happen, in words."""
    checkpoint: Callable[[str], str | None]
    """Returns why not, or None."""
    drain: Callable[[str, str], str | None]
    """Takes the host and who asked; returns why not, or None."""
    evict: Callable[[Rank, str], str | None]
    """Takes the rank and who asked; returns why not, or None."""


def operator_of(asked: Asked) -> str:
    """Return who asked, as events and logs name him."""
    return f"operator at {asked.address}"


def operator_routes(start_mode: StartMode | None, actions: OperatorActions) -> list[PostRoute]:
    """Return the actions; `start_mode` is None where there is no window to start."""

    async def arm(asked: Asked) -> Answer:
        answer = review_start(start_mode or StartMode.AUTO, actions.snapshot(), trusted=True)
        if answer.armed:
            actions.start(operator_of(asked))
        return answer.status, answer.body()

    async def stop(asked: Asked) -> Answer:
        kind = asked.parameters.get("kind", StopKind.SAVE.value)
        if kind not in {one.value for one in StopKind}:
            return 400, {"error": f"kind is {kind!r}, expected save or now"}
        words = actions.stop(StopKind(kind), operator_of(asked))
        return 200, {"stopping": True, "kind": kind, "what_follows": words}

    async def checkpoint(asked: Asked) -> Answer:
        refusal = actions.checkpoint(operator_of(asked))
        if refusal is not None:
            return 409, {"error": refusal}
        return 200, {"requested": True, "what_follows": "saved at the next commit"}

    return [
        start_route(start_mode, arm),
        PostRoute(path="/stop", action=stop),
        PostRoute(path="/checkpoint", action=checkpoint),
        *_leaving_routes(actions),
    ]


def _leaving_routes(actions: OperatorActions) -> list[PostRoute]:
    """Return what makes a host or a rank leave a run that goes on."""

    async def drain(asked: Asked) -> Answer:
        host = asked.parameters.get("host", "")
        if not host:
            return 400, {"error": "no host is named", "fix": "ask POST /drain?host=NAME"}
        refusal = actions.drain(host, operator_of(asked))
        if refusal is not None:
            return 409, {"error": refusal}
        follows = "its ranks bring what they have done, hand back the rest and leave"
        return 200, {"draining": True, "host": host, "what_follows": follows}

    async def evict(asked: Asked) -> Answer:
        rank = _number(asked.parameters, "rank", default=None, example="POST /evict?rank=3")
        if not isinstance(rank, int):
            return rank
        refusal = actions.evict(Rank(rank), operator_of(asked))
        if refusal is not None:
            return 409, {"error": refusal}
        follows = "its process is ended and the others train its samples"
        return 200, {"evicting": True, "rank": rank, "what_follows": follows}

    return [
        PostRoute(path="/drain", action=drain),
        PostRoute(path="/evict", action=evict),
    ]


def reading_routes(
    windows: RecordRing, events: RecordRing, latest: Callable[[], StateDocument | None]
) -> list[GetRoute]:
    """Return what is read beside the document.

    Args:
        windows: of the run.
        events: of the run.
        latest: returns the document last published; None before the first.
    """

    def page(ring: RecordRing, path: str) -> Callable[[Mapping[str, str]], bytes | Answer]:
        def produce(parameters: Mapping[str, str]) -> bytes | Answer:
            since = _number(parameters, "since", default=0, example=f"GET {path}?since=0")
            limit = _number(parameters, "limit", default=MAX_PAGE, example=f"GET {path}?limit=100")
            if not isinstance(since, int):
                return since
            if not isinstance(limit, int):
                return limit
            return ring.page(since, limit)

        return produce

    def metrics(_: Mapping[str, str]) -> bytes | None:
        document = latest()
        return None if document is None else render_metrics(document)

    return [
        GetRoute(path="/history", content_type=JSON, produce=page(windows, "/history")),
        GetRoute(path="/events", content_type=JSON, produce=page(events, "/events")),
        GetRoute(path="/metrics", content_type=CONTENT_TYPE, produce=metrics, is_slow=True),
    ]


def _number(
    parameters: Mapping[str, str], name: str, *, default: int | None, example: str
) -> int | Answer:
    """Return a whole number of the query, or the answer that there is none."""
    text = parameters.get(name)
    if text is None and default is not None:
        return default
    is_number = text is not None and text.isascii() and text.isdecimal() and len(text) <= 16
    if text is not None and is_number and int(text) <= MAX_NUMBER:
        return int(text)
    given = "is missing" if text is None else f"is {text[:40]!r}"
    error = f"{name} {given}, expected a whole number from 0 to {MAX_NUMBER}"
    return 400, {"error": error, "fix": f"ask {example}"}
