"""What a run remembers: numbers, causes, words, and nothing that a peer or a token may do."""

import json

import pytest

from flodl_core.coordinator.effects import Announce, RecordWindow
from flodl_core.ids import ClusterPhase, Cycle, HostName, Rank
from flodl_core.roles.causes import CauseBook
from flodl_core.roles.history import Happening, RunHistory
from flodl_core.roles.run_story import RunStory
from flodl_core.telemetry.alerts import AlertRecord
from flodl_core.telemetry.journal import Journal
from flodl_core.telemetry.recorder import RunRecorder
from flodl_core.telemetry.records import EventKind
from flodl_core.telemetry.state import RefusalState

TOKEN = "00112233445566778899aabbccddeeff"
HOST_OF = {0: "red", 1: "red", 2: "blue", 3: "blue"}


@pytest.fixture
def story(tmp_path):
    recorder = RunRecorder(Journal(tmp_path / "records", utc_iso=lambda: "2031-01-02T03:04:05Z"))
    return RunStory(RunHistory(recorder, secrets=(TOKEN, "feed" * 16)))


@pytest.fixture
def formed(story):
    story.set_world(lambda rank: (HostName(HOST_OF[rank]) if rank is not None else None, 2, 4))
    return story


def events(story):
    return json.loads(story.history.events.page(0))["records"]


def window(cycle=1, **given):
    return RecordWindow(
        **{
            "cycle": Cycle(cycle),
            "version": cycle,
            "outcome": "committed",
            "epoch": 0,
            "global_step": 12,
            "samples_done": 64,
            "samples_total": 6000,
            "loss": 2.123456789,
            "throughput": 400.0,
            "ideal_throughput": None,
            "window_ms": 512.25,
            "sync_ms": 14.5,
            "overhead": 0.03,
            "anchor": 10,
            "anchor_rank": Rank(1),
            "elche_phase": "stable",
            "verdict": "stable",
            "reason": "averaging takes 3% of a window",
            "batch_counts": (40, 10),
            "ms_per_batch": (1 / 3, None),
            "weights": (0.8, 0.2),
            "divergences": (0.01, float("nan")),
            **given,
        }
    )


def lost(rank, detail="rank 3 (cpu:1 on blue) was lost: signal 9"):
    return AlertRecord(
        severity="critical",
        alert_class="rank_lost",
        path=f"root/{HOST_OF[rank]}/rank{rank}",
        detail=detail,
        count=1,
        raised_at_s=0.0,
    )


# numbers, words, secrets


def test_events_are_numbered_and_say_when_who_and_where(formed):
    formed.asked(
        "evict", "operator at 10.0.0.7", "operator at 10.0.0.7 evicts rank 3", rank=Rank(3)
    )
    (event,) = events(formed)
    assert (event["seq"], event["kind"], event["name"]) == (1, "operator", "evict")
    assert (event["who"], event["rank"], event["host"]) == ("operator at 10.0.0.7", 3, "blue")
    assert event["path"] == "root/blue/rank3"
    assert event["uptime_s"] >= 0
    assert event["at"].startswith("20")


def test_no_text_holds_a_token_or_steers_a_terminal(story):
    name = HostName(f"evil\x1b[2J{TOKEN.upper()}\n")
    story.host_joined(name, "10.0.0.9:5", ("cpu:0",))
    story.history.tell(
        Happening(kind=EventKind.REFUSAL, name="x", text="feed" * 16, fix=f"use {TOKEN}")
    )
    text = json.dumps(events(story))
    assert TOKEN not in text.lower()
    assert "feedfeed" not in text
    assert "\\u001b" not in text
    assert "\x1b" not in json.loads(text)[0]["host"]
    assert "[hidden]" in text


def test_a_refusal_is_an_event_with_its_reason_and_fix(story):
    story.host_refused(
        RefusalState(
            host="blue", address="10.0.0.9:5", reason="another dataset", fix="copy it", at="x"
        )
    )
    (event,) = events(story)
    assert (event["kind"], event["name"], event["severity"]) == ("refusal", "host_refused", "warn")
    assert event["text"] == "blue at 10.0.0.9:5 was refused: another dataset"
    assert event["fix"] == "copy it"


def test_a_host_that_dials_on_after_a_refusal_is_one_event_with_a_count(story):
    for host in ("blue", "green", *["blue"] * 30):
        story.host_refused(
            RefusalState(host=host, address="10.0.0.9:5", reason="another dataset", at="x")
        )
    assert [(event["host"], event["count"]) for event in events(story)] == [
        ("blue", 1),
        ("green", 1),
    ]
    story.ended(3, "failed", "no world formed")
    assert [event["count"] for event in events(story)] == [1, 1, 30, 1]
    assert events(story)[2]["kind"] == "refusal"


def test_the_first_waiting_opens_the_window_and_later_phases_are_changes(story):
    for phase in (ClusterPhase.WAITING, ClusterPhase.STAGING, ClusterPhase.WAITING):
        story.phase_changed(phase, "because")
    assert [event["name"] for event in events(story)] == [
        "window_opened",
        "phase_changed",
        "phase_changed",
    ]
    assert events(story)[1]["text"] == "staging: because"


