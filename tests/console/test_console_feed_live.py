"""A live run over its port: what is read, and every way in which it can go wrong."""

import socket

import anyio
import pytest
from console_feeds import (
    FakeClock,
    always,
    answer,
    documents_of,
    dripping,
    events_of,
    json_answer,
    reading,
    serving,
    silent,
    take,
    until,
    windows_of,
)

from flodl_console.demo.scenarios import open_scenario
from flodl_console.feed.live import LiveFeed
from flodl_console.feed.run_port import RunTrust
from flodl_console.view.records import (
    DocumentArrived,
    LinkChanged,
    LinkState,
    SourceKind,
    SourceOpened,
)
from flodl_core.ids import ClusterPhase, RunId
from flodl_core.telemetry.journal import Journal
from flodl_core.telemetry.recorder import RunRecorder
from flodl_core.telemetry.run_directory import RunDirectory
from flodl_core.telemetry.summary import summarize, summary_json

pytestmark = pytest.mark.anyio

DISCONNECTED = {"state": LinkState.DISCONNECTED}


@pytest.fixture
def anyio_backend():
    """The HTTP client leaves generators that trio does not forgive; the console runs here."""
    return "asyncio"


@pytest.fixture(scope="module")
def training():
    return open_scenario("training")


def live(server, clock=None, **given):
    return LiveFeed("127.0.0.1", server.port, clock=clock or FakeClock(), **given)


async def fault_of(server, path, override, *, clock=None):
    server.override[path] = override
    async with reading(live(server, clock)) as records:
        seen = await until(records, LinkChanged, **DISCONNECTED)
    return seen[-1]


async def test_it_opens_says_whom_it_asks_and_then_that_it_reads(training):
    async with serving(training) as server, reading(live(server)) as records:
        opened, asking, reads, arrived = await take(records, 4)
    assert opened == SourceOpened(
        kind=SourceKind.LIVE, label=f"127.0.0.1:{server.port}", is_read_only=False
    )
    assert (asking.state, asking.detail) == (LinkState.LOADING, f"asking 127.0.0.1:{server.port}")
    assert reads.state is LinkState.LIVE
    assert arrived.document == training.document_at(training.showcase_s)
    assert arrived.size_bytes > 1000


async def test_windows_and_events_come_once_each_and_in_order(training):
    async with serving(training, at_s=100.0) as server, reading(live(server)) as records:
        seen = await until(records, DocumentArrived)
        seen += await until(records, DocumentArrived)
        server.at_s = 200.0
        seen += await until(records, DocumentArrived)
        seen += await until(records, DocumentArrived)
        seen += await until(records, DocumentArrived)
    windows = training.windows_until(200.0).newest_seq
    events = training.events_until(200.0).newest_seq
    assert [row.seq for row in windows_of(seen)] == list(range(1, windows + 1))
    assert [row.seq for row in events_of(seen)] == list(range(1, events + 1))


async def test_pages_are_only_asked_for_when_the_document_tells_of_news(training):
    async with serving(training) as server, reading(live(server)) as records:
        for _ in range(4):
            await until(records, DocumentArrived)
    paths = [path for _, path, _ in server.requests]
    assert (paths.count("/history"), paths.count("/events")) == (1, 1)
    assert paths.count("/state.json") == 4


@pytest.mark.slow
async def test_a_large_world_is_asked_for_short_pages():
    run = open_scenario("training", ranks=512)
    async with serving(run) as server, reading(live(server)) as records:
        await until(records, DocumentArrived)
        seen = await until(records, DocumentArrived)
    limits = {query["limit"] for _, path, query in server.requests if path == "/history"}
    assert limits == {"78"}
    assert len(windows_of(seen)) == run.windows_until(run.showcase_s).newest_seq


async def test_it_asks_twice_a_second(training):
    clock = FakeClock()
    async with serving(training) as server:
        feed = LiveFeed("127.0.0.1", server.port, clock=clock)
        async with reading(feed) as records:
            for _ in range(4):
                await until(records, DocumentArrived)
    assert clock.waits_s == [0.5, 0.5, 0.5]


async def test_an_older_run_without_pages_is_read_all_the_same(training):
    async with serving(training) as server:
        server.override |= {"/history": always(json_answer(404, {"error": "no such path"}))}
        async with reading(live(server)) as records:
            seen = []
            for _ in range(3):
                seen += await until(records, DocumentArrived)
    assert len(documents_of(seen)) == 3
    assert windows_of(seen) == []
    assert not [record for record in seen if getattr(record, "state", None) == "disconnected"]
    assert [path for _, path, _ in server.requests].count("/history") == 1


