"""The parts of the coordinator one by one: tables, rules and their properties."""

import math

import pytest
from coordinator_script import envelope
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.coordinator.aggregation import EpochTotals
from flodl_core.coordinator.attendance import Attendance
from flodl_core.coordinator.ceiling import Ceiling, earliest
from flodl_core.coordinator.cohort import Cohort, RankLife
from flodl_core.coordinator.cycle import TRANSITIONS, CycleMachine, CyclePhase, CycleStep
from flodl_core.coordinator.effects import SampleStatus
from flodl_core.coordinator.epochs import NON_FINITE, SKIPPED_STEPS, EpochBook
from flodl_core.coordinator.events import RoundEnded
from flodl_core.coordinator.gate import review_gate
from flodl_core.coordinator.ledger import LedgerPhase, StepLedger
from flodl_core.coordinator.saves import Save, SaveDesk, SavePhase, SavePurpose
from flodl_core.coordinator.settings import CoordinatorSettings
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Cycle, Rank, Round, RoundOutcome, SaveReason, SyncOutcome
from flodl_core.messages.data import RankTally
from flodl_core.messages.metrics import MetricsMsg
from flodl_core.messages.timing import SnapshotReady, SyncAck

instants = st.floats(0.0, 1e6)
limits = st.floats(1e-3, 1e5)


# ceilings and attendance


@pytest.mark.slow
@given(instants, limits)
def test_a_ceiling_has_passed_exactly_from_the_instant_at_which_it_is_due(since, limit):
    ceiling = Ceiling(since, limit)
    due = ceiling.due()
    assert ceiling.passed(due)
    assert not ceiling.passed(math.nextafter(due, -math.inf))
    assert not ceiling.passed(since + limit)


def test_ages_are_never_negative_and_the_earliest_ignores_what_is_not_due():
    assert Ceiling(5.0, 1.0).age(3.0) == 0.0
    assert earliest(None, 4.0, None, 2.0) == 2.0
    assert earliest(None, None) is None


@pytest.mark.slow
@given(st.lists(st.floats(0.0, 30.0), min_size=1, max_size=30))
def test_attended_time_is_given_time_less_the_absences(gaps):
    attendance = Attendance(1.0)
    now, expected, last = 50.0, 50.0, None
    attendance.arrive(now)
    for gap in gaps:
        now += gap
        away = attendance.arrive(now)
        assert away == pytest.approx(gap if gap > 5.0 else 0.0, abs=1e-9)
        expected += 0.0 if gap > 5.0 else gap
        attended = attendance.attended(now)
        assert attended == pytest.approx(expected, abs=1e-6)
        assert last is None or attended >= last - 1e-9
        last = attended


@pytest.mark.slow
@given(instants, st.floats(-10.0, 10.0))
def test_a_deadline_is_later_than_the_last_event(now, offset):
    attendance = Attendance(1.0)
    attendance.arrive(now)
    assert attendance.given(attendance.attended(now) + offset) > now


# the ledger


@pytest.mark.slow
@given(st.lists(st.sampled_from(["report", "arm", "seal", "finish"]), max_size=40))
def test_a_finish_subtracts_what_was_before_the_snapshot_and_keeps_what_came_after(steps):
    ledger = StepLedger()
    before = after = 0
    phase = "open"
    for step in steps:
        if step == "report":
            ledger.report(1, 2)
            if phase == "sealed":
                after += 1
            else:
                before += 1
        elif step == "arm" and phase == "open":
            ledger.arm()
            phase = "armed"
        elif step == "seal" and phase == "armed":
            ledger.seal()
            phase = "sealed"
        elif step == "finish" and phase != "open":
            ledger.finish()
            before, after, phase = after, 0, "open"
        assert ledger.open_batches + ledger.closing_batches == before + after
        assert ledger.samples == 2 * (before + after)
    assert ledger.phase is LedgerPhase(phase)


# the cycle


