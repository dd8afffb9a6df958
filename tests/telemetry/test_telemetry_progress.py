import json

from hypothesis import given, settings
from hypothesis import strategies as st
from telemetry_documents import (
    alert,
    bundle_state,
    document,
    epoch_state,
    in_training,
    member,
    rank_state,
    reduce_state,
    training,
    wait,
)

from flodl_core.cli.status_text import render_status
from flodl_core.telemetry.alerts import AlertBook
from flodl_core.telemetry.progress import (
    JsonProgress,
    PlainProgress,
    describe_cadence,
    describe_ranks,
    describe_training,
    describe_window,
)
from flodl_core.telemetry.state import ElcheState, EndState, StateDocument
from flodl_core.telemetry.summary import Unbounded, render_summary, summarize


def plain(*documents, **given_):
    lines = []
    progress = PlainProgress(lines.append, **given_)
    for one in documents:
        progress.update(one)
    return lines


def test_a_run_reads_as_a_story():
    lines = plain(
        document(at_s=0.0, window_remaining_s=300.0),
        document(at_s=1.0, joined_ranks=2, joined_hosts=1, members=(member(),)),
        in_training(3.0),
        in_training(40.0, epochs=(epoch_state(0, metric=1.9, metric_name="nats/char"),)),
    )
    assert lines == [
        "run      charlm 00112233445566aa on port 1337, cpu_sync (no rank has a GPU)",
        "phase    waiting",
        "waiting  0/4 ranks, window closes in 5m00s",
        "joined   red (127.0.0.1): ranks 0, 1 on cpu:0, cpu:1",
        "joined   blue (127.0.0.1): ranks 2, 3 on cpu:0, cpu:1",
        "phase    training: 4 ranks on 2 hosts",
        "train    epoch 1/3  step 40  640/6,000 samples  loss 2.5  412/s  eta 1m20s  sync 14.2 ms",
        *describe_ranks(in_training()),
        "epoch    1/3 done  loss 2.25  nats/char 1.9  2,000 samples  125 syncs  31s",
        "train    epoch 1/3  step 40  640/6,000 samples  loss 2.5  412/s  eta 1m20s  sync 14.2 ms",
        *describe_ranks(in_training()),
    ]


def test_who_does_how_many_batches_is_told_with_its_reason():
    elche = ElcheState(
        phase="stable",
        anchor=10,
        anchor_rank=2,
        batch_counts=(87, 88, 10),
        reason="averaging takes 1.8% of a window: the anchor stays at 10 batches of rank 2",
    )
    assert describe_cadence(in_training(elche=elche)) == [
        "cadence  stable  counts 87, 88, 10  averaging takes 1.8% of a window: "
        "the anchor stays at 10 batches of rank 2"
    ]
    lines = plain(in_training(0.0, elche=elche))
    assert lines[-1].startswith("cadence  stable  counts 87, 88, 10")
    many = elche.model_copy(update={"batch_counts": (7,) * 20, "reason": "x\x1b[2J"})
    (line,) = describe_cadence(in_training(elche=many))
    assert line.startswith("cadence  stable  counts " + "7, " * 15 + "7, …")
    assert "\x1b" not in line


def test_where_everybody_does_one_batch_nothing_is_told_of_counts():
    sync = ElcheState(phase="inapplicable", anchor=1, batch_counts=(1, 1))
    assert describe_cadence(in_training(elche=sync)) == []
    assert describe_cadence(in_training()) == []


def test_progress_comes_every_few_seconds_of_the_run():
    times = [0.0, 1.0, 4.9, 5.0, 9.0, 10.0, 10.1]
    lines = plain(*(in_training(at) for at in times))
    assert sum(line.startswith("train ") for line in lines) == 3


def test_trouble_is_told_with_who_where_how_long_and_what_next():
    lines = plain(
        in_training(0.0),
        in_training(
            1.0,
            alerts=(alert(count=2),),
            waits=(wait(12.0),),
            ranks=(rank_state(3, "lost"),),
            checkpoint=bundle_state(),
        ),
    )
    assert lines[-4:] == [
        "rank     rank 3 on blue is lost",
        "alert    critical rank_lost × 2 at root/blue/rank3: its process ended with signal 9",
        "wait     rank 3 on blue: reducing 12s/5m00s, then the run saves and stops",
        "saved    ck/consensus (version 10)",
    ]


def test_the_open_window_names_hosts_that_were_not_heard_from():
    open_ = document(joined_ranks=2, cap_remaining_s=90.0, expected_hosts=("blue", "green\n"))
    assert describe_window(open_) == (
        "waiting  2/4 ranks, gives up in 1m30s, not heard from: blue, green\\x0a"
    )