async def test_every_request_carries_the_operators_token(training):
    async with (
        serving(training) as server,
        reading(live(server, trust=RunTrust(operator_token="abc"))) as records,
    ):
        await until(records, DocumentArrived)
    assert "authorization: bearer abc" in server.headers[0]


async def test_nobody_there_is_named_and_tried_again_ever_more_rarely():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        feed = LiveFeed("127.0.0.1", port, clock=FakeClock())
        async with reading(feed) as records:
            seen = await take(records, 9)
    faults = [record for record in seen if isinstance(record, LinkChanged)][1:]
    assert faults[0].detail == f"no launcher answers at 127.0.0.1:{port}"
    assert [fault.retry_in_s for fault in faults] == [0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


async def test_after_a_break_it_reads_on_and_says_so(training):
    async with serving(training, at_s=100.0) as server, reading(live(server)) as records:
        await until(records, DocumentArrived)
        server.override["/state.json"] = always(b"")
        broken = await until(records, LinkChanged, **DISCONNECTED)
        server.override.clear()
        server.at_s = 130.0
        seen = await until(records, LinkChanged, state=LinkState.LIVE)
        seen += await until(records, DocumentArrived)
        seen += await until(records, DocumentArrived)
    assert broken[-1].retry_in_s == 0.5
    known = training.windows_until(100.0).newest_seq
    assert windows_of(seen)[0].seq == known + 1


async def test_a_frozen_run_is_given_up_after_three_seconds(training):
    clock = FakeClock()
    async with serving(training) as server:
        fault = await fault_of(server, "/state.json", silent(clock), clock=clock)
    assert fault.detail == f"127.0.0.1:{server.port} did not answer within 3 s"
    assert clock.at_s == 1003.0


async def test_a_byte_at_a_time_is_given_up_after_three_seconds(training):
    clock = FakeClock()
    body = answer(200, b"x" * 20, length=10_000)
    async with serving(training) as server:
        fault = await fault_of(server, "/state.json", dripping(clock, body), clock=clock)
    assert fault.detail == f"127.0.0.1:{server.port} sends too slowly: 20 bytes in 3 s"


async def test_more_than_five_megabytes_are_not_kept(training):
    async with serving(training) as server:
        fault = await fault_of(server, "/state.json", always(answer(200, b"[" * 6_000_000)))
    assert fault.detail == f"the answer of 127.0.0.1:{server.port} is larger than 5 MB"


BROKEN = {
    "broken JSON": (answer(200, b'{"run": '), "no status document of flodl"),
    "another program's JSON": (answer(200, b'{"hello": 1}'), "no status document of flodl"),
    "a newer schema": (
        answer(200, b'{"schema_version": 99}'),
        "no status document of flodl",
    ),
    "half an answer": (answer(200, b"half", length=900), "broke off its answer"),
    "no HTTP": (b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak HTTP as a run does"),
    "nothing at all": (b"", "does not speak HTTP as a run does"),
    "not published": (json_answer(503, {"error": "x"}), "has published nothing yet"),
    "not for everybody": (json_answer(401, {"error": "x"}), "only to its operator"),
    "no such path": (json_answer(404, {"error": "x"}), "does not serve /state.json"),
    "trouble": (json_answer(500, {"error": "x"}), "answered with status 500"),
    "a zip bomb": (
        answer(200, b"\x1f\x8b\x08\x00").replace(b"\r\nCon", b"\r\nContent-Encoding: gzip\r\nCon"),
        "no status document of flodl",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
async def test_what_is_no_document_is_named(training, what):
    data, words = BROKEN[what]
    async with serving(training) as server:
        fault = await fault_of(server, "/state.json", always(data))
    assert words in fault.detail
    assert "\n" not in fault.detail
    assert "\x1b" not in fault.detail


async def test_a_newer_schema_is_named_with_what_to_do(training):
    body = training.document_at(100.0).model_copy(update={"schema_version": 99})
    async with serving(training) as server:
        data = answer(200, body.model_dump_json().encode())
        fault = await fault_of(server, "/state.json", always(data))
    assert "schema 99" in fault.detail
    assert "use the flodl version that started the run" in fault.detail


async def test_a_page_without_records_waits_for_the_next_round(training):
    body = b'{"oldest_seq": 1, "newest_seq": 5, "records": []}'
    async with serving(training) as server:
        server.override["/history"] = always(answer(200, body))
        async with reading(live(server)) as records:
            for _ in range(3):
                await until(records, DocumentArrived)
    assert [path for _, path, _ in server.requests].count("/history") == 2


async def test_another_run_at_the_address_is_named_and_never_shown(training):
    other = open_scenario("late", seed=5)
    async with serving(training) as server:
        feed = live(server)
        async with reading(feed) as records:
            await until(records, DocumentArrived)
            server.run = other
            seen = await until(records, LinkChanged, state=LinkState.ENDED)
            asked = await feed.ask("stop")
    assert "another run answers at" in seen[-1].detail
    assert "late" in seen[-1].detail
    assert documents_of(seen) == []
    assert not asked.is_accepted
    assert not [path for method, path, _ in server.requests if method == "POST"]


async def test_a_run_that_ended_and_went_is_ended_and_asked_no_more():
    run = open_scenario("done")
    async with serving(run) as server:
        feed = live(server)
        async with reading(feed) as records:
            await until(records, DocumentArrived)
            server.override["/state.json"] = always(b"")
            seen = await until(records, LinkChanged, state=LinkState.ENDED)
            before = len(server.requests)
            with anyio.move_on_after(0.05) as scope:
                await anext(records)
            asked = await feed.ask("stop")
    assert seen[-1].detail == "the run has ended: exit 0, finished"
    assert scope.cancelled_caught
    assert len(server.requests) == before
    assert asked.text == "the run has ended: exit 0, finished"


async def test_a_run_that_was_about_to_end_has_ended_when_it_stays_away():
    run = open_scenario("done")
    last = run.document_at(run.showcase_s).model_copy(update={"end": None})
    async with serving(run) as server, reading(live(server)) as records:
        server.override["/state.json"] = always(answer(200, last.model_dump_json().encode()))
        await until(records, DocumentArrived)
        server.override["/state.json"] = always(b"")
        seen = await until(records, LinkChanged, state=LinkState.ENDED)
    assert [r.state for r in seen if isinstance(r, LinkChanged)] == ["disconnected", "ended"]
    assert seen[-1].detail == "the run has ended: done"


def left_behind(tmp_path, document=None, summary=None):
    """The directory of a run that is over."""
    directory = RunDirectory.create(tmp_path, "night", RunId("0123456789abcdef"))
    if document is not None:
        recorder = RunRecorder(Journal(directory.records_path, utc_iso=lambda: "now"))
        recorder.take_document(document)
        recorder.close()
    if summary is not None:
        directory.write_summary(summary_json(summary))
    directory.close()
    return directory


async def test_how_it_ended_is_read_from_the_summary_that_it_left(training, tmp_path):
    last = training.document_at(training.showcase_s)
    summary = summarize(last, exit_code=1, reason="reduce_stall", detail="cycle 7 is reducing")
    directory = left_behind(tmp_path, summary=summary)
    async with serving(training) as server, reading(live(server, directory=directory)) as records:
        await until(records, DocumentArrived)
        server.override["/state.json"] = always(b"")
        seen = await until(records, LinkChanged, state=LinkState.ENDED)
    shown = documents_of(seen)[-1]
    assert shown.phase is ClusterPhase.FAILED
    assert shown.ranks == last.ranks
    assert (shown.end.reason, shown.end.detail) == ("reduce_stall", "cycle 7 is reducing")
    assert seen[-1].detail == "the run has ended: exit 1, reduce_stall"


async def test_how_a_window_failed_is_read_from_the_record_that_it_left(tmp_path):
    failed = open_scenario("failed").document_at(200.0)
    directory = left_behind(tmp_path, document=failed)
    async with serving(open_scenario("waiting")) as server:
        server.override["/state.json"] = always(b"")
        async with reading(live(server, directory=directory)) as records:
            seen = await until(records, LinkChanged, state=LinkState.ENDED)
    assert documents_of(seen)[-1].end == failed.end
    assert seen[-1].detail == "the run has ended: exit 1, max_failure_exceeded"


async def test_a_launcher_that_was_killed_left_no_word(training, tmp_path):
    directory = left_behind(tmp_path, document=training.document_at(100.0))
    async with serving(training) as server, reading(live(server, directory=directory)) as records:
        await until(records, DocumentArrived)
        server.override["/state.json"] = always(b"")
        seen = await until(records, LinkChanged, state=LinkState.ENDED)
    assert documents_of(seen) == []
    assert seen[-1].detail.startswith("the launcher ended without a word")


async def test_a_live_directory_means_another_try(training, tmp_path):
    directory = RunDirectory.create(tmp_path, "night", RunId("0123456789abcdef"))
    async with serving(training) as server, reading(live(server, directory=directory)) as records:
        server.override["/state.json"] = always(b"")
        await until(records, LinkChanged, **DISCONNECTED)
        seen = await until(records, LinkChanged, **DISCONNECTED)
    directory.close()
    assert seen[-1].retry_in_s == 1.0


async def test_an_action_is_posted_and_answered_in_the_runs_words(training):
    async with serving(training) as server:
        feed = live(server, trust=RunTrust(operator_token="abc"))
        outcome = await feed.ask("stop", kind="now")
        await feed.aclose()
    assert (outcome.is_accepted, outcome.text) == (True, "it will end")
    assert server.requests == [("POST", "/stop", {"kind": "now"})]
    assert "authorization: bearer abc" in server.headers[0]


REFUSALS = {
    "a reason": (
        json_answer(409, {"error": "quorum not met: 1/2", "fix": "wait"}),
        ("quorum not met: 1/2", "wait"),
    ),
    "no trust": (
        json_answer(403, {"error": "not trusted"}),
        ("not trusted", "give the run's token with --token-file"),
    ),
    "no words": (answer(500, b"oops"), ("the run answered with status 500", "")),
    "no object": (answer(409, b"[1]"), ("the run answered with status 409", "")),
    "control characters": (json_answer(409, {"error": "a\x1b[2J"}), ("a\\x1b[2J", "")),
    "deep": (answer(409, b"[" * 100_000), ("the run answered with status 409", "")),
}


@pytest.mark.parametrize("what", REFUSALS)
async def test_a_refusal_is_told_with_its_reason(training, what):
    data, (text, fix) = REFUSALS[what]
    async with serving(training) as server:
        server.override["/drain"] = always(data)
        feed = live(server)
        outcome = await feed.ask("drain", host="blue")
        await feed.aclose()
    assert not outcome.is_accepted
    assert outcome.text == text
    assert outcome.fix.startswith(fix)


async def test_a_start_says_with_how_many_ranks(training):
    async with serving(training) as server:
        body = {"armed": True, "joined_ranks": 3, "min_rank_start": 2}
        server.override["/start"] = always(json_answer(200, body))
        feed = live(server)
        outcome = await feed.ask("start")
        await feed.aclose()
    assert (outcome.is_accepted, outcome.text) == (True, "the run starts with 3 ranks")


async def test_an_acceptance_without_words_is_an_acceptance(training):
    async with serving(training) as server:
        server.override["/evict"] = always(answer(200, b""))
        feed = live(server)
        outcome = await feed.ask("evict", rank="3")
        await feed.aclose()
    assert (outcome.is_accepted, outcome.text) == (True, "the run takes the evict")


async def test_an_action_without_an_answer_says_that_nobody_knows(training):
    clock = FakeClock()
    async with serving(training) as server:
        server.override["/stop"] = silent(clock)
        feed = live(server, clock)
        outcome = await feed.ask("stop")
        await feed.aclose()
    assert not outcome.is_accepted
    assert outcome.text.endswith("did not answer within 5 s; whether it will stop is not known")


async def test_read_only_asks_nothing(training):
    async with serving(training) as server:
        feed = live(server, is_read_only=True)
        outcome = await feed.ask("stop")
        await feed.aclose()
    assert not outcome.is_accepted
    assert "read-only" in outcome.text
    assert server.requests == []


async def frozen(stream):
    await anyio.sleep_forever()


async def test_a_read_is_cut_at_once_when_the_console_is_closed(training):
    async with serving(training) as server:
        server.override["/state.json"] = frozen
        feed = live(server)
        records = feed.records()
        await take(records, 2)
        with anyio.fail_after(1.0):
            with anyio.move_on_after(0.05):
                await anext(records)
            await records.aclose()
            await feed.aclose()
            await feed.aclose()
