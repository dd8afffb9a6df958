"""The verdict: what phase, who is missing, who is slow, what every wait ends in."""

import pytest
from console_documents import document, event, rank, run_state, training, view_of, window

from flodl_console.view.ending import end_panel
from flodl_console.view.fold import fold
from flodl_console.view.outlook import window_outlook
from flodl_console.view.records import ClockTicked, LinkChanged, LinkState, SourceKind
from flodl_console.view.tones import Glyph, Tone, text_of
from flodl_console.view.waits import run_verdict
from flodl_core.ids import ClusterPhase, RankPhase
from flodl_core.telemetry.records import EventKind
from flodl_core.telemetry.state import (
    AlertState,
    CheckpointState,
    EndState,
    ReduceState,
    TrainingState,
    WaitState,
)

SILENT = WaitState(
    rank=2,
    host="blue",
    phase="silent, last seen training",
    age_s=12.1,
    ceiling_s=30.0,
    outcome="it is lost",
)


def verdict(shown, **parts):
    return run_verdict(view_of(shown, **parts))


def waiting(**fields):
    usual = {
        "joined_ranks": 2,
        "joined_hosts": 1,
        "min_rank_start": 3,
        "target_ranks": 4,
        "window_remaining_s": 252.0,
        "cap_remaining_s": 552.0,
        "expected_hosts": ("blue", "green"),
    }
    return document(**(usual | fields))


def test_before_anything_is_known_it_says_where_it_waits():
    found = run_verdict(view_of(None))
    assert (found.tone, found.short) == (
        Tone.DIM,
        "nothing is known yet from 127.0.0.1:1337",
    )
    assert found.waits == ()


def test_without_an_address_it_still_says_that_nothing_is_known():
    from flodl_console.view.model import initial

    assert run_verdict(initial()).short == "nothing is known yet"


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        ("connection refused", "nothing is known of the run: connection refused"),
        ("", "nothing is known of the run"),
    ],
)
def test_a_run_that_never_answered_is_bad(detail, text):
    change = LinkChanged(state=LinkState.DISCONNECTED, detail=detail, at_s=1.0)
    found = run_verdict(fold(view_of(None), change))
    assert (found.tone, found.text) == (Tone.BAD, text)


def test_an_open_window_says_who_is_missing_and_when_it_fails():
    found = verdict(waiting())
    assert found.tone is Tone.INFO
    assert found.short == "2 of 4 ranks in, needs 1 more, missing blue, green; fails in 9 m 12 s"
    assert found.text == (
        "2 of 4 ranks in, needs 1 more to start; the window closes in 4 m 12 s, then it waits on "
        "and fails in 9 m 12 s; not heard from: blue, green"
    )
    assert found.missing == ("host blue", "host green")


@pytest.mark.parametrize(
    ("fields", "short", "tone"),
    [
        (
            {"expected_hosts": (), "window_remaining_s": None},
            "2 of 4 ranks in, needs 1 more to start; fails in 9 m 12 s",
            Tone.WARN,
        ),
        (
            {"cap_remaining_s": 59.0, "expected_hosts": ()},
            "2 of 4 ranks in, needs 1 more to start; fails in 59 s",
            Tone.BAD,
        ),
        (
            {"refusals": 1, "expected_hosts": ()},
            "2 of 4 ranks in, needs 1 more to start; fails in 9 m 12 s",
            Tone.WARN,
        ),
        (
            {"joined_ranks": 3},
            "3 of 4 ranks in, quorum 3 is met: starts in 4 m 12 s, at once with 4",
            Tone.INFO,
        ),
        (
            {"joined_ranks": 3, "target_ranks": None},
            "3 of 3 ranks in, quorum 3 is met: starts in 4 m 12 s",
            Tone.INFO,
        ),
        (
            {"joined_ranks": 5, "target_ranks": None, "window_remaining_s": None},
            "5 ranks in, quorum 3 is met: is starting",
            Tone.INFO,
        ),
        (
            {"joined_ranks": 4},
            "4 of 4 ranks in, quorum 3 is met: is starting",
            Tone.INFO,
        ),
        (
            {"joined_ranks": 3, "start_mode": "manual", "target_ranks": None},
            "3 of 3 ranks in: waits for your start, fails in 9 m 12 s without it",
            Tone.ACCENT,
        ),
        (
            {"joined_ranks": 3, "start_mode": "manual", "cap_remaining_s": 30.0},
            "3 of 4 ranks in: waits for your start, fails in 30 s without it",
            Tone.BAD,
        ),
        (
            {"joined_ranks": 3, "start_mode": "hybrid"},
            "3 of 4 ranks in: waits for your start, starts by itself in 4 m 12 s",
            Tone.ACCENT,
        ),
        (
            {"joined_ranks": 3, "start_mode": "hybrid", "window_remaining_s": None},
            "3 of 4 ranks in: waits for your start, is starting",
            Tone.ACCENT,
        ),
        (
            {"joined_ranks": 3, "start_mode": "manual", "start_armed": True},
            "3 of 4 ranks in: the start was asked for, the window closes",
            Tone.INFO,
        ),
        (
            {"start_mode": "manual", "expected_hosts": ()},
            "2 of 4 ranks in, needs 1 more to start; fails in 9 m 12 s",
            Tone.INFO,
        ),
    ],
)
def test_the_window_of_each_start_mode_tells_how_it_ends(fields, short, tone):
    found = verdict(waiting(**fields))
    assert (found.short, found.tone) == (short, tone)


