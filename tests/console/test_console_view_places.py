"""One rank in full, and the tree of launcher, hosts, relays and ranks."""

import pytest
from console_documents import document, event, member, rank, run_state, training, view_of, window

from flodl_console.view.marks import RankMark
from flodl_console.view.model import initial
from flodl_console.view.rank_detail import rank_detail
from flodl_console.view.tones import Glyph, Tone
from flodl_console.view.topology import NodeKind, topology_panel
from flodl_core.ids import RankPhase
from flodl_core.telemetry.state import ElcheState, ResourceState, WaitState


def rows_of(detail, title):
    group = next(group for group in detail.groups if group.title == title)
    return {row.label: row.text for row in group.rows}


def test_a_rank_is_shown_in_full():
    resources = ResourceState(
        cpu_percent=101.0,
        ram_used_bytes=2**31,
        gpu_percent=97.0,
        vram_used_bytes=2**33,
        vram_total_bytes=2**34,
    )
    shown = rank(
        1,
        "blue",
        gpu="NVIDIA H200",
        planned_batches=60,
        steps_in_window=12,
        batch_count=1_200,
        samples=38_400,
        share=0.412,
        weight=0.4,
        divergence=0.0123,
        throughput=512.0,
        loss=0.43,
        phase="training",
        resources=resources,
    )
    elche = ElcheState(phase="stable", anchor=10, anchor_rank=1, batch_counts=(10, 10))
    detail = rank_detail(view_of(training(rank(0), shown, rank(4), elche=elche)), 1)
    assert detail.is_found
    assert detail.title == "rank 1 on blue, cuda:1"
    assert (detail.state, detail.meaning) == ("training", "it does batches")
    assert (detail.tone, detail.glyph, detail.mark) == (Tone.OK, Glyph.RUNNING, RankMark.NONE)
    assert (detail.previous_rank, detail.next_rank) == (0, 4)
    assert rows_of(detail, "Work") == {
        "this window": "12/60 batches",
        "next window": "10 batches, the anchor",
        "ms/batch": "5.00 ms",
        "samples/s": "512",
        "all batches": "1,200",
        "trained": "38,400 samples",
        "share": "41.2 % of all trained",
        "loss": "0.43",
    }
    assert rows_of(detail, "Averaging") == {
        "weight": "40.0 %",
        "divergence": "0.0123",
        "phase": "training",
    }
    assert rows_of(detail, "Device") == {
        "device": "cuda:1",
        "card": "NVIDIA H200",
        "card use": "97 %",
        "card memory": "8/16 GiB",
        "CPU": "101 %",
        "RAM": "2 GiB",
    }


def test_a_rank_of_which_little_is_known_has_dashes():
    shown = rank(0, ms_per_batch=None, throttled=True, cause="evicted", progress_ceiling_s=None)
    detail = rank_detail(view_of(training(shown)), 0)
    work = rows_of(detail, "Work")
    assert (work["next window"], work["ms/batch"]) == ("–", "–")
    assert work["throttled"] == "yes: no other batch in this window"
    assert work["cause"] == "evicted"
    assert rows_of(detail, "Device") == {"device": "cuda:0"}
    assert rows_of(detail, "Averaging")["phase"] == "–"
    assert (detail.previous_rank, detail.next_rank) == (None, None)
    assert detail.progress.outcome == "it holds no work"
    assert detail.progress.tone is Tone.DIM


def test_a_lost_rank_is_not_said_to_be_lost_later_or_to_train_on():
    shown = rank(1, state=RankPhase.LOST, cause="SIGKILL", throughput=200.0, heartbeat_age_s=None)
    elche = ElcheState(phase="stable", anchor=10, anchor_rank=0, batch_counts=(10, 0))
    detail = rank_detail(view_of(training(rank(0), shown, elche=elche)), 1)
    outcomes = {detail.heartbeat.outcome, detail.progress.outcome}
    assert outcomes == {"it is waited for no more"}
    work = rows_of(detail, "Work")
    assert (work["samples/s"], work["next window"]) == ("–", "–")
    assert "SIGKILL" in detail.note
    assert "cause" not in work


@pytest.mark.parametrize(("age_s", "tone"), [(1.0, Tone.OK), (9.0, Tone.WARN), (16.0, Tone.BAD)])
def test_both_signals_are_gauges_with_what_follows(age_s, tone):
    shown = rank(0, heartbeat_age_s=age_s, progress_age_s=age_s * 10, progress_ceiling_s=300.0)
    detail = rank_detail(view_of(training(shown)), 0)
    assert detail.heartbeat.text == f"{age_s:.1f} / 30 s"
    assert detail.heartbeat.fraction == pytest.approx(age_s / 30.0)
    assert (detail.heartbeat.tone, detail.progress.tone) == (tone, tone)
    assert detail.progress.outcome == "then it is evicted"


def test_a_ranks_waits_and_events_are_its_own():
    wait = WaitState(
        rank=1, host="red", phase="in a batch", age_s=9.0, ceiling_s=300, outcome="it is evicted"
    )
    events = tuple(event(seq, rank=seq % 2) for seq in range(1, 110))
    detail = rank_detail(view_of(training(waits=(wait,)), events=events), 1)
    assert [row.rank for row in detail.waits] == [1]
    assert len(detail.events) == 50
    assert (detail.events[0].seq, detail.events[-1].seq) == (109, 11)
    assert rank_detail(view_of(training(waits=(wait,))), 0).waits == ()


