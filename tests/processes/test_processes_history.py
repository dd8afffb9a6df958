"""What a real run tells of itself over HTTP, and what its record shows when it is over."""

import json
import platform
from typing import Any

import httpx
import pytest
from harness import SHORT_S, Launched
from prometheus_client.parser import text_string_to_metric_families

from flodl_core.telemetry.recorded_form import rounded_document
from flodl_core.telemetry.records import EventRecord, WindowRecord
from flodl_core.telemetry.replay import RecordedRun
from flodl_core.telemetry.state import StateDocument

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.long, pytest.mark.timeout(240)]

HOST = platform.node()
ENDLESS = (
    *("synthetic", "--epochs", "100000", "--job-arg", "params=100", "--step-ms", "20"),
    *("--mode", "cpu_cadence"),
)


@pytest.fixture(scope="module")
def runs(launch_ahead) -> dict[str, Launched]:
    """Both runs start side by side."""
    return {
        "ended": launch_ahead(*ENDLESS, "--hosts", "2", "--ranks-per-host", "2"),
        "killed": launch_ahead(*ENDLESS, "--ranks", "1"),
    }


def page(run: Launched, path: str, since: int = 0, **more: Any) -> dict[str, Any]:
    query = {"since": since, **more}
    url = f"http://{run.address}{path}"
    answer = httpx.get(url, params=query, timeout=30.0, trust_env=False)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def everything(run: Launched, path: str) -> list[dict[str, Any]]:
    """Every record that is kept, page by page."""
    rows: list[dict[str, Any]] = []
    while True:
        got = page(run, path, rows[-1]["seq"] if rows else 0, limit=7)["records"]
        if not got:
            return rows
        rows += got


def until_told(run: Launched, name: str, **about: Any) -> dict[str, Any]:
    """Wait for an event; each new document is a reason to look again."""

    def look() -> dict[str, Any] | None:
        for event in everything(run, "/events"):
            if event["name"] == name and about.items() <= event.items():
                return event
        return None

    found = run.until(f"event {name} {about}", look)
    assert found is not None
    return found


def test_a_run_tells_its_story_and_its_record_shows_it_again(runs) -> None:
    run = runs["ended"]
    run.until_trained(200)
    seen = [run.fetch_state()]

    saved = run.flodl("checkpoint")
    assert saved.code == 0, saved
    written = until_told(run, "save_written")
    seen.append(run.fetch_state())

    evicted = run.flodl("evict", "3")
    assert evicted.code == 0, evicted
    asked = until_told(run, "evict", rank=3)
    assert asked["who"] == "operator at 127.0.0.1"
    assert until_told(run, "rank_lost", rank=3)["cause_seq"] == asked["seq"]
    again = run.flodl("evict", "3")
    assert (again.code, "lost already" in again.err) == (1, True), again

    run.kill(f"agent {HOST}-1")
    gone = until_told(run, "host_lost")
    assert gone["host"] == f"{HOST}-1"
    assert until_told(run, "rank_lost", rank=2)["cause_seq"] == gone["seq"]
    seen.append(run.fetch_state())

    windows = everything(run, "/history")
    assert [row["seq"] for row in windows] == list(range(1, len(windows) + 1))
    assert [row["cycle"] for row in windows] == list(range(1, len(windows) + 1))
    assert all(row["outcome"] == "committed" for row in windows)
    assert len(windows[-1]["batch_counts"]) == 4
    assert windows[-1]["batch_counts"][2:] == [0, 0]
    assert abs(sum(weight or 0 for weight in windows[0]["weights"]) - 1) < 1e-5

    metrics = httpx.get(f"http://{run.address}/metrics", trust_env=False)
    assert metrics.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = {family.name for family in text_string_to_metric_families(metrics.text)}
    assert {"flodl_loss", "flodl_rank_batches", "flodl_samples_trained"} <= names

    state = run.fetch_state()
    assert state["join"]["line"] == f"flodl join 127.0.0.1:{run.port}"
    assert state["newest_event_seq"] >= written["seq"]
    refused = httpx.get(f"http://{run.address}/events?since=yesterday", trust_env=False)
    assert (refused.status_code, "whole number" in refused.json()["error"]) == (400, True)

    stopped = run.flodl("stop")
    assert stopped.code == 0, stopped
    assert run.finish(SHORT_S) == 4
    run.check_quiet()
    check_record(run, seen, windows)


def check_record(run: Launched, seen: list[dict[str, Any]], windows: list[dict[str, Any]]) -> None:
    """The record holds the run from its window to its end, and no secret."""
    record = RecordedRun.open(run.directory)
    assert record.missing == ()
    last = record.document_at(record.length_s)
    assert last is not None
    assert last.end is not None
    assert (last.end.exit_code, last.phase) == (4, "done")
    assert [rank.state for rank in last.ranks][2:] == ["lost", "lost"]

    documents = {one.run.uptime_s: one for one in record.documents_between(-1.0, 1e9)}
    assert list(documents) == sorted(documents)
    for body in seen:
        told = rounded_document(StateDocument.model_validate(body))
        shown = record.document_at(told.run.uptime_s)
        assert shown is not None
        assert (shown.phase, shown.members, shown.alerts) == (told.phase, told.members, told.alerts)
        assert told.run.uptime_s - shown.run.uptime_s < 2.0
        if told.run.uptime_s in documents:
            assert shown == told

    events = record.events_until(1e9).records
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    names = [event.name for event in events]
    assert names[0] == "window_opened"
    assert names[-1] == "run_ended"
    stop = next(event for event in events if event.name == "stop")
    assert events[-1].cause_seq == stop.seq
    assert isinstance(events[0], EventRecord)
    kept = {row.seq: row for row in record.windows_until(1e9).records}
    assert kept
    for row in windows:
        if row["seq"] in kept:
            assert kept[row["seq"]] == WindowRecord.model_validate(row)

    token = run.token_file.read_text().strip()
    for path in run.directory.rglob("*.jsonl*"):
        text = path.read_text()
        assert token not in text
        for line in text.splitlines():
            json.loads(line)


def test_the_record_of_a_launcher_that_was_killed_shows_what_was_written(runs) -> None:
    run = runs["killed"]
    run.until_trained(400)
    uptime_s = run.fetch_state()["run"]["uptime_s"]
    run.until("two seconds of record", lambda: run.document["run"]["uptime_s"] > uptime_s + 3)
    run.kill("launcher")
    run.await_all_gone(SHORT_S)
    record = RecordedRun.open(run.directory)
    assert record.missing == ()
    last = record.document_at(1e9)
    assert last is not None
    assert last.end is None
    assert last.phase == "training"
    assert last.run.uptime_s >= uptime_s
    assert len(last.ranks) == 1