@pytest.mark.parametrize(
    ("mode", "joined", "window", "cap"),
    [
        (
            "auto",
            2,
            "1 rank short, it waits on and starts when they are in",
            "the run fails: no quorum",
        ),
        ("auto", 3, "the run starts with 3 ranks", "the run starts with 3 ranks"),
        ("hybrid", 3, "the run starts with 3 ranks", "the run starts with 3 ranks"),
        (
            "manual",
            3,
            "it stays open: the operator starts the run",
            "the run fails: nobody started it",
        ),
        ("manual", 2, "it stays open: the operator starts the run", "the run fails: no quorum"),
    ],
)
def test_each_clock_of_the_window_says_what_happens_at_its_end(mode, joined, window, cap):
    outlook = window_outlook(waiting(start_mode=mode, joined_ranks=joined))
    assert (outlook.window_outcome, outlook.cap_outcome) == (window, cap)


def test_a_forming_world_says_what_it_waits_for():
    shown = training(phase=ClusterPhase.FORMING)
    assert verdict(shown).short == "forming: 4 ranks on 2 hosts start and meet"
    wait = WaitState(
        phase="not met: ranks 2, 3", age_s=1.0, ceiling_s=300.0, outcome="the run fails"
    )
    slow = rank(0, ms_per_batch=9_000.0)
    held = WaitState(
        rank=0, phase="not met: ranks 2, 3", age_s=12.0, ceiling_s=300.0, outcome="the run fails"
    )
    found = verdict(training(slow, phase=ClusterPhase.FORMING, waits=(held,)))
    assert found.short == "forming: not met: ranks 2, 3, 12.0 / 300 s"
    assert found.text.endswith("not met: ranks 2, 3, 12.0 / 300 s, then the run fails")
    warned = verdict(training(phase=ClusterPhase.FORMING, waits=(wait,)))
    assert warned.short == "the run: not met: ranks 2, 3, 1.0 / 300 s → the run fails"


def test_a_run_in_which_all_is_well_says_so():
    found = verdict(training())
    assert (found.tone, found.glyph) == (Tone.OK, Glyph.OK)
    assert found.short == "all 4 ranks on 2 hosts train; nobody is missing, late or slow"
    assert text_of(found.line) == f"✓ {found.short}"
    assert (found.missing, found.slow, found.rank) == ((), (), None)
    assert verdict(training(rank(0))).short.startswith("all 1 rank on 1 host trains;")


def test_a_checkpoint_that_is_written_is_told():
    found = verdict(training(checkpoint=CheckpointState(saving=True)))
    assert found.short == "all 4 ranks on 2 hosts train, a checkpoint is being written"
    assert found.text.endswith("; nobody is missing, late or slow")


def test_ranks_that_are_done_are_not_missing():
    done = [rank(number, state=RankPhase.DONE) for number in (1, 2)]
    found = verdict(training(rank(0), *done))
    assert found.short == "ending: 2 of 3 ranks are done; nobody is missing, late or slow"


def test_ranks_that_start_are_neither_missing_nor_training():
    ranks = (rank(0), rank(1, state=RankPhase.JOINING), rank(2, state=RankPhase.SPAWNING))
    found = verdict(training(*ranks))
    assert (found.tone, found.short) == (Tone.INFO, "starting: 1 of 3 ranks are there")


