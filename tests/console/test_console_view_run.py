"""Banner, header and window: which run, how far, how it is joined."""

import pytest
from console_documents import document, member, rank, run_state, training, view_of

from flodl_console.view.actions import ActionId, offer
from flodl_console.view.fold import fold
from flodl_console.view.header import header_lines, header_panel
from flodl_console.view.link import LinkLook, link_banner
from flodl_console.view.model import initial
from flodl_console.view.records import (
    ClockTicked,
    DocumentArrived,
    LinkChanged,
    LinkState,
    PagesChanged,
    PlaybackMoved,
    SourceKind,
)
from flodl_console.view.tones import Tone, text_of
from flodl_console.view.window import window_panel
from flodl_core.ids import ClusterPhase, RankPhase
from flodl_core.telemetry.state import (
    CheckpointState,
    JoinSettings,
    RefusalState,
    TrainingState,
)


def moved(**fields):
    usual = {"position_s": 3_720.0, "length_s": 28_920.0, "speed": 4.0, "is_paused": False}
    return PlaybackMoved(**(usual | fields))


def changed(state, *, detail="", retry_in_s=None, at_s=12.0):
    return LinkChanged(state=state, detail=detail, at_s=at_s, retry_in_s=retry_in_s)


def test_a_feed_without_an_answer_is_loading():
    banner = link_banner(view_of(None))
    assert (banner.look, banner.tone) == (LinkLook.LOADING, Tone.DIM)
    assert (banner.text, banner.short) == ("loading 127.0.0.1:1337", "loading 127.0.0.1:1337")
    assert (banner.age_s, banner.position, banner.is_current) == (None, None, False)


def test_a_live_run_is_named_and_says_if_it_can_only_be_read():
    assert link_banner(view_of(training())).text == "live 127.0.0.1:1337"
    banner = link_banner(view_of(training(), is_read_only=True))
    assert banner.short == "live 127.0.0.1:1337, read-only"
    assert banner.is_current


def test_a_silent_run_is_stale_with_its_age():
    banner = link_banner(fold(view_of(training()), ClockTicked(at_s=4.2)))
    assert (banner.look, banner.tone, banner.word) == (LinkLook.STALE, Tone.WARN, "stale")
    expected = "stale: no answer of 127.0.0.1:1337 for 4.2 s, what is shown is that old"
    assert banner.text == expected
    assert banner.short == "stale: shown is 4.2 s old"


def test_a_broken_road_tells_the_age_and_the_next_try():
    view = view_of(training())
    change = changed(LinkState.DISCONNECTED, detail="connection refused", retry_in_s=3.0)
    view = fold(fold(view, change), ClockTicked(at_s=13.0))
    banner = link_banner(view)
    assert (banner.look, banner.tone) == (LinkLook.DISCONNECTED, Tone.BAD)
    assert banner.text == ("disconnected: connection refused; shown is 13 s old; next try in 2.0 s")
    assert banner.short == "disconnected; shown is 13 s old; next try in 2.0 s"


def test_a_road_that_never_worked_shows_nothing_old():
    banner = link_banner(fold(view_of(None), changed(LinkState.DISCONNECTED, detail="no route")))
    assert banner.text == "disconnected: no route"


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        ("", "ended: the run is over, shown is its last word"),
        ("the port is closed", "ended: the port is closed"),
    ],
)
def test_an_ended_run_shows_its_last_word(detail, text):
    over = training(phase=ClusterPhase.DONE)
    banner = link_banner(fold(view_of(over), changed(LinkState.ENDED, detail=detail)))
    assert (banner.look, banner.text, banner.short) == (LinkLook.ENDED, text, "ended")


def test_what_keeps_the_past_away_is_told_of_a_run_that_is_live():
    view = fold(view_of(training()), PagesChanged(detail="red answered with status 500", at_s=1.0))
    banner = link_banner(fold(view, ClockTicked(at_s=2.0)))
    assert (banner.look, banner.tone, banner.is_quiet) == (LinkLook.LIVE, Tone.WARN, False)
    assert banner.text == "live, but its past cannot be read: red answered with status 500"
    again = link_banner(fold(view, PagesChanged(detail="", at_s=3.0)))
    assert (again.tone, again.is_quiet) == (Tone.OK, True)


