"""What an operator may ask of a run over HTTP: start, stop, checkpoint, drain.

Trust is checked before any of these is called. Each answers at once: the
machines act on the request, the status document shows what came of it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from flodl_core.coordinator.events import StopKind
from flodl_core.ids import StartMode
from flodl_core.membership.snapshot import MembershipSnapshot, review_start
from flodl_core.net.http import Answer, PostRoute, start_route


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


def operator_routes(start_mode: StartMode | None, actions: OperatorActions) -> list[PostRoute]:
    """Return the routes; `start_mode` is None where there is no window to start."""

    async def arm(_: Mapping[str, str]) -> Answer:
        answer = review_start(start_mode or StartMode.AUTO, actions.snapshot(), trusted=True)
        if answer.armed:
            actions.start("operator (POST /start)")
        return answer.status, answer.body()

    async def stop(parameters: Mapping[str, str]) -> Answer:
        asked = parameters.get("kind", StopKind.SAVE.value)
        if asked not in {kind.value for kind in StopKind}:
            return 400, {"error": f"kind is {asked!r}, expected save or now"}
        words = actions.stop(StopKind(asked), "operator (POST /stop)")
        return 200, {"stopping": True, "kind": asked, "what_follows": words}

    async def checkpoint(_: Mapping[str, str]) -> Answer:
        refusal = actions.checkpoint("operator (POST /checkpoint)")
        if refusal is not None:
            return 409, {"error": refusal}
        return 200, {"requested": True, "what_follows": "saved at the next commit"}

    async def drain(parameters: Mapping[str, str]) -> Answer:
        host = parameters.get("host", "")
        if not host:
            return 400, {"error": "no host is named", "fix": "ask POST /drain?host=NAME"}
        refusal = actions.drain(host, "operator (POST /drain)")
        if refusal is not None:
            return 409, {"error": refusal}
        follows = "its ranks bring what they have done, hand back the rest and leave"
        return 200, {"draining": True, "host": host, "what_follows": follows}

    return [
        start_route(start_mode, arm),
        PostRoute(path="/stop", action=stop),
        PostRoute(path="/checkpoint", action=checkpoint),
        PostRoute(path="/drain", action=drain),
    ]