@pytest.mark.parametrize(
    ("age_s", "tone"), [(29.0, Tone.INFO), (30.0, Tone.WARN), (60.0, Tone.BAD)]
)
def test_a_start_is_given_a_quarter_of_its_ceiling_before_it_warns(age_s, tone):
    wait = WaitState(
        phase="never heard from: ranks 1", age_s=age_s, ceiling_s=120.0, outcome="the run fails"
    )
    ranks = (rank(0), rank(1, state=RankPhase.SPAWNING))
    found = verdict(training(*ranks, waits=(wait,)))
    assert found.tone is tone
    assert found.short.endswith(f"{age_s:.1f} / 120 s → the run fails")


def test_a_silent_rank_is_named_with_its_ceiling_and_what_follows():
    ranks = (rank(0), rank(1), rank(2, "blue", heartbeat_age_s=12.1))
    found = verdict(training(*ranks, waits=(SILENT,)))
    assert (found.tone, found.rank) == (Tone.WARN, 2)
    assert found.short == "rank 2 on blue: silent, last seen training, 12.1 / 30 s → it is lost"
    assert found.text == (
        "rank 2 on blue: silent, last seen training, 12.1 / 30 s, then it is lost and 2 ranks go on"
    )


def test_the_wait_that_ends_next_comes_first_and_the_others_are_counted():
    later = SILENT.model_copy(update={"rank": 1, "host": "red", "age_s": 6.0})
    found = verdict(training(waits=(later, SILENT)))
    assert [row.rank for row in found.waits] == [2, 1]
    assert found.text.endswith("and 3 ranks go on  (+1 wait)")
    assert found.waits[0].remaining_s == pytest.approx(17.9)
    assert found.waits[0].fraction == pytest.approx(12.1 / 30.0)


def test_a_wait_past_half_of_its_ceiling_is_bad():
    late = SILENT.model_copy(update={"age_s": 15.0})
    assert verdict(training(waits=(late,))).tone is Tone.BAD


def test_a_wait_without_a_ceiling_comes_last_and_never_ends():
    endless = WaitState(phase="reading", age_s=9.0, outcome="nothing")
    found = verdict(training(waits=(endless, SILENT)))
    assert [row.remaining_s is None for row in found.waits] == [False, True]
    assert found.waits[1].age == "9.0 s"


def test_a_long_batch_that_is_usual_is_no_reason_to_warn():
    ranks = (rank(0, ms_per_batch=8_000.0), rank(1))
    wait = WaitState(
        rank=0, phase="in a batch", age_s=9.0, ceiling_s=300.0, outcome="it is evicted"
    )
    found = verdict(training(*ranks, waits=(wait,)))
    assert (found.tone, found.rank) == (Tone.INFO, 0)
    assert found.short == "rank 0 on red: in a batch, 9.0 / 300 s → it is evicted"


def test_a_stalled_average_names_who_it_waits_for():
    states = (RankPhase.HELD, RankPhase.HELD, RankPhase.REDUCING, RankPhase.HELD)
    ranks = [rank(number, "blue", state=state) for number, state in enumerate(states)]
    wait = WaitState(
        phase="cycle 22 is reducing; not acknowledged by ranks: 2",
        age_s=174.0,
        ceiling_s=300.0,
        outcome="the last commit is saved and the run ends",
    )
    reduce = ReduceState(
        state="pending", backend="cpu", cycle=22, version=21, pending_s=174, stall_ceiling_s=300
    )
    found = verdict(training(*ranks, waits=(wait,), reduce=reduce))
    assert (found.tone, found.rank) == (Tone.BAD, 2)
    assert found.short == "averaging waits for rank 2 on blue, 174 / 300 s → save and end"
    assert found.text.endswith("174 / 300 s, then the last commit is saved and the run ends")


def test_a_wait_that_names_no_host_takes_it_from_the_ranks():
    wait = WaitState(
        rank=0,
        phase="writing the save of version 37",
        age_s=13.9,
        ceiling_s=300.0,
        outcome="the run ends with what is saved",
    )
    found = verdict(training(waits=(wait,)))
    assert found.short == (
        "rank 0 on red: writing the save of version 37, 13.9 / 300 s → the run ends"
    )


def test_a_slow_rank_is_named_with_how_much_and_what_follows():
    history = tuple(window(seq, ms_per_batch=(5.0, 5.0, 5.0)) for seq in range(1, 21))
    ranks = (rank(0), rank(1, ms_per_batch=11.0), rank(2, "blue", ms_per_batch=50.0))
    found = verdict(training(*ranks), windows=history)
    assert (found.tone, found.rank) == (Tone.WARN, 2)
    assert found.short == "rank 2 on blue is slow: ×10 the usual 5.00 ms (+1 slow)"
    assert found.text == f"{found.short}; its share shrinks until it keeps up"
    assert found.slow == ("rank 1 on red: ×2.2", "rank 2 on blue: ×10")