def test_the_window_of_a_manual_start_closes_only_by_hand():
    open_ = document(
        start_mode="manual", joined_ranks=2, window_remaining_s=9.0, cap_remaining_s=90.0
    )
    assert describe_window(open_) == "waiting  2/4 ranks, waits for flodl start, gives up in 1m30s"


def test_staging_says_what_it_waits_for():
    assert plain(document("staging"))[1].endswith("waiting for the operator (flodl start)")


def test_a_failure_names_its_reason():
    failed = document("failed", end=EndState(exit_code=3, reason="quorum not met: 1/2"))
    assert plain(failed)[-1] == "phase    failed: quorum not met: 1/2"


def test_a_document_without_training_has_a_line_too():
    assert describe_training(document("forming")) == "forming "


def test_every_line_of_the_json_form_is_an_object():
    lines = []
    progress = JsonProgress(lines.append)
    for at in (0.0, 0.5, 1.0, 1.2):
        progress.update(in_training(at, alerts=(alert(),)))
    progress.finish(summarize(in_training(2.0), exit_code=0, reason="finished"))
    rows = [json.loads(line) for line in lines]
    assert [row["event"] for row in rows] == [
        "run", "joined", "joined", "phase", "alert", "state", "state", "summary",
    ]  # fmt: skip
    assert StateDocument.model_validate(rows[5]["state"]) == in_training(0.0, alerts=(alert(),))
    assert rows[-1]["summary"]["exit_code"] == 0


def test_a_phase_change_brings_the_document_at_once():
    lines = []
    progress = JsonProgress(lines.append)
    progress.update(document(at_s=0.0))
    progress.update(in_training(0.1))
    assert [json.loads(line)["event"] for line in lines].count("state") == 2


@settings(deadline=None)
@given(st.text(max_size=30), st.text(max_size=30))
def test_no_peer_can_add_a_line_or_a_terminal_sequence(host, detail):
    shown = plain(
        document(at_s=0.0, members=(member(host),), last_refusal=detail, refusals=1),
        in_training(1.0, alerts=(alert(detail=detail, path=host),)),
        in_training(
            2.0,
            waits=(wait(9.0, host=host, outcome=detail),),
            ranks=(rank_state(0, "lost", host=host, device=detail),),
        ),
    )
    for line in shown:
        assert line.isprintable()
        assert len(line.splitlines()) == 1


def test_one_of_a_thing_is_not_many():
    lines = plain(
        document(at_s=1.0, joined_ranks=1, joined_hosts=1, members=(member(ranks=(0,)),)),
        in_training(3.0, ranks=(rank_state(batch_count=1),), training=training(samples_total=1)),
    )
    assert "joined   red (127.0.0.1): rank 0 on cpu:0" in lines
    assert any("640/1 sample  loss" in line for line in lines)
    assert any("1 batch  60 ms/batch" in line for line in lines)


def test_status_names_the_outer_optimizer_where_there_is_one():
    plainly = in_training(3.0, reduce=reduce_state())
    assert not [line for line in render_status(plainly) if line.startswith("outer")]
    outer = {"outer": "nesterov", "outer_lr": 0.7, "outer_momentum": 0.9}
    stepped = in_training(3.0, reduce=reduce_state(**outer))
    assert "outer    nesterov, rate 0.7, momentum 0.9" in render_status(stepped)


ODD = "C:\\run\x1b[31m"


def test_every_text_of_somebody_else_is_harmless_and_backslashes_stand_once():
    book = AlertBook()
    (record,) = book.raise_alert("rank_lost", "root", detail=ODD, now=1.0)
    shown = alert(detail=record.detail)
    last = in_training(
        5.0,
        alerts=(shown,),
        checkpoint=bundle_state().model_copy(update={"path": ODD}),
        waits=(wait(9.0, phase=ODD, outcome=ODD),),
        epochs=(epoch_state(0, metric=1.0, metric_name=ODD),),
    )
    last = last.model_copy(update={"run": last.run.model_copy(update={"run_dir": ODD})})
    summary = summarize(last, exit_code=1, reason=ODD, detail=ODD, beyond=Unbounded(sample_log=ODD))
    lines = [*plain(last), *render_summary(summary).split("\n"), *render_status(last)]
    told = "\n".join(lines)
    assert "\x1b" not in told
    assert told.count("C:\\run\\x1b[31m") >= 12
    assert "\\\\" not in told
