"""HTTP under attack: smuggled requests, foreign pages, odd paths. No action is ever done."""

import socket

import pytest
from attack_tools import SESAME, Run
from net_pairs import ended, running_port, until

from flodl_core.net.http import GetRoute, HttpApp, Publisher
from flodl_core.net.http_trust import TrustPolicy

pytestmark = pytest.mark.anyio

POST = b"POST /stop HTTP/1.1\r\nHost: localhost\r\n"
INNER = b"POST /stop HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n" % (
    SESAME.encode()
)


async def ask(run: Run, data: bytes) -> list[bytes]:
    """Say it and return the status lines that came back."""
    async with run.port() as port:
        with port.client(data) as sock:
            sock.shutdown(socket.SHUT_WR)
            answer = await ended(sock)
        await until(lambda: not port.port.statistics().open_http)
    return [line for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


SMUGGLED = {
    "length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    + INNER,
    "two lengths": b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(INNER) + INNER,
    "a list of lengths": b"Content-Length: 0, %d\r\n\r\n" % len(INNER) + INNER,
    "a signed length": b"Content-Length: +0\r\n\r\n" + INNER,
    "a length in hex": b"Content-Length: 0x0\r\n\r\n" + INNER,
    "a negative length": b"Content-Length: -1\r\n\r\n" + INNER,
    "an unknown coding": b"Transfer-Encoding: xchunked\r\n\r\n" + INNER,
    "a doubled coding": b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n" + INNER,
    "a space before the colon": b"Content-Length : 5\r\n\r\n" + INNER,
    "a folded header": b"X: a\r\n Transfer-Encoding: chunked\r\n\r\n" + INNER,
    "a bare carriage return": b"X: a\rTransfer-Encoding: chunked\r\n\r\n" + INNER,
    "a zero byte": b"X: a\x00b\r\n\r\n" + INNER,
    "a chunk of odd length": b"Transfer-Encoding: chunked\r\n\r\n0x0\r\n\r\n" + INNER,
    "a chunk without end": b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + INNER,
}


@pytest.mark.parametrize("rest", SMUGGLED.values(), ids=SMUGGLED)
async def test_a_request_with_two_readings_never_reaches_what_is_hidden_in_it(rest) -> None:
    """The outer request names another host, so that only the hidden one could do anything."""
    run = Run()
    statuses = await ask(run, b"POST /stop HTTP/1.1\r\nHost: elsewhere\r\n" + rest)
    assert len(statuses) == 1
    assert statuses[0][9:10] in (b"4", b"5")
    assert run.acted == []
    assert sum(run.app.refusals().values()) == 1


async def test_a_second_request_behind_a_first_is_never_read() -> None:
    run = Run()
    statuses = await ask(run, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" + INNER)
    assert statuses == [b"HTTP/1.1 200 OK"]
    assert run.acted == []


ORIGINS = {
    "a web page": POST + b"Origin: https://evil.example\r\n\r\n",
    "a page of this machine": POST + b"Origin: http://localhost:1337\r\n\r\n",
    "no origin at all": POST + b"Origin: null\r\n\r\n",
    "an empty origin": POST + b"Origin:\r\n\r\n",
    "a page with the token": POST
    + b"Origin: http://evil\r\nAuthorization: Bearer %s\r\n\r\n" % SESAME.encode(),
    "another host": b"POST /stop HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "a host that begins like ours": b"POST /stop HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n",
    "a host behind an at sign": b"POST /stop HTTP/1.1\r\nHost: localhost@evil\r\n\r\n",
    "a user before ours": b"POST /stop HTTP/1.1\r\nHost: evil@localhost\r\n\r\n",
    "another name of loopback": b"POST /stop HTTP/1.1\r\nHost: 127.1\r\n\r\n",
    "a port that is a name": b"POST /stop HTTP/1.1\r\nHost: localhost:evil\r\n\r\n",
    "every interface": b"POST /stop HTTP/1.1\r\nHost: 0.0.0.0\r\n\r\n",
    "a trailing dot": b"POST /stop HTTP/1.1\r\nHost: localhost.\r\n\r\n",
    "two hosts in one": b"POST /stop HTTP/1.1\r\nHost: localhost, evil\r\n\r\n",
    "an empty host": b"POST /stop HTTP/1.1\r\nHost:\r\n\r\n",
    "two addresses": b"POST http://evil.example/stop HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no host": b"POST /stop HTTP/1.0\r\n\r\n",
    "a token of another run": POST + b"Authorization: Bearer %s\r\n\r\n" % (b"ab" * 32),
    "a token cut short": POST + b"Authorization: Bearer %s\r\n\r\n" % SESAME[:-1].encode(),
    "no token behind the word": POST + b"Authorization: Bearer \r\n\r\n",
    "a token that is no ASCII": POST + b"Authorization: Bearer \xff\xfe\r\n\r\n",
}


@pytest.mark.parametrize("request_", ORIGINS.values(), ids=ORIGINS)
async def test_no_trick_with_origin_host_or_token_acts(request_) -> None:
    run = Run()
    statuses = await ask(run, request_)
    assert len(statuses) == 1
    assert statuses[0][9:12] in (b"400", b"403")
    assert run.acted == []
    assert list(run.app.refusals().values()) == [1]


@pytest.mark.parametrize(
    "path",
    [
        b"/../stop", b"/./stop", b"//stop", b"///stop", b"/stop/", b"/stop;a", b"/%73top",
        b"/stop%00", b"/STOP", b"/state.json/../stop", b"/..%2fstop", b"\\stop", b"/stop\\",
        b"/etc/passwd", b"/../../../../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd",
        b"/logs/launcher.log", b"/token", b"/state.json%20", b"*", b"/?a=/stop",
    ],
)  # fmt: skip
async def test_a_path_is_one_of_the_list_or_nothing(path) -> None:
    run = Run()
    statuses = await ask(run, b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert len(statuses) == 1
    assert statuses[0][9:12] in (b"400", b"404", b"405")
    assert run.acted == []


REFUSED_HEADS = {
    "a target that is no path": b"HEAD * HTTP/1.1\r\nHost: a\r\n\r\n",
    "two addresses": b"HEAD http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two lengths": b"HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a long body": b"HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 20000\r\n\r\n" + b"x" * 20000,
    "a path that is none": b"HEAD /nothing HTTP/1.1\r\nHost: a\r\n\r\n",
    "a switch": b"HEAD /stop HTTP/1.1\r\nHost: a\r\n\r\n",
    "a web page": b"HEAD / HTTP/1.1\r\nHost: localhost\r\nOrigin: http://evil\r\n\r\n",
}


@pytest.mark.parametrize("request_", REFUSED_HEADS.values(), ids=REFUSED_HEADS)
async def test_a_head_that_is_refused_gets_a_head_only_and_costs_nobody_else_anything(
    request_,
) -> None:
    run = Run()
    async with run.port() as port:
        with port.client(request_) as sock:
            answer = await ended(sock)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 4")
        assert body == b""
        with port.client(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") as sock:
            assert (await ended(sock)).startswith(b"HTTP/1.1 200")
    assert sum(run.app.refusals().values()) == 1


async def test_a_head_whose_body_does_not_come_is_refused_without_a_body() -> None:
    app = HttpApp(Publisher(), trust=TrustPolicy(operator_token=SESAME), request_s=0.05)
    async with running_port(on_http=app.serve) as port:
        with port.client(b"HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n") as sock:
            answer = await ended(sock)
        assert answer.startswith(b"HTTP/1.1 408")
        assert answer.endswith(b"\r\n\r\n")


async def test_a_fault_of_ours_in_an_answer_costs_that_request_only() -> None:
    def fail(_: object) -> bytes:
        raise ZeroDivisionError("a fault")

    publisher = Publisher()
    publisher.publish(b"{}")
    app = HttpApp(
        publisher,
        trust=TrustPolicy(operator_token=SESAME),
        gets=[GetRoute(path="/broken", content_type="text/plain", produce=fail)],
    )
    async with running_port(on_http=app.serve) as port:
        for method in (b"GET", b"HEAD"):
            with port.client(method + b" /broken HTTP/1.1\r\nHost: localhost\r\n\r\n") as sock:
                assert (await ended(sock)).startswith(b"HTTP/1.1 500")
        with port.client(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") as sock:
            assert (await ended(sock)).startswith(b"HTTP/1.1 200")
        await until(lambda: port.dropped().get("fault") == 2)
        assert "ZeroDivisionError: a fault (test_attacks_http.py:" in port.notes[0].detail


async def test_a_fault_in_the_handshake_of_a_peer_costs_that_connection_only() -> None:
    async def fail(_: object) -> None:
        raise KeyError("a fault")

    async with running_port(on_join=fail) as port:
        with port.client(b"JOIN") as sock:
            assert await ended(sock) == b""
        await until(lambda: port.dropped() == {"fault": 1})


async def test_an_honest_operator_of_this_machine_acts_meanwhile() -> None:
    run = Run()
    assert await ask(run, POST + b"\r\n") == [b"HTTP/1.1 200 OK"]
    assert len(run.acted) == 1


async def test_many_parameters_and_long_targets_are_refused() -> None:
    run = Run()
    many = b"&".join(b"a%d=1" % number for number in range(100))
    for target in (b"/stop?" + many, b"/" + b"a" * 9_000):
        statuses = await ask(run, b"POST " + target + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert statuses[0][9:10] == b"4"
    assert run.acted == []
