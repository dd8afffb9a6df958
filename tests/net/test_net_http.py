"""HTTP through a real port: routes, statuses in their order, budgets, and the small client."""

import json
import socket

import anyio
import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from net_pairs import ended, ignore, running_port, until

from flodl_core.errors import ConfigError
from flodl_core.ids import StartMode
from flodl_core.net import http_exchange
from flodl_core.net.http import GetRoute, HttpApp, PostRoute, Publisher, start_route
from flodl_core.net.http_client import (
    ControllerClient,
    ControllerUnreachableError,
    describe_owner,
)
from flodl_core.net.http_trust import TrustPolicy
from flodl_core.net.port import Port, PortConfig

pytestmark = pytest.mark.anyio

BEARER = {"Authorization": "Bearer sesame"}
STOP = b"POST /stop HTTP/1.1\r\nHost: localhost\r\n"
DOCUMENT = b'{"run": {"id": "0123456789abcdef"}, "phase": "staging"}'


class World:
    """A publisher, an app with every kind of route, and what was asked of it."""

    def __init__(self, *, start_mode=StartMode.MANUAL, require_token=False, published=True):
        self.publisher = Publisher()
        if published:
            self.publisher.publish(DOCUMENT)
        self.asked = []
        self.arm_answer = (200, {"armed": True, "joined_ranks": 4, "min_rank_start": 2})
        self.app = HttpApp(
            self.publisher,
            trust=TrustPolicy(operator_token="sesame", require_token=require_token),
            gets=[
                GetRoute(
                    path="/metrics", content_type="text/plain", produce=self.metrics, is_slow=True
                )
            ],
            posts=[
                start_route(start_mode, self.arm),
                PostRoute(path="/stop", action=self.stop, needs_document=False),
            ],
        )

    def metrics(self, parameters):
        since = parameters.get("since", "")
        if since == "soon":
            return 400, {"error": "since is 'soon', expected a number"}
        return f"since {since}".encode()

    async def arm(self, asked):
        self.asked.append("start")
        return self.arm_answer

    async def stop(self, asked):
        mode = asked.parameters.get("mode")
        self.asked.append(("stop", mode))
        return 200, {"stopping": mode, "by": asked.address}


async def ask(world, method, path, *, headers=None, bind="127.0.0.1"):
    async with (
        running_port(on_http=world.app.serve) as port,
        httpx.AsyncClient(trust_env=False, verify=False) as client,
    ):
        url = f"http://{bind}:{port.at[1]}{path}"
        return await client.request(method, url, headers=headers)


@pytest.mark.parametrize("path", ["/", "/state.json", "/state.json?x=1"])
async def test_the_document_is_served_as_it_was_published(path):
    answer = await ask(World(), "GET", path)
    assert (answer.status_code, answer.content) == (200, DOCUMENT)
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.headers["connection"] == "close"
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_a_newer_document_replaces_the_older():
    world = World()
    world.publisher.publish(b'{"phase": "training"}')
    assert (await ask(world, "GET", "/")).json() == {"phase": "training"}


async def test_before_anything_is_published_it_is_503_and_health_is_well():
    world = World(published=False)
    assert (await ask(world, "GET", "/state.json")).status_code == 503
    assert (await ask(world, "GET", "/healthz")).text == "ok\n"


async def test_another_path_is_404_and_lists_the_endpoints():
    answer = await ask(World(), "GET", "/nothing")
    assert answer.status_code == 404
    assert answer.json()["endpoints"] == [
        "GET /", "GET /state.json", "GET /healthz", "GET /metrics", "POST /start", "POST /stop",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("POST", "/state.json", "GET, HEAD"), ("GET", "/start", "POST"), ("OPTIONS", "/stop", "POST")],
)
async def test_another_method_is_405_and_names_those_allowed(method, path, allowed):
    answer = await ask(World(), method, path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)


async def test_head_is_get_without_a_body():
    answer = await ask(World(), "HEAD", "/state.json")
    assert (answer.status_code, answer.content) == (200, b"")


async def test_a_route_gets_the_parameters_of_the_query():
    assert (await ask(World(), "GET", "/metrics?since=7")).text == "since 7"


async def test_a_route_that_cannot_use_the_parameters_says_so():
    answer = await ask(World(), "GET", "/metrics?since=soon")
    assert answer.status_code == 400
    assert answer.json() == {"error": "since is 'soon', expected a number"}


async def test_an_action_learns_where_it_was_asked_from():
    answer = await ask(World(), "POST", "/stop?mode=save", headers=BEARER)
    assert answer.json() == {"stopping": "save", "by": "127.0.0.1"}