@pytest.mark.parametrize("phase", CyclePhase)
@pytest.mark.parametrize("step", CycleStep)
def test_every_pair_of_the_cycle_table_does_what_the_picture_says(phase, step):
    picture = {
        ("idle", "triggered"): "counting",
        ("counting", "control_realized"): "reducing",
        ("counting", "control_unrealized"): "adopting",
        ("reducing", "params_ended"): "buffering",
        ("reducing", "params_ended_last"): "adopting",
        ("buffering", "buffers_ended"): "adopting",
        ("adopting", "finished"): "idle",
        ("counting", "abandoned"): "idle",
        ("reducing", "abandoned"): "idle",
        ("buffering", "abandoned"): "idle",
        ("adopting", "abandoned"): "idle",
    }
    assert TRANSITIONS.get((phase, step)) == picture.get((phase.value, step.value))


def ended(cycle, round_, outcome=RoundOutcome.COMMITTED):
    return RoundEnded(Cycle(cycle), round_, outcome, (), 1.0, ())


@pytest.mark.slow
@given(
    st.booleans(),
    st.lists(
        st.one_of(
            st.just("trigger"),
            st.just("finish"),
            st.just("abandon"),
            st.tuples(st.integers(0, 3), st.sampled_from(Round), st.sampled_from(RoundOutcome)),
        ),
        max_size=40,
    ),
)
def test_a_cycle_machine_under_any_events_keeps_its_numbers_and_its_one_cycle(has_buffers, events):
    machine = CycleMachine(has_buffers=has_buffers)
    used = []
    for event in events:
        phase = machine.phase
        if event == "trigger":
            if phase is CyclePhase.IDLE:
                used.append(machine.trigger(1.0))
            else:
                with pytest.raises(LocalProtocolError):
                    machine.trigger(1.0)
        elif event == "finish":
            if phase is CyclePhase.ADOPTING:
                machine.finish(2.0)
                assert machine.last_sync_ms == 1000.0
            else:
                with pytest.raises(LocalProtocolError):
                    machine.finish(2.0)
        elif event == "abandon":
            machine.abandon()
            assert not machine.pending
        else:
            taken = machine.end_round(ended(*event))
            assert taken == (machine.phase is not phase)
            assert not taken or event[0] == used[-1]
        assert machine.pending == (machine.phase is not CyclePhase.IDLE)
        assert (machine.cycle is None) == (machine.since is None) == (not machine.pending)
        assert machine.params_ended <= machine.pending
    assert used == list(range(len(used)))


def test_evidence_is_taken_once_and_only_of_the_cycle_under_way():
    machine = CycleMachine(has_buffers=False)
    cycle = machine.trigger(0.0)
    ready = SnapshotReady(rank=Rank(1), cycle=cycle, n=1, samples=2)
    ack = SyncAck(rank=Rank(1), cycle=cycle, outcome=SyncOutcome.COMMITTED, step_count=1, samples=0)
    assert machine.missing([Rank(0), Rank(1)]) == (0, 1)
    assert machine.take_ready(ready)
    assert not machine.take_ready(ready)
    assert machine.take_ack(ack)
    assert not machine.take_ack(ack)
    assert machine.missing([Rank(0), Rank(1)]) == (0,)
    assert not machine.is_acknowledged([Rank(0), Rank(1)])
    assert not machine.is_acknowledged([Rank(0), Rank(1)])
    assert machine.is_acknowledged([Rank(1)])
    assert machine.evidence(Rank(1)).ready == ready
    machine.abandon()
    assert not machine.take_ack(ack)
    assert not machine.take_ready(ready)
    assert machine.tallies == ()


# the gate


@pytest.mark.slow
@given(st.permutations(range(5)), st.lists(st.sampled_from("ad"), min_size=5, max_size=5))
def test_a_cycle_is_acknowledged_when_nobody_alive_is_missing(order, fates):
    machine = CycleMachine(has_buffers=False)
    assert not machine.is_acknowledged([Rank(0)])
    for cycle in range(2):
        machine.trigger(0.0)
        alive = [Rank(rank) for rank in range(5)]
        for rank, fate in zip(order, fates, strict=True):
            assert not machine.is_acknowledged(alive)
            if fate == "d" and len(alive) > 1:
                alive.remove(rank)
            else:
                outcome = SyncOutcome.COMMITTED
                machine.take_ack(
                    SyncAck(rank=rank, cycle=Cycle(cycle), outcome=outcome, step_count=1, samples=0)
                )
        assert machine.is_acknowledged(alive) == (machine.missing(alive) == ())
        assert machine.is_acknowledged(alive)
        machine.abandon()


