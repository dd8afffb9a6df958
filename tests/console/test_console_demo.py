"""The made-up cluster: pure, plausible, and each scenario shows what its name says."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_console.demo.cohort import host_name, make_cohort
from flodl_console.demo.noise import spread, unit
from flodl_console.demo.numbers import instant
from flodl_console.demo.scenarios import SCENARIOS, check_scenario, open_scenario
from flodl_core.errors import ConfigError
from flodl_core.ids import ClusterPhase, RankPhase
from flodl_core.telemetry.records import EventKind
from flodl_core.telemetry.state import publish, read_document_untrusted

SHORT = [name for name in SCENARIOS if name != "night"]
ORDER = list(ClusterPhase)


def showcase(name, **given_):
    run = open_scenario(name, **given_)
    return run, run.document_at(math.floor(run.showcase_s * 2) / 2)


def events(name, **given_):
    run = open_scenario(name, **given_)
    return run.events_until(run.length_s).records


@pytest.mark.parametrize("name", SHORT)
def test_the_same_arguments_give_the_same_course(name):
    first, second = open_scenario(name, seed=3), open_scenario(name, seed=3)
    places = [first.length_s * part for part in (0.9, 0.1, 0.5)]
    backwards = {at_s: second.document_at(at_s) for at_s in sorted(places)}
    for at_s in places:
        assert first.document_at(at_s) == backwards[at_s]
        assert first.windows_until(at_s) == second.windows_until(at_s)
        assert first.events_until(at_s) == second.events_until(at_s)


def test_another_seed_gives_another_course():
    assert open_scenario("training", seed=1).document_at(300.0) != open_scenario(
        "training", seed=2
    ).document_at(300.0)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [0, 1, 2, 3, 8, 64])
@pytest.mark.parametrize("name", SHORT)
def test_documents_are_plausible_at_every_time(name, ranks):
    run = open_scenario(name, ranks=ranks)
    phases = []
    for part in range(24):
        at_s = run.length_s * part / 23
        document = run.document_at(at_s)
        phases.append(ORDER.index(document.phase))
        assert document == read_document_untrusted(publish(document))
        assert_plausible(run, document, at_s)
    assert phases == sorted(phases)


def assert_plausible(run, document, at_s):
    assert document.newest_window_seq == run.windows_until(at_s).newest_seq
    assert document.newest_event_seq == run.events_until(at_s).newest_seq
    assert document.joined_ranks == sum(len(member.ranks) for member in document.members)
    for row in document.ranks:
        assert row.steps_in_window <= (row.planned_batches or 0) or row.state is RankPhase.DONE
        assert row.heartbeat_age_s is None or 0 <= row.heartbeat_age_s <= 30.0
        assert (row.state is RankPhase.LOST) == bool(row.cause)
    training = document.training
    if training is None:
        assert document.ranks == ()
        return
    assert training.samples_done == sum(row.samples for row in document.ranks)
    assert training.samples_done <= training.samples_total
    assert 0 <= training.epoch < training.epochs
    shares = [row.share for row in document.ranks if row.share is not None]
    weights = [row.weight for row in document.ranks if row.weight is not None]
    assert not shares or sum(shares) == pytest.approx(1.0)
    assert not weights or sum(weights) <= 1.0 + 1e-9
    assert document.reduce.pending_s is None or document.reduce.pending_s <= 300.0
    assert (document.reduce.state == "pending") == (document.reduce.pending_s is not None)


@pytest.mark.parametrize("name", ["training", "late", "lost", "nonfinite", "done"])
def test_windows_follow_each_other_without_a_gap(name):
    run = open_scenario(name)
    rows = run.windows_until(run.length_s).records
    assert [row.seq for row in rows] == list(range(1, len(rows) + 1))
    for before, after in pairwise(rows):
        assert after.uptime_s - before.uptime_s == pytest.approx(after.window_ms / 1000.0)
        assert before.samples_done < after.samples_done
    for row in rows:
        assert sum(weight for weight in row.weights if weight) == pytest.approx(1.0)
        assert 0 < row.sync_ms <= row.window_ms + 1e-6


def test_a_page_of_windows_begins_after_what_is_known():
    run = open_scenario("training")
    whole = run.windows_until(200.0)
    rest = run.windows_until(200.0, since=10)
    assert rest.records == whole.records[10:]
    assert (rest.oldest_seq, rest.newest_seq) == (whole.oldest_seq, whole.newest_seq)
    assert run.windows_until(200.0, since=10_000).records == ()
    assert run.windows_until(1.0).records == ()


def test_a_page_of_events_begins_after_what_is_known():
    run = open_scenario("lost")
    whole = run.events_until(400.0).records
    assert run.events_until(400.0, since=3).records == whole[3:]
    assert [row.seq for row in whole] == list(range(1, len(whole) + 1))
    assert [row.uptime_s for row in whole] == sorted(row.uptime_s for row in whole)
    assert run.events_until(-1.0).newest_seq == 0


@pytest.mark.slow
def test_a_long_run_keeps_the_last_two_thousand_windows():
    run = open_scenario("night")
    page = run.windows_until(20_000.0)
    assert len(page.records) == 2000
    assert page.oldest_seq == page.newest_seq - 1999
    assert page.records[0].seq == page.oldest_seq


@pytest.mark.slow
def test_a_large_world_keeps_fewer_windows():
    run = open_scenario("training", ranks=512)
    assert len(run.windows_until(1800.0).records) == 250


def test_the_window_waits_for_two_of_three_hosts():
    _, document = showcase("waiting")
    assert document.phase is ClusterPhase.WAITING
    assert (document.joined_hosts, document.joined_ranks, document.min_rank_start) == (1, 2, 3)
    assert document.expected_hosts == ("blue", "green")
    assert document.window_remaining_s == 253.0
    assert document.cap_remaining_s == 553.0
    assert document.join.line == "flodl join 10.0.0.5:1337 --token-file token"


def test_staging_has_its_quorum_and_waits_for_the_operator():
    _, document = showcase("staging")
    assert document.phase is ClusterPhase.STAGING
    assert (document.joined_ranks, document.min_rank_start, document.start_mode) == (3, 3, "manual")
    assert document.expected_hosts == ("green",)


def test_refusals_stand_with_reason_and_fix():
    run, document = showcase("refused")
    assert document.refusals == 3
    assert [row.host for row in document.recent_refusals] == ["gray", "red", "white"]
    assert all(row.reason and row.fix for row in document.recent_refusals)
    told = [row for row in run.events_until(47.0).records if row.kind is EventKind.REFUSAL]
    assert [row.fix for row in told] == [row.fix for row in document.recent_refusals]


def test_training_gives_fast_ranks_more_batches():
    _, document = showcase("training")
    counts, ms = document.elche.batch_counts, [row.ms_per_batch for row in document.ranks]
    assert document.elche.phase == "mature"
    assert document.elche.anchor_rank == 3
    assert counts[3] == document.elche.anchor
    assert counts[0] > counts[2] > counts[3]
    assert [n * t for n, t in zip(counts, ms, strict=True)] == pytest.approx(
        [counts[3] * ms[3]] * 4, rel=0.12
    )
    assert document.training.throughput < document.training.ideal_throughput


def test_after_a_loss_the_speed_is_soon_that_of_the_ranks_that_go_on():
    run = open_scenario("lost")
    lost_s = next(row.uptime_s for row in events("lost") if row.name == "rank_lost")
    for after_s in (4.0, 8.0, 30.0):
        training = run.document_at(lost_s + after_s).training
        assert 0.9 < training.throughput / training.ideal_throughput < 1.0


@pytest.mark.parametrize("name", SHORT)
def test_no_run_is_called_like_what_became_of_it(name):
    assert showcase(name)[1].run.name == f"demo-{name}"


def test_the_anchor_grows_until_averaging_takes_less_than_its_target():
    rows = open_scenario("training").windows_until(600.0).records
    assert rows[0].anchor == 10
    assert [row.anchor for row in rows] == sorted(row.anchor for row in rows)
    assert rows[0].overhead > 0.1
    assert rows[-1].overhead <= 0.05
    assert [row.elche_phase for row in rows[:6]] == ["probe", *["warmup"] * 4, "stable"]
    assert rows[19].elche_phase == "stable"
    assert rows[20].elche_phase == "mature"


def test_the_loss_falls():
    rows = open_scenario("training").windows_until(1800.0).records
    assert rows[0].loss > 4.0
    assert rows[-1].loss < 1.6


def test_a_late_rank_has_its_windows_cut_and_then_fewer_batches():
    run, document = showcase("late")
    planned, done = document.ranks[1].planned_batches, document.ranks[1].ms_per_batch
    assert done == pytest.approx(50.0, rel=0.1)
    assert planned > 400
    assert "window_cut" in [row.name for row in run.events_until(180.0).records]
    assert run.document_at(250.0).ranks[1].planned_batches < 60


def test_a_stalled_averaging_names_the_rank_and_ends_at_its_ceiling():
    run, document = showcase("stalled")
    assert 278.0 < document.reduce.pending_s < 283.0
    assert document.waits[0].phase.endswith("not acknowledged by ranks: 2")
    assert [row.state for row in document.ranks].count(RankPhase.HELD) == 3
    assert run.document_at(run.length_s).end.reason == "reduce_stall"


def test_a_killed_rank_and_a_silent_host_are_told_root_cause_first():
    run, document = showcase("lost")
    assert [row.state for row in document.ranks][1] is RankPhase.LOST
    assert [row.heartbeat_age_s for row in document.ranks][2:] == [21.0, 21.0]
    assert [wait.rank for wait in document.waits] == [None, 2, 3]
    rows = run.events_until(run.length_s).records
    lost = [row for row in rows if row.name in ("host_lost", "rank_lost")]
    assert [row.name for row in lost] == ["rank_lost", "host_lost", "rank_lost", "rank_lost"]
    assert [row.cause_seq for row in lost] == [None, None, lost[1].seq, lost[1].seq]
    after = run.document_at(300.0)
    assert [row.state is RankPhase.LOST for row in after.ranks] == [False, True, True, True]
    assert after.phase is ClusterPhase.TRAINING


def test_values_that_are_not_finite_are_an_alert_and_no_divergence():
    run, document = showcase("nonfinite")
    assert [alert.alert_class for alert in document.alerts] == ["nonfinite"] * 2
    rows = run.windows_until(120.0).records
    declared = [row.seq for row in rows if row.divergences[2] is None]
    assert len(declared) == 2


def test_a_save_under_way_shows_who_writes():
    _, document = showcase("saving")
    assert document.checkpoint.saving
    assert document.checkpoint.version > 0
    assert document.ranks[0].state is RankPhase.SAVING
    assert [wait.phase.split(" of ")[0] for wait in document.waits] == ["writing the save"]


def test_a_stop_is_an_operators_event_and_ends_saved():
    run, document = showcase("stopping")
    assert "cutting the window" in [wait.phase for wait in document.waits]
    asked = [row for row in events("stopping") if row.kind is EventKind.OPERATOR]
    assert [(row.name, row.who) for row in asked] == [("stop", "operator at 127.0.0.1")]
    assert run.document_at(run.length_s).end.exit_code == 4


def test_a_finished_run_has_trained_every_sample():
    _, document = showcase("done")
    assert document.phase is ClusterPhase.DONE
    assert document.training.samples_done == document.training.samples_total
    assert (document.training.epoch, len(document.epochs)) == (11, 12)
    assert document.end.exit_code == 0
    assert document.reduce.state == "idle"


def test_a_failed_run_names_its_first_cause():
    _, document = showcase("failed")
    assert document.phase is ClusterPhase.FAILED
    assert document.end.exit_code == 1
    assert "first cause: rank 1 (cuda:1 on red) was lost" in document.end.detail


def test_without_ranks_nobody_ever_joins():
    _, document = showcase("empty")
    assert (document.joined_hosts, document.members, document.ranks) == (0, (), ())
    assert open_scenario("training", ranks=0).document_at(900.0).phase is ClusterPhase.WAITING


@pytest.mark.slow
def test_the_night_has_all_of_it():
    names = [row.name for row in events("night", ranks=24)]
    for name in (
        "host_refused",
        "anchor_changed",
        "epoch_ended",
        "save_written",
        "save_failed",
        "nonfinite",
        "verdict_changed",
        "window_cut",
        "rank_lost",
        "host_lost",
        "run_ended",
    ):
        assert name in names
    assert names.count("save_written") == 14


def test_what_cannot_be_made_is_refused():
    with pytest.raises(ConfigError, match="there is no such scenario"):
        open_scenario("dance")
    with pytest.raises(ConfigError, match="out of range"):
        check_scenario("training", 5000)


@pytest.mark.parametrize(
    ("ranks", "sizes"),
    [(1, [1]), (4, [2, 2]), (5, [3, 2]), (16, [8, 8]), (17, [8, 8, 1]), (64, [8] * 8)],
)
def test_ranks_are_shared_among_hosts_and_numbered_through(ranks, sizes):
    cohort = make_cohort(ranks, seed=0)
    assert [len(host.ranks) for host in cohort.hosts] == sizes
    assert [row.rank for row in cohort.ranks] == list(range(ranks))


def test_host_names_and_addresses_are_all_different():
    hosts = make_cohort(4096, seed=0).hosts
    assert len({host.name for host in hosts}) == len({host.address for host in hosts}) == 512
    assert host_name(8) == "red-2"


def test_instants_are_of_one_fixed_day():
    assert instant(0.0) == "2026-01-01T00:00:00.000Z"
    assert instant(3 * 3600 + 4 * 60 + 5.678) == "2026-01-01T03:04:05.678Z"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(-(2**70), 2**70), min_size=1, max_size=5))
def test_noise_stays_in_its_range(keys):
    assert 0.0 <= unit(*keys) < 1.0
    assert -1.0 <= spread(*keys) < 1.0


def test_noise_is_spread_evenly():
    values = sorted(unit(7, key) for key in range(2000))
    assert max(abs(value - index / 2000) for index, value in enumerate(values)) < 0.05
    assert abs(sum(spread(7, key) for key in range(2000)) / 2000) < 0.05
