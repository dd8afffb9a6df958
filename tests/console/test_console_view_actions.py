"""Actions: offered where the run would accept them, with consequences in numbers."""

import csv
import io
import json

import pytest
from console_documents import (
    document,
    member,
    rank,
    run_state,
    training,
    view_of,
    window,
)

from flodl_console.view.actions import ActionId, basis_of, offer, offers, voided
from flodl_console.view.export import ranks_csv, ranks_json, windows_csv, windows_json
from flodl_console.view.fold import fold
from flodl_console.view.model import initial
from flodl_console.view.records import (
    ClockTicked,
    DocumentArrived,
    LinkChanged,
    LinkState,
    SourceKind,
)
from flodl_core.ids import ClusterPhase, RankPhase
from flodl_core.telemetry.state import (
    CheckpointState,
    EndState,
    ResourceState,
    TrainingState,
)

PROGRESS = TrainingState(epoch=1, epochs=3, global_step=9, samples_done=1_000, samples_total=4_000)


def staged(**fields):
    usual = {
        "phase": ClusterPhase.STAGING,
        "start_mode": "manual",
        "joined_ranks": 3,
        "joined_hosts": 2,
        "target_ranks": 4,
        "members": (member("red", 0, 1), member("blue", 2)),
    }
    return document(**(usual | fields))


def refused(shown, action, **cursor):
    parts = {key: cursor.pop(key) for key in ("kind", "is_read_only") if key in cursor}
    return offer(view_of(shown, **parts), action, **cursor).reason


@pytest.mark.parametrize("action", list(ActionId))
def test_nothing_is_offered_where_nothing_can_be_asked(action):
    shown = training()
    reasons = {
        "this is a record: there is no run to ask": view_of(shown, kind=SourceKind.REPLAY),
        "this console was opened read-only": view_of(shown, is_read_only=True),
        "nothing is known of the run yet": initial(),
        "the run is over": view_of(
            training(phase=ClusterPhase.DONE, end=EndState(exit_code=0, reason="finished"))
        ),
        "the run does not answer: what is shown is old": fold(
            view_of(shown), ClockTicked(at_s=4.0)
        ),
    }
    for reason, view in reasons.items():
        found = offer(view, action, rank=0, host="red")
        assert (found.is_enabled, found.reason, found.confirm) == (False, reason, None)


def test_a_run_whose_port_is_gone_is_over():
    view = fold(view_of(training()), LinkChanged(state=LinkState.ENDED, detail="", at_s=1.0))
    assert offer(view, ActionId.CHECKPOINT).reason == "the run is over"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"start_mode": "auto"}, "start mode is auto: the window closes by itself"),
        ({"phase": ClusterPhase.FORMING}, "the window is closed: the run is forming"),
        (
            {"joined_ranks": 1, "min_rank_start": 3},
            "quorum not met: 1/3, 2 more must join",
        ),
        ({"start_armed": True}, "the start was asked for already"),
        ({}, ""),
    ],
)
def test_a_start_is_offered_by_the_rules_of_the_run(fields, reason):
    assert refused(staged(**fields), ActionId.START) == reason


def test_a_start_says_with_how_many_and_that_nobody_can_join_later():
    found = offer(view_of(staged(expected_hosts=("green",))), ActionId.START)
    assert (found.is_enabled, found.request, found.parameters) == (True, "start", {})
    assert found.confirm is not None
    assert found.confirm.title == "Start the run?"
    assert found.confirm.lines == (
        "Start with 3 of 4 ranks on 2 hosts.",
        "Not heard from: green.",
        "Later hosts cannot join this run.",
    )
    assert (found.confirm.yes, found.confirm.no, found.confirm.typed_name) == ("start", "no", "")


def test_a_start_with_all_ranks_names_no_target():
    full = offer(view_of(staged(target_ranks=3)), ActionId.START).confirm
    assert full is not None
    assert full.lines[0] == "Start with 3 ranks on 2 hosts."
    one = offer(
        view_of(staged(joined_ranks=1, min_rank_start=1, target_ranks=None)), ActionId.START
    )
    assert one.confirm is not None
    assert one.confirm.lines[0] == "Start with 1 rank on 2 hosts."


def test_stop_and_save_asks_for_the_runs_name():
    found = offer(view_of(training(training=PROGRESS)), ActionId.STOP_SAVE)
    assert (found.request, found.parameters) == ("stop", {"kind": "save"})
    assert found.confirm is not None
    assert found.confirm.typed_name == "digits"
    assert found.confirm.lines == (
        "The window under way ends; what 4 ranks did is averaged and saved.",
        "25.0 % is trained; 3,000 samples are not.",
        "The run ends with exit code 4; nothing that is committed is lost.",
    )