@pytest.mark.slow
@given(
    st.lists(st.tuples(st.integers(0, 2), st.booleans()), min_size=1, max_size=6),
    st.integers(1, 2),
    st.sampled_from(["", "a save"]),
    st.integers(0, 5),
)
def test_the_gate_opens_when_everybody_is_done_or_quiesced_and_somebody_did_a_batch(
    ranks, window, hold, suspect
):
    cohort = Cohort(envelope((("red", len(ranks)),)))
    quiesced = {}
    for record, (batches, idle) in zip(cohort, ranks, strict=True):
        cohort.set_life(record, RankLife.ALIVE)
        record.planned_batches = window
        record.ledger.report(batches, batches)
        quiesced[record.rank] = idle
    hint = cohort.alive[suspect] if suspect < len(ranks) else None
    verdict = review_gate(cohort.alive, hold=hold, is_quiesced=quiesced.__getitem__, suspect=hint)
    blockers = [index for index, (done, idle) in enumerate(ranks) if done < window and not idle]
    moved = any(done for done, _ in ranks)
    assert verdict.open == (not blockers and not hold and moved)
    assert (verdict.blocker is None) == (not blockers)
    assert verdict.blocker is None or verdict.blocker in blockers
    assert verdict.reason


def test_the_gate_is_shut_without_ranks():
    verdict = review_gate([], hold="", is_quiesced=lambda _rank: True)
    assert (verdict.open, verdict.reason) == (False, "no rank is alive")


# metrics


def report(rank, samples, loss, epoch=0, scalars=None, loss_samples=None):
    return MetricsMsg(
        rank=Rank(rank),
        epoch=epoch,
        avg_loss=loss,
        batches_processed=1,
        samples_processed=samples,
        loss_samples=samples if loss_samples is None else loss_samples,
        epoch_ms=1.0,
        share_complete_ms=1.0,
        compute_only_ms=1.0,
        data_starve_ms=0.0,
        scalars=scalars or {},
    )


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 50), st.floats(-1e3, 1e3) | st.none()),
        max_size=12,
    )
)
def test_the_loss_of_an_epoch_is_weighted_by_samples(reports):
    totals = EpochTotals(epoch=0)
    for rank, samples, loss in reports:
        totals.add(report(rank, samples, loss))
    known = [(samples, loss) for _, samples, loss in reports if loss is not None]
    if not known:
        assert totals.loss is None
    else:
        mean = sum(s * x for s, x in known) / sum(s for s, _ in known)
        assert totals.loss == pytest.approx(mean, abs=1e-9)
    for rank in range(4):
        expected = sum(samples for other, samples, _ in reports if other == rank)
        assert totals.reported_samples(Rank(rank)) == expected


def test_samples_without_a_finite_loss_weigh_nothing_in_their_ranks_loss():
    totals = EpochTotals(epoch=0)
    totals.add(report(0, 100, 4.0, loss_samples=10))
    totals.add(report(1, 30, 2.0))
    assert totals.loss == pytest.approx((4.0 * 10 + 2.0 * 30) / 40)
    assert totals.reported_samples(Rank(0)) == 100


def test_sums_that_would_overflow_keep_what_they_had():
    totals = EpochTotals(epoch=0)
    totals.add(report(0, 1, 1.0, scalars={"norm": (1e308, 1.0)}))
    totals.add(report(1, 1, 1e308, loss_samples=10, scalars={"norm": (1e308, 1.0)}))
    assert totals.loss == 1.0
    assert totals.scalars == {"norm": 1e308}


def test_losses_and_scalars_that_are_not_finite_have_no_weight():
    totals = EpochTotals(epoch=0)
    totals.add(report(0, 4, math.nan, scalars={"accuracy": (3.0, 4.0), "bad": (math.inf, 1.0)}))
    totals.add(report(1, 4, 2.0, scalars={"accuracy": (1.0, 4.0), "odd": (1.0,)}))
    assert totals.loss == 2.0
    assert totals.scalars == {"accuracy": 0.5}
    assert totals.missing([Rank(0), Rank(1)], {0: 4, 1: 5}.__getitem__) == (1,)


# saves