def test_a_held_picture_says_so_and_how_old_it_is_beside_what_the_road_is_like():
    held = view_of(training())
    newer = fold(held, DocumentArrived(document=training(), at_s=192.0, size_bytes=1, took_ms=1.0))
    banner = link_banner(newer, held=held)
    assert (banner.look, banner.tone, banner.word) == (LinkLook.LIVE, Tone.WARN, "live")
    assert (banner.held, banner.age_s) == ("held, 3 m 12 s old", 192.0)
    assert (banner.is_current, banner.is_quiet) == (False, True)
    lost = fold(newer, changed(LinkState.DISCONNECTED, detail="no route", at_s=200.0))
    banner = link_banner(lost, held=held)
    assert (banner.look, banner.tone) == (LinkLook.DISCONNECTED, Tone.BAD)
    assert banner.text == "disconnected: no route; shown is 3 m 20 s old"
    silent = link_banner(fold(newer, ClockTicked(at_s=200.0)), held=held)
    assert silent.text == (
        "stale: no answer of 127.0.0.1:1337 for 8.0 s, what is shown is 3 m 20 s old"
    )


def test_the_end_of_a_run_is_told_although_an_older_picture_is_held():
    held = view_of(training())
    over = training(phase=ClusterPhase.DONE)
    ended = fold(held, DocumentArrived(document=over, at_s=9.0, size_bytes=1, took_ms=1.0))
    banner = link_banner(ended, held=held)
    assert banner.text == "live: the run has ended since then; Space shows it"
    assert (banner.is_quiet, banner.is_whole) == (False, True)
    assert link_banner(ended, held=ended).is_quiet
    gone = link_banner(fold(ended, changed(LinkState.ENDED, detail="exit 0")), held=held)
    assert gone.text == "ended: exit 0"


def test_before_anything_came_a_held_picture_has_no_age():
    assert link_banner(view_of(None), held=view_of(None)).held == "held"


def test_a_replay_says_where_it_stands():
    view = view_of(training(), kind=SourceKind.REPLAY)
    banner = link_banner(fold(view, moved()))
    assert banner.look is LinkLook.PLAYING
    assert banner.text == "playing ×4 1 h 02 m of 8 h 02 m, replay of 127.0.0.1:1337"
    assert banner.position == pytest.approx(3_720 / 28_920)
    paused = link_banner(fold(view_of(training(), kind=SourceKind.DEMO), moved(is_paused=True)))
    assert paused.short == "paused ×4 1 h 02 m of 8 h 02 m"
    assert "demo of" in paused.text


def test_a_record_of_no_length_stands_at_its_beginning():
    view = fold(view_of(training(), kind=SourceKind.REPLAY), moved(length_s=0.0))
    assert link_banner(view).position == 0.0


def test_a_replay_whose_record_cannot_be_read_says_why():
    view = fold(view_of(None, kind=SourceKind.REPLAY), moved())
    view = fold(view, changed(LinkState.DISCONNECTED, detail="no record"))
    assert link_banner(view).look is LinkLook.DISCONNECTED


def progress(**fields):
    usual = {
        "epoch": 2,
        "epochs": 10,
        "global_step": 400,
        "samples_done": 12_288,
        "samples_total": 29_952,
        "loss": 0.43124,
        "throughput": 1_234.0,
        "ideal_throughput": 1_542.5,
        "eta_s": 252.0,
        "metric": 0.981,
        "metric_name": "accuracy",
    }
    return TrainingState.model_validate(usual | fields)


def test_without_a_document_there_is_no_header():
    assert header_panel(initial()) is None


def test_the_header_tells_how_far_and_how_fast():
    panel = header_panel(view_of(training(training=progress())))
    assert panel is not None
    assert text_of(panel.title) == "● training  digits  cpu_cadence"
    assert panel.progress == pytest.approx(12_288 / 29_952)
    assert panel.progress_text == "41.0 %  12,288 / 29,952 samples"
    assert [field.text for field in panel.fields] == [
        "epoch 3/10",
        "41.0 %",
        "eta 4 m 12 s",
        "loss 0.4312",
        "accuracy 0.981",
        "1,234 samples/s",
        "80.0 % of ideal 1,542/s",
        "4 ranks, 2 hosts",
        "up 10 m 00 s",
    ]
    assert panel.mode_reason == "two hosts without a common NCCL"


def test_the_header_before_training_has_only_the_run():
    panel = header_panel(view_of(document(joined_ranks=1, report="a\tb")))
    assert panel is not None
    assert (panel.progress, panel.progress_text) == (None, "not training yet")
    assert [field.text for field in panel.fields] == ["1 rank, 0 hosts", "up 10 m 00 s"]
    assert panel.report == "a\\x09b"


def test_dropped_samples_lost_ranks_and_a_slow_run_are_warned_of():
    ranks = (rank(0), rank(1, state=RankPhase.LOST))
    shown = training(*ranks, training=progress(samples_dropped=1, throughput=500.0))
    panel = header_panel(view_of(shown))
    assert panel is not None
    fields = {field.key: field for field in panel.fields}
    assert (fields["dropped"].text, fields["dropped"].tone) == ("1 sample dropped", Tone.WARN)
    assert (fields["ranks"].text, fields["ranks"].tone) == ("1 of 2 ranks, 1 host", Tone.BAD)
    assert fields["ideal"].tone is Tone.WARN