# causes


def test_ranks_of_a_host_that_is_gone_follow_from_its_loss(formed):
    formed.host_lost(HostName("blue"), "host blue is gone: its control link ended")
    formed.host_lost(HostName("blue"), "host blue is gone: the link of its relay ended")
    for rank in (2, 3):
        formed.alert(lost(rank), rank=Rank(rank))
    formed.alert(lost(0), rank=Rank(0))
    told = events(formed)
    assert [event["name"] for event in told] == ["host_lost", "rank_lost", "rank_lost", "rank_lost"]
    assert [event.get("cause_seq") for event in told] == [None, 1, 1, None]


def test_a_rank_that_was_evicted_follows_from_who_evicted_it(formed):
    formed.asked("evict", "operator at ::1", "operator at ::1 evicts rank 3", rank=Rank(3))
    formed.alert(lost(3), rank=Rank(3))
    assert events(formed)[1]["cause_seq"] == 1


def test_a_save_follows_from_the_checkpoint_that_was_asked_for_and_only_the_next(story):
    story.saved(1, "out/a")
    story.asked("checkpoint", "operator at ::1", "please")
    story.saved(2, "out/a")
    story.saved(3, "out/a")
    assert [event["cause_seq"] for event in events(story)] == [None, None, 2, None]


@pytest.mark.parametrize(
    ("before", "cause"),
    [
        ([], None),
        ([("stop", None), ("rank_lost", 1)], 1),
        ([("rank_lost", 1), ("rank_lost", 2)], 1),
        ([("host_lost", None), ("rank_lost", 2), ("all_ranks_lost", None)], 3),
        ([("rank_lost", 1), ("reduce_stall", None)], 2),
    ],
)
def test_the_end_follows_from_a_stop_or_from_the_first_fault(before, cause):
    book = CauseBook()
    for seq, (name, rank) in enumerate(before, start=1):
        host = "blue" if name == "host_lost" or rank == 2 else "red"
        book.note(name, seq, rank=rank, host=host)
    assert book.cause_of("run_ended", rank=None, host=None) == cause


def test_a_failure_by_losses_follows_from_the_root_of_the_first_loss():
    book = CauseBook()
    book.note("host_lost", 4, rank=None, host="blue")
    book.note("rank_lost", 5, rank=2, host="blue")
    assert book.cause_of("all_ranks_lost", rank=None, host=None) == 4


# windows, drains, folding, the end


def test_a_window_is_kept_with_six_digits_and_without_what_is_no_number(story):
    story.window(window())
    (kept,) = json.loads(story.history.windows.page(0))["records"]
    assert (kept["seq"], kept["cycle"], kept["loss"]) == (1, 1, 2.12346)
    assert kept["ms_per_batch"] == [0.333333, None]
    assert kept["divergences"] == [0.01, None]
    assert events(story) == []


def test_changes_of_the_cadence_are_events_with_their_reason(story):
    story.window(window(1))
    story.window(window(2, anchor=11, reason="the anchor grew from 10 to 11"))
    story.window(window(3, anchor=11, verdict="suppress growth: divergence rises"))
    story.window(window(4, anchor=11, verdict="suppress growth: divergence rises"))
    told = [(event["name"], event["severity"], event["text"]) for event in events(story)]
    assert told == [
        ("anchor_changed", "info", "the anchor grew from 10 to 11"),
        ("verdict_changed", "warn", "verdict: suppress growth: divergence rises"),
    ]


def test_what_comes_with_every_window_is_folded_and_counted_at_the_end(story):
    for cycle in range(1, 40):
        story.announced(
            Announce("window_cut", f"the window is cut in cycle {cycle}: rank 3 is late")
        )
    assert [event["count"] for event in events(story)] == [1]
    story.ended(0, "finished", "6000 samples trained")
    first, rest, end = events(story)
    assert (rest["name"], rest["count"]) == ("window_cut", 38)
    assert (end["name"], end["severity"]) == ("run_ended", "info")
    assert end["text"] == "exit code 0: finished: 6000 samples trained"
    assert first["severity"] == "info"


def test_a_drained_host_leaves_and_is_no_loss(formed):
    formed.asked("drain", "operator at ::1", "operator at ::1 drains blue", host="blue")
    formed.announced(Announce("host_drained", "host blue is drained", {"host": "blue"}))
    formed.host_dismissed(HostName("blue"))
    formed.host_lost(HostName("blue"), "host blue is gone")
    told = events(formed)
    assert [event["name"] for event in told] == ["drain", "host_drained", "host_left"]
    assert [event["severity"] for event in told] == ["info"] * 3
    assert [event["cause_seq"] for event in told] == [None, 1, 1]


def test_announcements_that_are_no_news_are_no_events(story):
    story.announced(Announce("some_detail", "of no use to anybody"))
    assert events(story) == []


def test_a_run_that_failed_ends_critically_and_names_its_cause(formed):
    formed.alert(lost(3), rank=Rank(3))
    formed.ended(1, "all_ranks_lost", "none of 4 ranks is left")
    end = events(formed)[-1]
    assert (end["severity"], end["cause_seq"]) == ("critical", 1)