def test_a_save_is_due_on_demand_or_after_its_interval_and_never_beside_another():
    desk = SaveDesk(every_s=10.0, ceiling_s=300.0)
    assert not desk.is_due(1e9)
    desk.start_clock(100.0)
    assert not desk.is_due(109.0)
    assert desk.is_due(110.0)
    desk.write(3, SavePurpose.PERIODIC, SaveReason.CHECKPOINT, files={}, now=110.0)
    assert desk.phase is SavePhase.WRITING
    assert not desk.is_due(500.0)
    desk.rest()
    assert not desk.is_due(119.0)
    desk.demand("operator")
    assert desk.is_due(111.0)


def test_the_gate_is_held_while_an_answer_is_awaited_and_two_commits_after_a_write_began():
    desk = SaveDesk(every_s=None, ceiling_s=300.0)
    assert desk.hold_reason(5) == ""
    desk.ask(Save(4, SavePurpose.PERIODIC, SaveReason.CHECKPOINT, 0.0, Rank(2), {2: 1}))
    assert "rank 2 has" in desk.hold_reason(4)
    desk.write(4, SavePurpose.FINAL, SaveReason.CHECKPOINT, files={}, now=0.0)
    assert desk.writes_last
    assert desk.hold_reason(4) == ""
    assert "version 4" in desk.hold_reason(5)
    assert desk.ceiling.limit_s == 300.0


def test_settings_that_are_not_positive_are_refused():
    with pytest.raises(LocalProtocolError, match="stop_grace_s"):
        CoordinatorSettings(stop_grace_s=0.0)
    with pytest.raises(LocalProtocolError, match="max_failure"):
        CoordinatorSettings(max_failure=0)
    with pytest.raises(LocalProtocolError, match="leave_timeout_s"):
        CoordinatorSettings(leave_timeout_s=math.nan)


# the book


@pytest.mark.slow
@given(st.data())
def test_every_sample_of_an_event_is_settled_once_whatever_ranks_die(data):
    world = data.draw(st.integers(1, 4))
    spec = envelope(
        (("red", world),),
        n_samples=data.draw(st.integers(2, 40)),
        batch_size=data.draw(st.integers(1, 2)),
    ).spec
    book = EpochBook(spec)
    alive = [Rank(rank) for rank in range(world)]
    span, plans = book.begin(alive, 0.0, cycle=1)
    assert sum(plan.size for parts in plans.values() for plan in parts) == span.whole.size
    settled = []
    for cycle in range(200):
        if book.settled:
            break
        if len(alive) > 1 and data.draw(st.booleans()):
            dead = data.draw(st.sampled_from(alive))
            alive.remove(dead)
            book.give(book.reclaim(dead), alive)
        book.check()
        tallies, accepted = [], []
        for rank in alive:
            samples = min(spec.batch_size, book.held_samples(rank))
            fate = data.draw(st.sampled_from(["trained", "skipped", "declared", "absent"]))
            n = int(fate in ("trained", "absent"))
            tallies.append(RankTally(rank=rank, n=n, samples=samples, declared=fate == "declared"))
            if fate == "trained":
                accepted.append(rank)
        done = book.settle(Cycle(cycle), tallies, accepted)
        for entry in done.entries:
            reason = {NON_FINITE, SKIPPED_STEPS} if entry.reason else {""}
            assert entry.reason in reason
            assert (entry.status is SampleStatus.TRAINED) == (entry.reason == "")
            settled += [p for part in entry.ranges for p in range(part.offset, part.end)]
        book.check()
        assert book.trained_samples + book.dropped_samples == len(settled)
    if book.settled:
        assert sorted(settled) == list(range(span.whole.offset, span.whole.end))
        assert book.coverage()[0].uncovered == ()
    book.close()
    assert book.coverage() == ()
    assert not book.settled


def test_totals_count_whole_batches_of_every_split():
    spec = envelope((("red", 2),), n_samples=11, batch_size=2, epochs=3, epoch_splits=2).spec
    book = EpochBook(spec)
    assert (book.events, book.pass_samples, book.tail_samples, book.total_samples) == (6, 10, 1, 30)
    empty = EpochBook(envelope(epochs=0).spec)
    assert (empty.events, empty.has_next, empty.total_samples) == (0, False, 0)
