"""What is shown of a run that is not what it was: killed, cut short, with fewer ranks."""

from console_documents import document, event, rank, training, view_of

from flodl_console.view.ending import end_panel
from flodl_console.view.fold import fold
from flodl_console.view.header import header_panel
from flodl_console.view.link import LinkLook, link_banner
from flodl_console.view.records import LinkChanged, LinkState, PlaybackMoved, SourceKind
from flodl_console.view.tones import Glyph, Tone, text_of
from flodl_console.view.topology import topology_panel
from flodl_console.view.waits import run_verdict
from flodl_console.view.window import window_panel
from flodl_core.ids import ClusterPhase, RankPhase
from flodl_core.telemetry.state import CheckpointState, EndState, TrainingState

KILLED = "the launcher ended without a word: it was killed"


def at_its_end() -> PlaybackMoved:
    return PlaybackMoved(position_s=60.0, length_s=60.0, speed=1.0, is_paused=True)


def gone(shown):
    return fold(view_of(shown), LinkChanged(state=LinkState.ENDED, detail=KILLED, at_s=1.0))


def test_a_run_that_told_of_no_end_is_gone_and_the_reason_is_not_left_out():
    banner = link_banner(gone(training()))
    assert (banner.look, banner.word, banner.tone) == (LinkLook.GONE, "gone", Tone.BAD)
    assert (banner.text, banner.is_whole) == (f"gone: {KILLED}", True)


def test_a_run_whose_launcher_was_killed_is_never_said_to_go_on():
    lost = training(rank(0), rank(1, state=RankPhase.LOST, cause="SIGKILL"))
    found = run_verdict(gone(lost))
    assert (found.tone, found.glyph) == (Tone.BAD, Glyph.BAD)
    assert found.short == "the run is gone, nothing trains any more; nothing was saved"
    saved = lost.model_copy(update={"checkpoint": CheckpointState(path="out/line", version=7)})
    assert run_verdict(gone(saved)).short.endswith("; version 7 is saved")
    unnumbered = lost.model_copy(update={"checkpoint": CheckpointState(path="out/line")})
    assert run_verdict(gone(unnumbered)).short.endswith("; its last save remains")


def test_the_header_of_a_run_that_is_gone_or_cut_short_does_not_look_well():
    numbers = TrainingState(
        epoch=0,
        epochs=2,
        global_step=1,
        samples_done=10,
        samples_total=100,
        throughput=500.0,
        ideal_throughput=550.0,
        eta_s=90.0,
    )
    killed = gone(training(training=numbers))
    end = EndState(exit_code=4, reason="stopped", detail="")
    stopped = view_of(training(training=numbers, phase=ClusterPhase.DONE, end=end))
    for view, title in ((killed, "✗ gone"), (stopped, "■ stopped")):
        panel = header_panel(view)
        assert panel is not None
        assert text_of(panel.title).startswith(title)
        assert not {"eta", "rate", "ideal"} & {field.key for field in panel.fields}


def test_the_window_of_a_run_that_was_killed_is_not_open():
    waiting = document(window_remaining_s=100.0, cap_remaining_s=400.0)
    panel = window_panel(gone(waiting))
    assert panel is not None
    assert (panel.phase, panel.is_open, panel.window.text) == ("gone", False, "closed")
    assert panel.window.fraction_left is None


def test_a_replay_at_the_end_of_a_killed_runs_record_says_that_no_end_is_known():
    last = fold(view_of(training(), kind=SourceKind.REPLAY), at_its_end())
    banner = link_banner(last)
    assert "the record ends here and does not say how the run ended" in banner.text
    assert (banner.tone, banner.is_whole) == (Tone.WARN, True)
    over = training(phase=ClusterPhase.DONE)
    whole = fold(view_of(over, kind=SourceKind.REPLAY), at_its_end())
    assert not link_banner(whole).is_whole


def test_what_ended_a_run_is_said_once():
    end = EndState(exit_code=4, reason="stopped", detail="")
    saved = CheckpointState(path="out/line", version=7)
    over = training(phase=ClusterPhase.DONE, end=end, checkpoint=saved)
    assert run_verdict(view_of(over)).short == "stopped early and saved (exit code 4)"


def test_a_loss_before_a_good_end_is_not_called_its_cause():
    critical = event(1, severity="critical", text="rank 1 was lost")
    for code, label in ((0, "earlier"), (4, "earlier"), (1, "cause")):
        end = EndState(exit_code=code, reason="stopped", detail="")
        over = training(phase=ClusterPhase.DONE, end=end)
        panel = end_panel(view_of(over, events=(critical,)))
        assert (panel.cause_label, "rank 1 was lost" in panel.cause) == (label, True)


def test_a_speed_of_before_a_loss_is_not_a_part_of_todays_ideal():
    numbers = TrainingState(
        epoch=0,
        epochs=2,
        global_step=1,
        samples_done=10,
        samples_total=100,
        throughput=900.0,
        ideal_throughput=550.0,
    )
    panel = header_panel(view_of(training(training=numbers)))
    assert panel is not None
    assert {field.key: field.text for field in panel.fields}["ideal"] == "ideal now 550/s"


def test_the_tree_of_a_run_that_was_killed_shows_no_launcher_that_trains():
    root, *_ = topology_panel(gone(training())).lines
    assert (root.glyph, root.tone) == (Glyph.BAD, Tone.BAD)
    assert root.text.startswith("launcher  gone")