def test_a_run_without_samples_or_an_ideal_has_no_progress():
    empty = progress(samples_total=0, ideal_throughput=None, metric=None)
    panel = header_panel(view_of(training(training=empty)))
    assert panel is not None
    assert panel.progress == 0.0
    assert {"ideal", "metric"}.isdisjoint(field.key for field in panel.fields)


def test_samples_beyond_any_float_are_no_progress_and_no_crash():
    far = view_of(training(training=progress(samples_done=10**400, samples_total=4)))
    panel = header_panel(far)
    assert panel is not None
    assert (panel.progress, panel.progress_text) == (None, "–  – / 4 samples")
    confirm = offer(far, ActionId.STOP_NOW).confirm
    assert confirm is not None
    assert "– is trained; 0 samples are not." in confirm.lines


@pytest.mark.parametrize(
    ("checkpoint", "text", "tone"),
    [
        (CheckpointState(saving=True), "saving …", Tone.ACCENT),
        (CheckpointState(path="/a", last_error="full"), "save failed", Tone.BAD),
        (CheckpointState(), "not saved yet", Tone.DIM),
        (CheckpointState(path="/a"), "saved", Tone.INFO),
        (
            CheckpointState(path="/a", version=40, at="2026-01-01T02:09:00Z", uptime_s=540.0),
            "saved v40 1 m 00 s ago",
            Tone.INFO,
        ),
        (
            CheckpointState(path="/a", version=40, at="2026-01-01T00:09:00Z"),
            "saved v40",
            Tone.INFO,
        ),
        (CheckpointState(path="/a", version=40, uptime_s=601.0), "saved v40", Tone.INFO),
    ],
)
def test_the_header_says_what_is_saved(checkpoint, text, tone):
    panel = header_panel(view_of(training(checkpoint=checkpoint)))
    assert panel is not None
    field = next(field for field in panel.fields if field.key == "saved")
    assert (field.text, field.tone) == (text, tone)


def test_header_fields_are_left_out_whole_by_their_priority():
    panel = header_panel(view_of(training(training=progress())))
    assert panel is not None
    assert [text_of(line) for line in header_lines(panel, 80, max_lines=1)] == [
        "epoch 3/10  41.0 %  eta 4 m 12 s  loss 0.4312  1,234 samples/s  4 ranks, 2 hosts"
    ]
    assert [text_of(line) for line in header_lines(panel, 80)] == [
        "epoch 3/10  41.0 %  eta 4 m 12 s  loss 0.4312  accuracy 0.981  1,234 samples/s",
        "80.0 % of ideal 1,542/s  4 ranks, 2 hosts  up 10 m 00 s",
    ]
    assert [text_of(line) for line in header_lines(panel, 13, max_lines=1)] == ["41.0 %"]
    assert header_lines(panel, 3) == ()


def test_a_run_without_a_name_goes_by_its_id():
    panel = header_panel(view_of(training(run=run_state(name=""))))
    assert panel is not None
    assert panel.name == "0123456789abcdef"


def window_of(**fields):
    panel = window_panel(view_of(document(**fields)))
    assert panel is not None
    return panel


def test_without_a_document_there_is_no_window():
    assert window_panel(initial()) is None


def test_an_open_window_counts_down_with_fractions():
    panel = window_of(
        joined_ranks=1,
        target_ranks=4,
        window_remaining_s=75.0,
        cap_remaining_s=375.0,
        join=JoinSettings(window_s=300.0, cap_s=600.0),
    )
    assert (panel.is_open, panel.phase) == (True, "waiting")
    assert (panel.window.text, panel.window.fraction_left) == ("closes in 1 m 15 s", 0.25)
    assert (panel.cap.text, panel.cap.fraction_left) == ("gives up in 6 m 15 s", 0.625)
    assert panel.quorum.text == "1 joined · quorum 2 · target 4"
    assert (panel.quorum.scale_ranks, panel.quorum.is_met, panel.quorum.tone) == (
        4,
        False,
        Tone.WARN,
    )
    assert panel.start_mode == "auto: the window closes by itself"
    assert text_of(panel.summary) == "○ 1 of 4 ranks in, needs 1 more to start; fails in 6 m 15 s"