@pytest.mark.parametrize(
    ("checkpoint", "line"),
    [
        (None, "Nothing has been saved yet: everything trained is lost."),
        (
            CheckpointState(path="/a", version=12, at="2026-01-01T02:07:00Z", uptime_s=420.0),
            "What came after version 12 (saved 3 m 00 s ago) is lost.",
        ),
        (
            CheckpointState(path="/a", version=12, at="2026-01-01T00:07:00Z"),
            "What came after version 12 is lost.",
        ),
        (
            CheckpointState(path="/a", version=12, uptime_s=600.1),
            "What came after version 12 is lost.",
        ),
        (
            CheckpointState(path="/a"),
            "What came after the last save is lost.",
        ),
    ],
)
def test_stop_now_says_what_is_lost(checkpoint, line):
    found = offer(view_of(training(checkpoint=checkpoint)), ActionId.STOP_NOW)
    assert found.parameters == {"kind": "now"}
    assert found.confirm is not None
    assert found.confirm.lines[1] == line
    assert found.confirm.lines[0] == "4 ranks end at once."
    assert found.confirm.lines[-1] == "The run ends with exit code 5."


@pytest.mark.parametrize("action", [ActionId.STOP_SAVE, ActionId.STOP_NOW])
def test_a_stop_in_the_window_sends_the_hosts_away(action):
    confirm = offer(view_of(staged()), action).confirm
    assert confirm is not None
    assert confirm.lines == (
        "The window closes and no world is formed: nothing was trained.",
        "2 hosts that joined are sent away.",
        "The run ends with exit code 3.",
    )


@pytest.mark.parametrize(
    ("name", "typed"),
    [
        ("digits", "digits"),
        ("  my run ", "my run"),
        ("", "0123456789abcdef"),
        ("日本", "0123456789abcdef"),
        ("x" * 41, "0123456789abcdef"),
    ],
)
def test_a_name_that_cannot_be_typed_is_replaced_by_the_runs_id(name, typed):
    confirm = offer(view_of(training(run=run_state(name=name))), ActionId.STOP_SAVE).confirm
    assert confirm is not None
    assert confirm.typed_name == typed


def test_a_checkpoint_needs_no_confirmation():
    found = offer(view_of(training()), ActionId.CHECKPOINT)
    assert (found.is_enabled, found.confirm, found.request) == (True, None, "checkpoint")
    assert refused(staged(), ActionId.CHECKPOINT) == ("the run is not training yet: it is staging")


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (None, "no host is chosen"),
        ("green", "the run has no host green"),
        ("gray", "host gray has no rank left"),
        ("red", ""),
    ],
)
def test_a_host_is_drained_if_it_has_ranks_and_others_stay(host, reason):
    ranks = (rank(0), rank(1, "blue"), rank(2, "gray", state=RankPhase.LOST))
    assert refused(training(*ranks), ActionId.DRAIN, host=host) == reason


def test_the_last_host_is_not_drained():
    only = training(rank(0), rank(1, "blue", state=RankPhase.LOST))
    assert refused(only, ActionId.DRAIN, host="red") == "host red is the last one with a rank"
    assert refused(staged(), ActionId.DRAIN, host="red").startswith("the run is not training yet")


def test_draining_says_who_leaves_and_who_goes_on():
    found = offer(view_of(training()), ActionId.DRAIN, host="blue", rank=2)
    assert (found.request, found.parameters) == ("drain", {"host": "blue"})
    assert found.confirm is not None
    assert found.confirm.title == "Drain host blue?"
    assert found.confirm.lines == (
        "2 ranks of blue leave after the next average.",
        "They bring what they have done and hand back the rest.",
        "2 of 4 ranks go on.",
        "The host cannot join this run again.",
    )
    assert found.confirm.typed_name == ""
    assert offer(view_of(training()), ActionId.DRAIN).parameters == {}


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (None, "no rank is chosen"),
        (9, "the run has no rank 9"),
        (1, "rank 1 on blue is lost already"),
        (2, "rank 2 on blue is gone already"),
        (0, "rank 0 is the last one alive"),
    ],
)
def test_a_rank_is_evicted_if_it_lives_and_is_not_the_last(number, reason):
    ranks = (
        rank(0),
        rank(1, "blue", state=RankPhase.LOST),
        rank(2, "blue", state=RankPhase.DONE),
    )
    assert refused(training(*ranks), ActionId.EVICT, rank=number) == reason