def test_a_ranks_past_is_a_trend_with_gaps():
    windows = (
        window(1, ms_per_batch=(5.0, 9.0), batch_counts=(60, 10), weights=(0.8, None)),
        window(2, ms_per_batch=(5.0,)),
        window(3, ms_per_batch=(5.0, 7.0), batch_counts=(60, 12), weights=(0.8, 0.25)),
    )
    trends = {
        trend.label: trend for trend in rank_detail(view_of(training(), windows=windows), 1).trends
    }
    speed = trends["ms/batch"]
    assert (speed.values, speed.last, speed.span) == (
        (9.0, None, 7.0),
        "7.00",
        "7.00 to 9.00",
    )
    assert (trends["batches"].last, trends["weight"].last) == ("12", "25.0 %")
    empty = trends["divergence"]
    assert (empty.values, empty.last, empty.span) == ((None, None, None), "–", "–")


@pytest.mark.parametrize(
    ("shown", "why", "neighbours"),
    [
        (None, "there are no ranks yet", (None, None)),
        (document(), "there are no ranks yet", (None, None)),
        (training(), "the run has no such rank", (3, None)),
    ],
)
def test_a_rank_that_does_not_exist_is_not_found(shown, why, neighbours):
    detail = rank_detail(view_of(shown, events=(event(1, rank=9),)), 9)
    assert not detail.is_found
    assert (detail.title, detail.meaning) == ("rank 9", why)
    assert (detail.previous_rank, detail.next_rank) == neighbours
    assert [row.seq for row in detail.events] == [1]


def tree(shown):
    return [
        f"{line.guides}{line.glyph} {line.text}" for line in topology_panel(view_of(shown)).lines
    ]


def test_without_a_document_there_is_no_tree():
    panel = topology_panel(initial())
    assert (panel.lines, panel.empty_text) == ((), "no document has come yet")


def test_the_launchers_own_host_needs_no_relay_and_others_do():
    ranks = (
        rank(0, planned_batches=60, steps_in_window=12),
        rank(1, "blue", state=RankPhase.LOST, cause="SIGKILL"),
        rank(2, "blue", device="cuda:0"),
    )
    shown = training(
        *ranks,
        run=run_state(port=1337, pid=99),
        members=(
            member("red", 0, address="127.0.0.1:50000", gpus=("H200",)),
            member("blue", 1, 2, address="10.0.0.5:50001"),
        ),
        expected_hosts=("green",),
    )
    assert tree(shown) == [
        "● launcher  training, port 1337, pid 99",
        "├─ ✓ host red  127.0.0.1:50000  1 rank  1 × H200",
        "│  └─ ● rank 0  cuda:0  training  12/60 batches, heard 0.4 / 30 s",
        "├─ ▲ host blue  10.0.0.5:50001  1 of 2 ranks",
        "│  └─ ▲ relay  folds what its ranks average",
        "│     ├─ ✗ rank 1  cuda:1  lost  SIGKILL",
        "│     └─ ● rank 2  cuda:0  training  0 batches, heard 0.4 / 30 s",
        "└─ ○ host green  not heard from",
    ]
    panel = topology_panel(view_of(shown))
    assert panel.summary == "2 hosts · 3 ranks · 1 lost · 1 host not heard from"
    assert [line.key for line in panel.lines] == [
        "root",
        "host/red",
        "rank/0",
        "host/blue",
        "relay/blue",
        "rank/1",
        "rank/2",
        "expected/green",
    ]
    assert [line.kind for line in panel.lines if line.rank is None] == [
        NodeKind.LAUNCHER,
        NodeKind.HOST,
        NodeKind.HOST,
        NodeKind.RELAY,
        NodeKind.EXPECTED,
    ]


def test_a_host_of_which_all_is_lost_is_bad_and_its_relay_gone():
    ranks = (rank(0), rank(1, "blue", state=RankPhase.LOST))
    shown = training(*ranks, members=(member("red", 0, address="[::1]:5"),))
    lines = tree(shown)
    assert "├─ ✓ host red  [::1]:5  1 rank" in lines
    assert "└─ ✗ host blue  0 of 1 rank" in lines
    assert "   └─ ✗ relay  gone" in lines


@pytest.mark.parametrize("address", ["10.0.0.9:1", "::2", "", "[fe80::1]:4"])
def test_a_first_host_from_elsewhere_has_a_relay(address):
    shown = training(rank(0), members=(member("red", 0, address=address),))
    assert any("relay" in line for line in tree(shown))


def test_before_ranks_exist_hosts_show_their_numbers():
    shown = document(members=(member("red", 0, 1, 3),), joined_ranks=3, joined_hosts=1)
    assert tree(shown) == [
        "○ launcher  waiting",
        "└─ ✓ host red  10.0.0.5  ranks 0–1, 3",
    ]
    assert topology_panel(view_of(shown)).summary == "1 host · 3 ranks"
