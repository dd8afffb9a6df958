"""HTTP on the run's port: the status document for readers, a few actions for its operator.

Routes are data; what an action does is an async function passed in. Every
request is bounded in time and size and every answer closes its connection. No
answer carries a CORS header, so no web page can read one. Bytes are h11's and
`http_exchange`'s; who is trusted is `http_trust`'s. The port drives `serve`.
"""

import json
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import anyio.to_thread

from flodl_core.ids import StartMode
from flodl_core.net import http_exchange
from flodl_core.net.http_exchange import Request, Response
from flodl_core.net.http_trust import (
    Credentials,
    TrustPolicy,
    distrust_of_acting,
    distrust_of_reading,
    peer_is_same_user,
    trick_of_a_page,
)
from flodl_core.net.port import PortConnection
from flodl_core.units import Seconds

Answer: TypeAlias = tuple[int, Mapping[str, object]]
"""Status and JSON body of an action."""

JSON: Final = "application/json; charset=utf-8"
TEXT: Final = "text/plain; charset=utf-8"

_FIRST_REFUSAL: Final = 400
_READING: Final = ("GET", "HEAD")
_HOW_TO_PROVE: Final = (
    "send `Authorization: Bearer TOKEN` with the operator token; "
    "`flodl` reads it from the run directory."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody who is trusted asks a run to do."""

    parameters: Mapping[str, str]
    """Of the query."""
    address: str
    """Where the request comes from, without its port."""


Action: TypeAlias = Callable[[Asked], Awaitable[Answer]]
"""What a POST does."""


class Publisher:
    """The newest status document, put in and read from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._document: bytes | None = None

    def publish(self, document: bytes) -> None:
        """Replace the document."""
        with self._lock:
            self._document = document

    def latest(self) -> bytes | None:
        """Return the newest document, None before the first."""
        with self._lock:
            return self._document


@dataclass(frozen=True, slots=True, kw_only=True)
class GetRoute:
    """Something to read."""

    path: str
    content_type: str
    produce: Callable[[Mapping[str, str]], bytes | Answer | None]
    """Gets the parameters of the query. Bytes are the body; an Answer says what is wrong with
    the parameters; None is answered with 503."""
    is_slow: bool = False
    """Whether it takes more than a moment, so that it is made in a worker thread."""
    tells_nothing: bool = False
    """Whether it holds nothing of the run, so that nobody needs to be trusted with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostRoute:
    """Something to do. Checks run in the order of these fields, trust after the first."""

    path: str
    refuse_first: Callable[[], Answer | None] = lambda: None
    """An answer that needs no trust, such as that the run has no such switch."""
    needs_document: bool = True
    """Whether it is 503 before anything was published."""
    action: Action


def start_route(start_mode: StartMode | None, arm: Action) -> PostRoute:
    """Return `POST /start`: 409 no switch, 409 auto, 403, 503, then what `arm` answers.

    Args:
        start_mode: who closes the join window; None where there is no window.
        arm: answers 409 where the window is not open or quorum is not met, else
            200 with armed, joined_ranks and min_rank_start.
    """

    def refuse_first() -> Answer | None:
        if start_mode is None:
            return 409, {"error": "this run has no start switch"}
        if start_mode is StartMode.AUTO:
            return 409, {
                "error": "start mode is auto: the window closes by itself",
                "fix": "start the run with --start manual or --start hybrid.",
            }
        return None

    return PostRoute(path="/start", refuse_first=refuse_first, action=arm)


class HttpApp:
    """The routes of one run.

    Args:
        publisher: holds the status document of `/` and `/state.json`.
        trust: whose requests are answered.
        gets: further things to read.
        posts: what an operator may do.
        request_s: ceiling of reading one request.
    """

    def __init__(
        self,
        publisher: Publisher,
        *,
        trust: TrustPolicy,
        gets: Sequence[GetRoute] = (),
        posts: Sequence[PostRoute] = (),
        request_s: Seconds = http_exchange.REQUEST_S,
    ) -> None:
        self._request_s = request_s
        self._refused: Counter[int] = Counter()
        self._publisher = publisher
        self._trust = trust
        documents = [
            GetRoute(path=path, content_type=JSON, produce=lambda _: publisher.latest())
            for path in ("/", "/state.json")
        ]
        health = GetRoute(
            path="/healthz", content_type=TEXT, produce=lambda _: b"ok\n", tells_nothing=True
        )
        self._gets = {route.path: route for route in (*documents, health, *gets)}
        self._posts = {route.path: route for route in posts}

    async def serve(self, connection: PortConnection) -> None:
        """Answer the one request of a connection; the port's `on_http`."""
        status = await http_exchange.serve_one(connection, self._answer, request_s=self._request_s)
        if status is not None and status >= _FIRST_REFUSAL:
            self._refused[status] += 1

    def refusals(self) -> dict[str, int]:
        """Return how many requests were refused, by the statuses that occurred."""
        return {str(status): count for status, count in sorted(self._refused.items())}

    async def _answer(self, connection: PortConnection, request: Request) -> Response:
        if request.path not in self._gets and request.path not in self._posts:
            return self._not_found()
        if request.method in _READING and request.path in self._gets:
            return await self._read(self._gets[request.path], request)
        if request.method == "POST" and request.path in self._posts:
            return await self._act(self._posts[request.path], connection, request)
        return self._not_allowed(request.path)

    async def _read(self, route: GetRoute, request: Request) -> Response:
        refusal = None if route.tells_nothing else self._refuse_reader(request.credentials)
        if refusal is not None:
            return refusal
        if route.is_slow:
            body = await anyio.to_thread.run_sync(route.produce, request.parameters)
        else:
            body = route.produce(request.parameters)
        if body is None:
            return _json(503, {"error": "nothing was published yet", "fix": "ask again shortly."})
        if isinstance(body, tuple):
            return _json(*body)
        return Response(status=200, content_type=route.content_type, body=body)

    def _refuse_reader(self, credentials: Credentials) -> Response | None:
        trick = trick_of_a_page(credentials, self._trust)
        if trick is not None:
            return _json(403, {"error": trick, "fix": _HOW_TO_PROVE})
        distrust = distrust_of_reading(credentials, self._trust)
        if distrust is not None:
            return _json(401, {"error": distrust, "fix": _HOW_TO_PROVE}, ask_for_token=True)
        return None

    async def _act(
        self, route: PostRoute, connection: PortConnection, request: Request
    ) -> Response:
        refusal = route.refuse_first()
        if refusal is not None:
            return _json(*refusal)
        sock = connection.stream.sock
        distrust = await anyio.to_thread.run_sync(
            lambda: distrust_of_acting(
                request.credentials, self._trust, is_same_user=lambda: peer_is_same_user(sock)
            ),
            abandon_on_cancel=True,
        )
        if distrust is not None:
            return _json(403, {"error": distrust, "fix": _HOW_TO_PROVE})
        if route.needs_document and self._publisher.latest() is None:
            return _json(503, {"error": "nothing was published yet", "fix": "ask again shortly."})
        asked = Asked(parameters=request.parameters, address=connection.peer.address)
        return _json(*await route.action(asked))

    def _not_found(self) -> Response:
        endpoints = [f"GET {path}" for path in self._gets] + [
            f"POST {path}" for path in self._posts
        ]
        return _json(404, {"error": "no such endpoint", "endpoints": endpoints})

    def _not_allowed(self, path: str) -> Response:
        allowed = [*_READING] if path in self._gets else []
        allowed += ["POST"] if path in self._posts else []
        names = ", ".join(allowed)
        body = json.dumps({"error": f"{path} takes {names} only"}).encode()
        return Response(status=405, content_type=JSON, body=body, headers=(("Allow", names),))


def _json(status: int, body: Mapping[str, object], *, ask_for_token: bool = False) -> Response:
    headers = (("WWW-Authenticate", "Bearer"),) if ask_for_token else ()
    return Response(
        status=status, content_type=JSON, body=json.dumps(body).encode(), headers=headers
    )