def test_a_late_rank_is_told_before_slow_ones_and_with_earlier_losses():
    ranks = (
        rank(0, heartbeat_age_s=8.0),
        rank(1, state=RankPhase.LOST),
        rank(2, heartbeat_age_s=9.0),
    )
    found = verdict(training(*ranks))
    assert found.short == "rank 0 on red is late: silent 8.0 s of 30 s (+1 late)"
    assert found.text == f"{found.short}; 1 rank lost before"
    assert found.missing == ("rank 1 on red",)


def test_lost_ranks_stay_named_with_their_cause():
    ranks = (
        rank(0),
        rank(1),
        rank(2, "blue", state=RankPhase.LOST, cause="its process ended with SIGKILL"),
    )
    found = verdict(training(*ranks))
    assert (found.tone, found.rank) == (Tone.WARN, 2)
    assert found.short == "2 of 3 ranks go on; lost: rank 2 on blue"
    assert found.text == (
        f"{found.short}; their samples go to the others; its process ended with SIGKILL"
    )


def test_where_no_rank_is_left_the_run_ends():
    found = verdict(training(rank(0, state=RankPhase.LOST), rank(1, state=RankPhase.DONE)))
    assert found.tone is Tone.BAD
    assert found.text == "0 of 2 ranks go on; lost: rank 0 on red; the run ends"
    one = verdict(training(rank(0), rank(1, state=RankPhase.LOST)))
    assert one.short.startswith("1 of 2 ranks goes on;")


def alert(**fields):
    usual = {
        "severity": "warn",
        "alert_class": "nonfinite",
        "path": "root/red/rank1",
        "detail": "rank 1 is not finite in cycle 39",
        "at": "2026-01-01T02:09:48Z",
        "uptime_s": 588.0,
    }
    return AlertState.model_validate(usual | fields)


def test_a_young_alert_is_part_of_the_verdict():
    found = verdict(training(alerts=(alert(count=3),)))
    assert found.tone is Tone.WARN
    assert found.short == "nonfinite (×3) 12 s ago: rank 1 is not finite in cycle 39"
    assert verdict(training(alerts=(alert(severity="critical"),))).tone is Tone.BAD


@pytest.mark.parametrize(
    "fields",
    [
        {"uptime_s": 420.0},
        {"uptime_s": None, "at": "2026-01-01T00:09:48Z"},
        {"uptime_s": 601.0},
        {"alert_class": "rank_lost"},
    ],
)
def test_an_old_alert_one_without_an_age_and_one_of_a_loss_are_not(fields):
    assert verdict(training(alerts=(alert(**fields),))).tone is Tone.OK


def test_a_stop_that_was_asked_for_is_told_with_who_and_when():
    stop = event(
        5,
        kind=EventKind.OPERATOR,
        name="stop",
        who="operator at 10.0.0.9",
        uptime_s=597.0,
        text="cutting the window, then saving",
    )
    found = verdict(training(), events=(event(4), stop, event(6)))
    assert found.tone is Tone.WARN
    assert found.short == "stopping: asked 3.0 s ago by operator at 10.0.0.9; then the run ends"
    assert found.text == f"{found.short}: cutting the window, then saving"
    nobody = verdict(training(), events=(stop.model_copy(update={"who": None}),))
    assert "by somebody;" in nobody.short


def test_old_news_is_told_with_its_age_and_never_as_good():
    view = fold(view_of(training()), ClockTicked(at_s=12.0))
    found = run_verdict(view)
    assert found.tone is Tone.WARN
    assert found.short.startswith("12 s ago: all 4 ranks on 2 hosts train;")
    gone = fold(view, LinkChanged(state=LinkState.DISCONNECTED, detail="refused", at_s=13.0))
    assert run_verdict(gone).short.startswith("13 s ago: ")


def test_the_last_word_of_a_run_that_is_gone_has_no_age():
    over = training(
        phase=ClusterPhase.DONE,
        end=EndState(exit_code=0, reason="finished"),
        checkpoint=CheckpointState(path="/srv/a/consensus", version=3),
    )
    view = fold(view_of(over), LinkChanged(state=LinkState.ENDED, detail="", at_s=90.0))
    found = run_verdict(view)
    assert (found.tone, found.short) == (Tone.OK, "done (exit code 0): finished; saved")
    assert found.text == "done (exit code 0): finished; saved: /srv/a/consensus"


