"""The page about HTTP, compared with the real routes over a real port."""

import re
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from doc_code import ROOT
from doc_text import read

from flodl_core.ids import StartMode
from flodl_core.net.http import HttpApp, Publisher
from flodl_core.net.http_exchange import MAX_REQUEST_BYTES, REQUEST_S
from flodl_core.net.http_trust import TrustPolicy
from flodl_core.net.port import Port, PortConfig
from flodl_core.roles.operator_desk import OperatorActions, operator_routes, reading_routes
from flodl_core.telemetry.record_rings import MAX_EVENTS, MAX_PAGE, MAX_WINDOWS, RecordRing
from flodl_core.telemetry.state import json_schema

PAGE = read(ROOT / "docs" / "http.md")


@pytest.fixture
def anyio_backend():
    return "asyncio"


@asynccontextmanager
async def run_of_nobody(start_mode=StartMode.MANUAL, *, why_no_checkpoint=None):
    """Serve the routes of a run on loopback; nothing stands behind them."""
    app = HttpApp(
        Publisher(),
        trust=TrustPolicy(operator_token="0" * 64),
        posts=operator_routes(
            start_mode,
            OperatorActions(
                snapshot=lambda: None,
                start=lambda _: None,
                stop=lambda kind, who: f"{who}: {kind.value}",
                checkpoint=lambda _: why_no_checkpoint,
                drain=lambda host, _: None if host == "blue" else f"there is no host {host!r}",
                evict=lambda rank, _: None if rank == 3 else f"there is no rank {rank}",
            ),
        ),
        gets=reading_routes(RecordRing(1), RecordRing(1), lambda: None),
    )
    app._publisher.publish(b"{}")
    port = Port(PortConfig(port=0), on_join=app.serve, on_mux=app.serve, on_http=app.serve)
    address = port.listen()
    async with anyio.create_task_group() as tasks:
        await tasks.start(port.serve)
        base = f"http://127.0.0.1:{address.port}"
        async with httpx.AsyncClient(base_url=base, trust_env=False, verify=False) as client:
            yield client
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_the_page_lists_the_endpoints_and_no_other():
    async with run_of_nobody() as client:
        answer = await client.get("/nothing")
    listed = re.findall(r"^\| `((?:GET|POST) /[\w.]*)` \|", PAGE, re.MULTILINE)
    assert listed == answer.json()["endpoints"]


@pytest.mark.anyio
async def test_the_statuses_of_the_page_are_those_of_the_port():
    async with run_of_nobody(why_no_checkpoint="the run is not training yet") as client:
        assert (await client.post("/stop?kind=later")).status_code == 400
        assert (await client.post("/stop")).json()["kind"] == "save"
        assert (await client.post("/stop?kind=now")).json()["kind"] == "now"
        assert (await client.post("/checkpoint")).status_code == 409
        assert (await client.post("/drain")).status_code == 400
        assert (await client.post("/drain?host=red")).status_code == 409
        assert (await client.post("/drain?host=blue")).json()["draining"] is True
        assert (await client.post("/evict")).status_code == 400
        assert (await client.post("/evict?rank=two")).status_code == 400
        assert (await client.post("/evict?rank=2")).status_code == 409
        assert (await client.post("/evict?rank=3")).json()["evicting"] is True
        for path in ("/history", "/events"):
            assert (await client.get(path)).json()["records"] == []
            assert (await client.get(f"{path}?since=-1")).status_code == 400
            assert (await client.get(f"{path}?limit=x")).json()[
                "fix"
            ] == f"ask GET {path}?limit=100"
        assert (await client.get("/metrics")).status_code == 503
        assert (await client.post("/stop", headers={"Origin": "http://a"})).status_code == 403
        assert (await client.post("/healthz")).headers["allow"] == "GET, HEAD"
        assert (await client.get("/healthz")).text == "ok\n"
    async with run_of_nobody(StartMode.AUTO) as client:
        assert (await client.post("/start")).status_code == 409


def test_the_budgets_of_the_page_are_those_of_the_port():
    assert f"within {REQUEST_S:g} seconds" in PAGE
    assert f"at most {MAX_REQUEST_BYTES // 1024} KiB" in PAGE


def test_the_bounds_of_the_page_are_those_of_the_rings():
    assert f"last {MAX_WINDOWS:,} windows and {MAX_EVENTS:,} events" in PAGE
    assert f"at most {MAX_PAGE} records" in PAGE


def test_every_section_of_the_schema_stands_in_the_page():
    sections = {name for name in json_schema()["$defs"] if name.endswith("State")}
    assert not [name for name in sections if f"#### {name}\n" not in PAGE]