def test_evicting_asks_for_the_ranks_name():
    found = offer(view_of(training()), ActionId.EVICT, rank=2)
    assert (found.request, found.parameters) == ("evict", {"rank": "2"})
    assert found.confirm is not None
    assert (found.confirm.title, found.confirm.typed_name) == ("Evict rank 2 on blue?", "rank 2")
    assert found.confirm.lines == (
        "rank 2 on blue is killed.",
        "Its batches since the last commit are done again by the others.",
        "3 of 4 ranks go on.",
        "It cannot come back into this run.",
    )
    assert offer(view_of(training()), ActionId.EVICT).parameters == {}
    assert refused(staged(), ActionId.EVICT, rank=0).startswith("the run is not training yet")


def test_all_actions_are_offered_at_once():
    found = offers(view_of(training()), rank=1, host="blue")
    assert set(found) == set(ActionId)
    assert [action for action, one in found.items() if not one.is_enabled] == [ActionId.START]
    assert all(len(one.what_follows) <= 76 for one in found.values())


def after(view, shown, at_s=1.0):
    return fold(view, DocumentArrived(document=shown, at_s=at_s, size_bytes=1, took_ms=1.0))


@pytest.mark.parametrize(
    ("later", "reason"),
    [
        (staged(cap_remaining_s=5.0), ""),
        (staged(run=run_state(id="other")), "closed: this is another run now"),
        (staged(phase=ClusterPhase.FORMING), "closed: the run is forming now"),
        (
            staged(members=(member("red", 0, 1),), joined_ranks=2),
            "closed: the roster changed, 1 hosts are in",
        ),
    ],
)
def test_a_box_closes_itself_when_roster_or_phase_change(later, reason):
    view = view_of(staged())
    confirm = offer(view, ActionId.START).confirm
    assert confirm is not None
    assert voided(confirm, after(view, later)) == reason


def test_a_box_closes_itself_when_a_rank_is_lost_or_the_run_falls_silent():
    view = view_of(training())
    confirm = offer(view, ActionId.EVICT, rank=3).confirm
    assert confirm is not None
    lost = training(rank(0), rank(1), rank(2, "blue", state=RankPhase.LOST), rank(3, "blue"))
    reason = "closed: 3 ranks are alive now, not 4"
    assert voided(confirm, after(view, lost)) == reason
    silent = fold(view, ClockTicked(at_s=9.0))
    assert voided(confirm, silent) == "closed: the run does not answer"


def test_nothing_known_is_no_ground_to_stand_on():
    assert basis_of(initial()).is_current is False


def test_ranks_are_exported_as_they_are():
    shown = rank(1, "=cmd()", ms_per_batch=5.0149, resources=ResourceState(cpu_percent=12.5))
    view = view_of(training(rank(0), shown))
    rows = list(csv.DictReader(io.StringIO(ranks_csv(view))))
    assert [row["rank"] for row in rows] == ["0", "1"]
    assert (rows[1]["host"], rows[1]["ms_per_batch"]) == ("'=cmd()", "5.0149")
    assert (rows[0]["cpu_percent"], rows[1]["cpu_percent"]) == ("", "12.5")
    assert rows[0]["loss"] == ""
    told = json.loads(ranks_json(view))
    assert (told["run_id"], told["uptime_s"]) == ("0123456789abcdef", 600.0)
    assert told["ranks"][1]["host"] == "=cmd()"


def test_windows_are_exported_with_a_column_for_each_rank():
    windows = (
        window(1, loss=0.5, batch_counts=(60, 10), ms_per_batch=(5.0, None)),
        window(2, loss=float("nan")),
    )
    view = view_of(training(), windows=windows)
    rows = list(csv.DictReader(io.StringIO(windows_csv(view))))
    assert (rows[0]["batch_counts_rank1"], rows[0]["ms_per_batch_rank1"]) == ("10", "")
    assert (rows[1]["loss"], rows[1]["batch_counts_rank0"]) == ("", "")
    told = json.loads(windows_json(view))
    assert [one["seq"] for one in told["windows"]] == [1, 2]
    assert told["windows"][1]["loss"] is None


def test_nothing_is_exported_of_nothing():
    assert len(ranks_csv(initial()).splitlines()) == 1
    assert len(windows_csv(initial()).splitlines()) == 1
    assert json.loads(ranks_json(initial())) == {"run_id": None, "uptime_s": None, "ranks": []}
    assert json.loads(windows_json(initial())) == {"run_id": None, "windows": []}