async def test_start_arms_and_may_be_repeated():
    world = World()
    for _ in range(2):
        answer = await ask(world, "POST", "/start")
        assert (answer.status_code, answer.json()) == (200, world.arm_answer[1])
    assert world.asked == ["start", "start"]


async def test_start_refuses_in_the_order_of_the_design():
    evil = {"Origin": "http://evil"}
    unpublished = {"published": False}
    no_switch = await ask(World(start_mode=None, **unpublished), "POST", "/start", headers=evil)
    assert (no_switch.status_code, no_switch.json()["error"]) == (
        409, "this run has no start switch",
    )  # fmt: skip
    auto = await ask(
        World(start_mode=StartMode.AUTO, **unpublished), "POST", "/start", headers=evil
    )
    assert auto.status_code == 409
    assert "start mode is auto" in auto.json()["error"]
    assert (await ask(World(**unpublished), "POST", "/start", headers=evil)).status_code == 403
    assert (await ask(World(**unpublished), "POST", "/start")).status_code == 503
    world = World()
    world.arm_answer = (409, {"error": "quorum not met: 1/2"})
    quorum = await ask(world, "POST", "/start")
    assert (quorum.status_code, quorum.json()["error"]) == (409, "quorum not met: 1/2")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        (BEARER, 200),
        ({"Authorization": "bearer sesame"}, 200),
        ({"Authorization": "Bearer wrong"}, 403),
        ({"Authorization": "Basic c2VzYW1l"}, 403),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example", **BEARER}, 200),
        ({"Origin": "http://127.0.0.1", **BEARER}, 403),
    ],
)
async def test_an_action_is_done_for_whom_is_trusted_only(headers, status):
    world = World()
    answer = await ask(world, "POST", "/stop?mode=save", headers=headers)
    assert answer.status_code == status
    assert world.asked == ([("stop", "save")] if status == 200 else [])


async def test_where_the_token_is_required_reading_needs_it_too():
    world = World(require_token=True)
    refused = await ask(world, "GET", "/state.json")
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    assert (await ask(world, "GET", "/state.json", headers=BEARER)).content == DOCUMENT
    assert (await ask(world, "POST", "/stop")).status_code == 403
    assert (await ask(world, "POST", "/stop", headers=BEARER)).status_code == 200


async def say(data, *, world=None):
    """Send raw bytes to a port and return the status line that comes back."""
    async with running_port(on_http=(world or World()).app.serve) as port:
        with port.client(data) as sock:
            return (await ended(sock)).partition(b"\r\n")[0]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET / HTTP/1.0\r\n\r\n", b"200"),
        (b"GET http://[::1]/ HTTP/1.1\r\nHost: [::1]\r\n\r\n", b"200"),
            (b"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", b"403"),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: a\r\n\r\n", b"400"),
        (b"GET garbage\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 9000, b"4"),
        (STOP + b"Content-Length: 9000\r\n\r\n" + b"x" * 9000, b"413"),
        (STOP + b"Content-Length: 2\r\n\r\nhi", b"200"),
        (STOP + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"200"),
        (b"GET //[ HTTP/1.1\r\nHost: a\r\n\r\n", b"404"),
        (b"GET http://[ HTTP/1.1\r\nHost: a\r\n\r\n", b"400"),
    ],
)  # fmt: skip
async def test_odd_requests_get_a_status(data, status):
    assert status in await say(data)


async def test_a_client_that_waits_to_send_its_body_is_told_to_go_on():
    async with running_port(on_http=World().app.serve) as port:
        head = b"POST /stop HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
        with port.client(head + b"Expect: 100-continue\r\n\r\n") as sock:
            await anyio.wait_readable(sock)
            assert sock.recv(100).startswith(b"HTTP/1.1 100")
            sock.send(b"hi")
            assert b"HTTP/1.1 200" in await ended(sock)


async def test_only_the_first_request_of_a_connection_is_answered():
    world = World()
    one = b"POST /stop HTTP/1.1\r\nHost: localhost\r\n\r\n"
    await say(one + one, world=world)
    assert len(world.asked) == 1


async def test_a_client_that_goes_away_harms_nobody():
    world = World()
    async with running_port(on_http=world.app.serve) as port:
        for data in (
            b"GET ",
            b"GET / HTTP/1.1\r\nHost: a\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ):
            port.client(data).close()
        await until(lambda: port.port.statistics().https == 3)
        await until(lambda: not port.port.statistics().open_http)
        assert port.dropped() == {}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=120))
