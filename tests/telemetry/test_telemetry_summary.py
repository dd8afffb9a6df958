import json

import pytest
from telemetry_documents import (
    alert,
    bundle_state,
    document,
    epoch_state,
    in_training,
    rank_state,
    training,
)

from flodl_core.telemetry.quantities import (
    plural,
    show_age,
    show_bytes,
    show_count,
    show_duration,
    show_number,
    show_percent,
    show_rate,
)
from flodl_core.telemetry.summary import (
    RunSummary,
    Unbounded,
    render_summary,
    summarize,
    summary_json,
)


def finished(**given):
    return summarize(
        in_training(
            125.0,
            epochs=(epoch_state(0), epoch_state(1)),
            training=training(
                epoch=2, samples_done=5984, samples_dropped=16, metric=1.21, metric_name="nats/char"
            ),
            checkpoint=bundle_state(),
            alerts=(alert(), alert(count=2, at="later"), alert("drift")),
            report="The \\ old\n\tman\x1b[2J",
        ),
        **{"exit_code": 0, "reason": "finished", "beyond": Unbounded(samples_tail=8), **given},
    )


def test_the_summary_holds_samples_loss_eval_syncs_share_and_weight():
    summary = finished(beyond=Unbounded(samples_tail=8, sample_log="s.jsonl"))
    assert (summary.samples_trained, summary.samples_dropped, summary.samples_tail) == (5984, 16, 8)
    assert (summary.loss, summary.metric, summary.metric_name) == (2.5, 1.21, "nats/char")
    assert (summary.syncs, summary.global_step, summary.world_size) == (10, 40, 4)
    assert [(one.share, one.weight) for one in summary.ranks] == [(0.25, 0.25)] * 4
    assert summary.alerts == {"drift": 1, "rank_lost": 3}
    assert (summary.checkpoint, summary.sample_log) == ("ck/consensus", "s.jsonl")


def test_the_summary_reads_back_from_json():
    summary = finished()
    assert RunSummary.model_validate_json(summary_json(summary, indent=2)) == summary
    assert "\n" not in summary_json(summary)
    assert json.loads(summary_json(summary))["schema_version"] == 1


def test_people_read_it_as_a_table_and_the_ending_comes_last():
    assert render_summary(
        finished(beyond=Unbounded(samples_tail=8, sample_log="s.jsonl"))
    ).splitlines() == [
        "The model says:",
        "  The \\ old",
        "      man\\x1b[2J",
        "",
        "samples           5,984 trained (16 dropped, 8 left out as tail)",
        "loss              2.5",
        "eval (nats/char)  1.21",
        "syncs             10 in 2 epochs",
        "steps             40",
        "throughput        412 samples/s",
        "time              2m05s",
        "",
        "rank  host  device  batches  samples  share  last weight  ms/batch  state",
        "   0  red   cpu:0        10      160  25.0%        25.0%        60  training",
        "   1  red   cpu:1        10      160  25.0%        25.0%        60  training",
        "   2  blue  cpu:0        10      160  25.0%        25.0%        60  training",
        "   3  blue  cpu:1        10      160  25.0%        25.0%        60  training",
        "",
        "checkpoint     ck/consensus",
        "sample log     s.jsonl",
        "alerts         drift × 1, rank_lost × 3",
        "",
        "done: finished",
    ]


def test_a_failure_ends_with_its_cause_and_details():
    text = render_summary(
        finished(exit_code=1, reason="rank 3 lost\x07", detail="batch 2 raised\nValueError: no")
    )
    assert text.splitlines()[-3:] == [
        "failed: rank 3 lost\\x07",
        "  batch 2 raised",
        "  ValueError: no",
    ]


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "done"),
        (1, "failed"),
        (2, "not started"),
        (3, "no world formed"),
        (4, "stopped early and saved"),
        (5, "trained but not saved"),
        (130, "interrupted and saved"),
        (77, "ended with 77"),
    ],
)
def test_every_exit_code_has_words(code, words):
    assert render_summary(finished(exit_code=code)).splitlines()[-1] == f"{words}: finished"


def test_a_run_that_never_trained_has_a_summary_too():
    summary = summarize(document("failed", 600.0), exit_code=3, reason="quorum not met: 1/2")
    lines = render_summary(summary).splitlines()
    assert lines[0].split() == ["samples", "0", "trained"]
    assert lines[-1] == "no world formed: quorum not met: 1/2"


def test_the_table_fits_eighty_columns():
    ranks = tuple(
        rank_state(i, host="a-rather-long-host-name", batch_count=123_456, samples=9_999_999)
        for i in range(3)
    )
    summary = summarize(in_training(ranks=ranks), exit_code=0, reason="finished")
    table = [line for line in render_summary(summary).splitlines() if "cpu:" in line]
    assert table
    assert all(len(line) <= 90 for line in table)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"), (-1, "0s"), (0, "0.0s"), (9.94, "9.9s"), (9.96, "10s"), (59.4, "59s"),
        (59.6, "1m00s"), (185, "3m05s"), (3599.6, "1h00m"), (7620, "2h07m"),
    ],
)  # fmt: skip
def test_durations_read_as_people_say_them(seconds, shown):
    assert show_duration(seconds) == shown


def test_numbers_read_as_people_write_them():
    assert [show_number(x) for x in (None, 0, 1.23456, 123456.0, 1e-7)] == [
        "–", "0", "1.235", "123,456", "1e-07",
    ]  # fmt: skip
    assert [show_rate(x) for x in (None, 0.5, 12.34, 1234.5)] == ["–", "0.5", "12.3", "1,234"]
    assert [show_bytes(x) for x in (None, 12, 2048, 4 << 20)] == ["–", "12 B", "2 KiB", "4 MiB"]
    assert (show_percent(None), show_percent(0.125)) == ("–", "12.5%")
    assert (show_count(None), show_count(12345)) == ("–", "12,345")
    assert (show_age(1.0, None), show_age(1.0, 30.0)) == ("1.0s", "1.0s/30s")
    assert (plural(1, "rank"), plural(0, "rank"), plural(2, "rank")) == (
        "1 rank", "0 ranks", "2 ranks",
    )  # fmt: skip


def test_long_runs_are_summed_up_whole():
    epochs = tuple(epoch_state(number) for number in range(300))
    shown = in_training(9.0, epochs=epochs[-100:], alerts=(alert("nonfinite", count=50),))
    whole = summarize(
        shown,
        exit_code=0,
        reason="finished",
        beyond=Unbounded(epochs=epochs, alerts={"rank_lost": 1, "nonfinite": 60}),
    )
    assert [one.epoch for one in whole.epochs] == list(range(300))
    assert whole.alerts == {"nonfinite": 60, "rank_lost": 1}
    watched = summarize(shown, exit_code=0, reason="finished")
    for summary in (whole, watched):
        assert "in 300 epochs" in render_summary(summary)