@pytest.mark.parametrize(
    ("end", "tone", "short"),
    [
        (
            EndState(exit_code=1, reason="reduce_stall", detail="cycle 22 hangs\nmore"),
            Tone.BAD,
            "failed (exit code 1): reduce stall, cycle 22 hangs",
        ),
        (
            EndState(exit_code=4, reason="stopped by SIGTERM", detail="x"),
            Tone.INFO,
            "stopped early, nothing was saved (exit code 4): stopped by SIGTERM",
        ),
        (EndState(exit_code=77, reason=""), Tone.BAD, "ended (exit code 77)"),
    ],
)
def test_an_ended_run_says_how_with_its_exit_code(end, tone, short):
    found = verdict(training(phase=ClusterPhase.FAILED, end=end))
    assert (found.tone, found.short) == (tone, short)


@pytest.mark.parametrize(
    ("phase", "tone", "short"),
    [(ClusterPhase.DONE, Tone.OK, "done"), (ClusterPhase.FAILED, Tone.BAD, "failed")],
)
def test_a_run_that_has_not_said_its_end_is_known_by_its_phase(phase, tone, short):
    found = verdict(training(phase=phase))
    assert (found.tone, found.short) == (tone, short)


def test_a_run_that_is_on_has_no_end():
    for shown in (None, training()):
        panel = end_panel(view_of(shown))
        assert not panel.is_over
        assert (panel.title, panel.exit_code, panel.advice) == ("", None, ())


def test_a_failed_run_shows_its_diagnosis_and_what_to_do():
    shown = training(
        rank(0),
        rank(1, state=RankPhase.LOST),
        phase=ClusterPhase.FAILED,
        run=run_state(run_dir="/srv/runs/a"),
        training=TrainingState(
            epoch=1,
            epochs=3,
            global_step=9,
            samples_done=1_000,
            samples_total=4_000,
            loss=0.5,
            metric=0.75,
            metric_name="accuracy",
        ),
        checkpoint=CheckpointState(path="/srv/a", last_error="No space left"),
        end=EndState(exit_code=1, reason="max_failure_exceeded", detail="1 of 2\n\n\tsecond"),
    )
    events = (
        event(3),
        event(4, severity="critical", text="rank 1 was lost: SIGKILL", fix="look at its log"),
        event(5, severity="critical", text="another"),
    )
    panel = end_panel(view_of(shown, events=events))
    assert (panel.is_over, panel.tone, panel.glyph) == (True, Tone.BAD, Glyph.BAD)
    assert panel.title == "failed (exit code 1)"
    assert panel.reason == "max failure exceeded"
    assert panel.details == ("1 of 2", "    second")
    assert (panel.cause, panel.cause_seq) == ("00:00:04 rank 1 was lost: SIGKILL", 4)
    assert panel.facts == (
        ("trained", "1,000 of 4,000 samples"),
        ("loss", "0.5"),
        ("accuracy", "0.75"),
        ("time", "10 m 00 s"),
        ("ranks", "2, 1 lost"),
        ("bundle", "/srv/a"),
        ("save failed", "No space left"),
    )
    assert panel.advice == (
        "Look at the first critical event: the others follow from it.",
        "look at its log",
        "Play it again: flodl console --replay /srv/runs/a",
    )


def test_a_run_that_ended_in_its_window_has_little_to_tell():
    shown = document(phase=ClusterPhase.FAILED)
    panel = end_panel(view_of(shown, kind=SourceKind.REPLAY))
    assert (panel.title, panel.exit_code) == ("failed", None)
    assert panel.reason == "the run has not said why yet"
    assert (panel.cause, panel.cause_seq) == ("", None)
    assert panel.facts == (("time", "10 m 00 s"), ("bundle", "none"))
    assert panel.advice == ()


def test_a_stopped_run_is_neither_good_nor_bad():
    shown = training(
        phase=ClusterPhase.DONE,
        end=EndState(exit_code=4, reason="stopped", detail="\n".join(map(str, range(20)))),
        checkpoint=CheckpointState(path="/srv/a"),
        training=TrainingState(epoch=1, epochs=3, global_step=9, samples_done=1, samples_total=4),
    )
    panel = end_panel(view_of(shown))
    assert panel.glyph is Glyph.STOPPED
    assert panel.title == "stopped early and saved (exit code 4)"
    assert panel.details[-1] == "and 8 more lines in the run's log"
    assert len(panel.details) == 13
    assert ("loss", "–") in panel.facts