async def test_arbitrary_bytes_after_a_method_are_answered_or_dropped(data):
    async with running_port(on_http=World().app.serve) as port:
        with port.client(b"GET " + data) as sock:
            sock.shutdown(socket.SHUT_WR)
            answer = await ended(sock)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("begun", [b"GET ", b"POST /stop HTTP/1.1\r\nHost: a\r\n"])
async def test_a_slow_request_is_ended_with_a_status(begun):
    app = HttpApp(Publisher(), trust=TrustPolicy(operator_token="sesame"), request_s=0.05)
    async with running_port(on_http=app.serve) as port:
        with port.client(begun) as sock:
            assert b"HTTP/1.1 408" in await ended(sock)


async def test_the_budgets_are_those_of_the_design():
    assert http_exchange.REQUEST_S == 5.0
    assert http_exchange.MAX_REQUEST_BYTES == 8192


async def test_the_client_reads_the_state_and_asks_for_actions():
    world = World()
    async with running_port(on_http=world.app.serve) as port:

        def talk():
            with ControllerClient(*port.at, operator_token="sesame") as client:
                return client.state(), client.post("/start"), client.post("/stop", mode="now")

        state, start, stop = await anyio.to_thread.run_sync(talk)
    assert (state.status, state.body) == (200, json.loads(DOCUMENT))
    assert start.is_ok
    assert start.error == ""
    assert stop.body == {"stopping": "now", "by": "127.0.0.1"}


async def test_the_client_shows_what_the_controller_said_against_it():
    world = World(start_mode=StartMode.AUTO)
    async with running_port(on_http=world.app.serve) as port:

        def talk():
            with ControllerClient(*port.at) as client:
                return client.post("/start")

        answer = await anyio.to_thread.run_sync(talk)
    assert not answer.is_ok
    assert answer.status == 409
    assert "auto" in answer.error


async def test_the_client_names_an_address_where_nobody_answers():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        at = listener.getsockname()
    with (
        ControllerClient(*at) as client,
        pytest.raises(
            ControllerUnreachableError, match=f"no launcher answers at 127.0.0.1:{at[1]}"
        ),
    ):
        client.state()


async def test_a_port_in_use_names_the_run_that_has_it():
    async with running_port(on_http=World().app.serve) as port:

        def bind_again():
            config = PortConfig(port=port.at[1])
            Port(config, on_join=ignore, on_mux=ignore, on_http=ignore).listen()

        with pytest.raises(ConfigError, match="in use by run 0123456789abcdef"):
            await anyio.to_thread.run_sync(bind_again)


@pytest.mark.parametrize(
    "document", [b"[]", b"{}", b'{"run": 3}', b'{"run": {"id": "<script>"}}', b"\xff"]
)
async def test_whatever_answers_is_shown_only_if_it_looks_like_a_run_id(document):
    world = World()
    world.publisher.publish(document)
    async with running_port(on_http=world.app.serve) as port:
        owner = await anyio.to_thread.run_sync(describe_owner, *port.at)
    assert owner == "another program"


async def test_a_run_that_tells_nothing_without_its_token_is_known_as_one():
    world = World(require_token=True)
    async with running_port(on_http=world.app.serve) as port:
        owner = await anyio.to_thread.run_sync(describe_owner, *port.at)
    assert owner == "a run of flodl that tells nothing without its token"


async def test_a_wrong_token_is_called_wrong_and_a_missing_one_missing():
    world = World(require_token=True)
    missing = await ask(world, "GET", "/state.json")
    wrong = await ask(world, "GET", "/state.json", headers={"Authorization": "Bearer wrong"})
    assert (missing.status_code, wrong.status_code) == (401, 401)
    assert missing.json()["error"] == "this run asks for the operator token"
    assert wrong.json()["error"] == "that is not the operator token"


@pytest.mark.parametrize("headers", [None, {"Authorization": "Bearer wrong"}])
async def test_health_is_told_to_anybody_and_nothing_else_is(headers):
    world = World(require_token=True)
    answer = await ask(world, "GET", "/healthz", headers=headers)
    assert (answer.status_code, answer.content) == (200, b"ok\n")
    assert (await ask(world, "HEAD", "/healthz", headers=headers)).status_code == 200
    for path in world.app._gets.keys() - {"/healthz"}:
        refused = await ask(world, "GET", path, headers=headers)
        assert (refused.status_code, DOCUMENT in refused.content) == (401, False)