def test_clocks_that_are_nearly_over_are_loud():
    panel = window_of(window_remaining_s=59.0, cap_remaining_s=30.0)
    assert (panel.window.tone, panel.cap.tone) == (Tone.WARN, Tone.BAD)
    assert (panel.window.fraction_left, panel.cap.fraction_left) == (None, None)


def test_a_window_whose_own_time_is_over_says_so():
    panel = window_of(joined_ranks=3, cap_remaining_s=100.0)
    assert panel.window.text == "over"
    assert panel.quorum.text == "3 joined · quorum 2 (met)"
    assert panel.quorum.tone is Tone.OK


def test_a_closed_window_keeps_its_roster():
    panel = window_panel(view_of(training()))
    assert panel is not None
    assert (panel.is_open, panel.window.text, panel.cap.text) == (False, "closed", "")
    assert panel.start_mode == ""
    assert panel.window.outcome == ""
    assert panel.headline == (
        "the window is closed with 4 ranks on 2 hosts: no host can join this run"
    )
    assert [row.host for row in panel.hosts] == ["red", "blue"]
    assert panel.join_line == ""


def test_the_window_of_a_manual_start_is_not_said_to_close():
    waiting = document(start_mode="manual", window_remaining_s=100.0, cap_remaining_s=400.0)
    panel = window_panel(view_of(waiting))
    assert panel is not None
    assert panel.window.text == "is over in 1 m 40 s"
    assert panel.window.outcome == "it stays open: the operator starts the run"


def test_hosts_show_their_ranks_devices_and_versions():
    host = member(
        "red",
        0,
        1,
        2,
        5,
        local_devices=("cuda:0", "cuda:1"),
        gpus=("H200", "H200", "A10"),
        torch_variant="2.8+cu128",
        nccl_version="2.27",
        joined_at_s=12.0,
    )
    row = window_of(members=(host,)).hosts[0]
    assert (row.ranks, row.devices) == ("0–2, 5", "cuda:0, cuda:1")
    assert (row.gpus, row.torch, row.nccl, row.joined) == (
        "2 × H200, A10",
        "2.8+cu128",
        "2.27",
        "after 12 s",
    )
    assert window_of(members=(member("blue", 0),)).hosts[0].nccl == ""


def test_missing_hosts_are_named():
    panel = window_of(expected_hosts=("blue", "green"))
    assert panel.expected == ("blue", "green")
    assert panel.expected_text == "not heard from: blue, green"
    assert window_of().expected_text == ""


def refusal(host, at):
    return RefusalState(host=host, address="10.0.0.9", reason="no devices", fix="add one", at=at)


def test_refusals_stand_newest_first_with_reason_and_fix():
    panel = window_of(
        refusals=3,
        recent_refusals=(
            refusal("gray", "2026-01-01T00:00:09Z"),
            refusal("white", "2026-01-01T00:00:33Z"),
        ),
    )
    assert [(row.host, row.when) for row in panel.refusals] == [
        ("white", "00:00:33"),
        ("gray", "00:00:09"),
    ]
    assert (panel.refusals[0].reason, panel.refusals[0].fix) == ("no devices", "add one")
    assert panel.refusals_text == "3 joins refused, the last 2 are shown"


def test_a_run_that_keeps_no_list_shows_its_last_refusal():
    panel = window_of(refusals=1, last_refusal="blank host")
    assert [row.reason for row in panel.refusals] == ["blank host"]
    assert panel.refusals_text == "1 join refused"
    assert window_of().refusals == ()


@pytest.mark.parametrize(
    ("is_open", "run_dir", "hint"),
    [
        (True, None, "no token is needed"),
        (False, None, "needs the run's token: --token-file, or FLODL_TOKEN"),
        (False, "/srv/a", "needs the run's token (/srv/a/token): --token-file, or FLODL_TOKEN"),
    ],
)
def test_the_join_line_says_what_it_needs_beside_it(is_open, run_dir, hint):
    line = "flodl join 10.0.0.1:1337 --job digits"
    panel = window_of(
        run=run_state(run_dir=run_dir),
        join=JoinSettings(window_s=300, cap_s=600, line=line, is_open=is_open),
    )
    assert (panel.join_line, panel.join_hint) == (line, hint)


def test_where_nobody_may_join_there_is_no_line():
    assert window_of(join=JoinSettings(window_s=300, cap_s=600)).join_line == ""


def test_an_unknown_start_mode_is_shown_as_it_is():
    assert window_of(start_mode="later").start_mode == "later"


def test_staging_is_told_as_such():
    panel = window_of(phase=ClusterPhase.STAGING, start_mode="hybrid", joined_ranks=2)
    assert (panel.phase, panel.phase_tone) == ("staging", Tone.ACCENT)
    assert panel.start_mode == "hybrid: the operator may start it early"
