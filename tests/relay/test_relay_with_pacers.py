"""Pacers, barriers and books together: every sample once, in any order of delivery.

A small coordinator of the test's own drives real RankPacers on two hosts with real
RelayMachines over ordered channels whose interleaving Hypothesis draws. Ranks die at
any moment. Sync deals the event out in advance; Cadence deals a pool out window by
window, with plans inside Update and cuts in mid-window.
"""

from collections import Counter, deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.dispatch.accounts import SampleAccounts
from flodl_core.dispatch.actions import (
    AwaitRounds,
    BatchFinished,
    CycleAdopted,
    Hold,
    HoldReason,
    ReportEpoch,
    TakeSnapshot,
    TrainBatch,
)
from flodl_core.dispatch.chunk_pool import ChunkPool
from flodl_core.dispatch.epoch_plan import plan_sync, share_out, span_event
from flodl_core.dispatch.pacer import RankPacer
from flodl_core.dispatch.ranges import Range
from flodl_core.ids import Round, RoundOutcome, SyncOutcome
from flodl_core.messages.control import (
    Cut,
    EpochPlan,
    ExtendPartition,
    RequestParams,
    SetGlobalStep,
    StartEpoch,
    Update,
)
from flodl_core.messages.data import RoundEnd
from flodl_core.relay.machine import (
    EndRelay,
    FanOut,
    RankGone,
    RankReady,
    RelayMachine,
    RoundEndReceived,
    ShipRound,
)

BATCH = 3
IDLE = (Hold(HoldReason.WINDOW_FULL), Hold(HoldReason.PLAN_USED_UP))


class Rank:
    """A pacer, its inbox, and what it is doing."""

    def __init__(self, rank):
        self.pacer = RankPacer(rank, BATCH)
        self.inbox = deque()
        self.batch = None
        self.round_ended = None
        self.waits = True
        self.snapshot = None
        self.acked = -1
        self.trained = Counter()
        self.reported = 0


class World:
    """Two hosts, their ranks, a root and a coordinator, one step at a time."""

    def __init__(self, world, n_samples, *, counts=None):
        self.ranks = {rank: Rank(rank) for rank in range(world)}
        self.alive = set(self.ranks)
        first = list(range((world + 1) // 2))
        split = [first, [rank for rank in self.ranks if rank not in first]]
        self.hosts = [RelayMachine(ranks, has_buffers=False) for ranks in split if ranks]
        self.shipped = {}
        self.accounts = SampleAccounts()
        self.span = span_event(0, n_samples, splits=1, batch_size=BATCH)
        self.counts = counts
        self.pool = ChunkPool.from_counts(self.span.whole, BATCH, counts) if counts else None
        self.cycle = 0
        self.pending = True
        self.settled_cycle = -1
        self.global_step = 0
        self.started = False
        self.trained = Counter()
        self.send_all(RequestParams(cycle=0))

    # the coordinator

    def send_all(self, message):
        for rank in self.alive:
            self.ranks[rank].inbox.append(message)

    def next_plan(self, rank):
        part = self.pool.take(rank, self.counts[rank] * BATCH)
        self.accounts.assign(rank, 0, part)
        return EpochPlan(
            epoch=0, offset=part.offset, size=part.size, window_batches=self.counts[rank]
        )

    def deal(self):
        """Give everybody a plan; in Cadence also when what came back finds all idle."""
        if self.pool:
            plans = {rank: self.next_plan(rank) for rank in sorted(self.alive)}
        else:
            plans = plan_sync(self.span, sorted(self.alive), BATCH)
            for rank, plan in plans.items():
                self.accounts.assign(rank, 0, Range(plan.offset, plan.size))
        for rank, plan in plans.items():
            self.ranks[rank].inbox.append(StartEpoch(plan=plan))

    def coordinate(self, *, cut):
        """Finish the pending cycle, or open the next one if the gate allows it."""
        if self.pending:
            if all(self.ranks[rank].acked == self.cycle for rank in self.alive):
                self.finish()
        elif cut or all(self.is_idle(rank) for rank in self.alive):
            if any(self.accounts.outstanding_samples(rank) for rank in self.ranks):
                self.cycle += 1
                self.pending = True
                self.send_all((Cut if cut else RequestParams)(cycle=self.cycle))
            elif self.started and self.pool and self.pool.remaining_samples:
                self.deal()

    def is_idle(self, rank):
        ours = self.ranks[rank]
        return not ours.inbox and not ours.batch and ours.waits

    def finish(self):
        self.pending = False
        for rank in sorted(self.alive):
            plan = None
            if self.pool and self.started:
                self.return_to_pool(rank)
                plan = self.next_plan(rank)
            update = Update(version=self.cycle, cycle=self.cycle, next_plan=plan)
            self.ranks[rank].inbox += [update, SetGlobalStep(n=self.global_step)]
        if not self.started:
            self.started = True
            self.deal()

    def return_to_pool(self, rank):
        """After a cut the unworked rest goes back before the next plan is made."""
        if self.accounts.reclaim(rank):
            self.pool.forfeit(rank)

    def bury(self, rank):
        self.alive.discard(rank)
        for host in self.hosts:
            if rank in host.ranks:
                self.perform(host, host.handle(RankGone(rank), 0.0))
        snapshot = self.ranks[rank].snapshot
        undecided = self.pending and self.settled_cycle < self.cycle
        in_round = undecided and snapshot is not None and snapshot.cycle == self.cycle
        self.give_back(rank, keep=snapshot.samples if in_round else 0)

    def give_back(self, rank, *, keep):
        parts = [part for _, part in self.accounts.reclaim(rank, keep_samples=keep)]
        if self.pool:
            held = self.pool.outstanding(rank)
            kept = min(keep, sum(part.size for part in held))
            self.pool.complete(rank, kept)
            self.pool.forfeit(rank)
            return
        if not self.started or not self.alive:
            return
        for survivor, part in share_out(parts, sorted(self.alive), BATCH):
            self.accounts.assign(survivor, 0, part)
            self.ranks[survivor].inbox.append(
                ExtendPartition(epoch=0, offset=part.offset, size=part.size)
            )

    def commit(self, ranks):
        for rank in ranks:
            snapshot = self.ranks[rank].snapshot
            if snapshot.cycle != 0:
                for _, part in self.accounts.commit(rank, snapshot.samples):
                    self.trained.update(range(part.offset, part.end))
                if self.pool and rank in self.alive:
                    self.pool.complete(rank, snapshot.samples)
                self.global_step += snapshot.n

    # hosts and root

    def perform(self, host, effects):
        for effect in effects:
            if isinstance(effect, ShipRound):
                self.shipped[host] = effect
            elif isinstance(effect, FanOut):
                for rank in effect.ranks:
                    self.ranks[rank].round_ended = effect.round_end
            else:
                assert isinstance(effect, EndRelay)

    def root(self):
        """End the round when every host that has not ended has shipped it."""
        live = [host for host in self.hosts if host.phase != "ended"]
        if not live or any(host not in self.shipped for host in live):
            return
        round_of = {(ship.cycle, ship.round) for ship in self.shipped.values()}
        assert len(round_of) == 1
        cycle, kind = round_of.pop()
        ranks = sorted(rank for ship in self.shipped.values() for rank in ship.ranks)
        outcome = RoundOutcome.COMMITTED
        if kind is Round.CONTROL and not any(self.ranks[rank].snapshot.n for rank in ranks):
            outcome = RoundOutcome.UNREALIZED
        if kind is Round.PARAMS:
            self.commit(ranks)
        if kind is Round.PARAMS or outcome is RoundOutcome.UNREALIZED:
            self.settled_cycle = cycle
        self.shipped.clear()
        end = RoundEnd(
            cycle=cycle, round=kind, outcome=outcome, ranks_accepted=tuple(ranks), mass=1.0
        )
        for host in live:
            self.perform(host, host.handle(RoundEndReceived(end), 0.0))

    # a rank

    def step(self, rank):
        """One thing that the rank does: take a message, or go on with its work."""
        ours = self.ranks[rank]
        if ours.batch:
            ours.pacer.handle(BatchFinished(ours.batch.size, True))
            ours.batch = None
        elif ours.inbox:
            codes = [note.code for note in ours.pacer.handle(ours.inbox.popleft())]
            assert codes in ([], ["plan_replaced"])
        ours.waits = False
        self.act(rank, ours, ours.pacer.next_action())

    def act(self, rank, ours, action):
        if isinstance(action, TrainBatch):
            ours.batch = action
            ours.trained.update(range(action.offset, action.offset + action.size))
        elif isinstance(action, TakeSnapshot):
            ours.snapshot, ours.round_ended = action, None
            host = next(host for host in self.hosts if rank in host.ranks)
            self.perform(host, host.handle(RankReady(rank, action.cycle), 0.0))
        elif isinstance(action, AwaitRounds):
            self.adopt(ours, action.cycle)
        elif isinstance(action, ReportEpoch):
            ours.reported = sum(ours.trained.values())
            ours.waits = True
        else:
            assert isinstance(action, Hold)
            ours.waits = action in IDLE

    def adopt(self, ours, cycle):
        end = ours.round_ended
        if end is None or (end.round is Round.CONTROL and end.outcome is RoundOutcome.COMMITTED):
            return
        assert end.cycle == cycle
        committed = end.outcome is RoundOutcome.COMMITTED
        outcome = SyncOutcome.COMMITTED if committed else SyncOutcome.UNREALIZED
        ours.pacer.handle(CycleAdopted(cycle, outcome))
        ours.round_ended = None
        ours.acked = cycle

    # the whole

    def turn(self, data, deaths):
        order = data.draw(st.permutations(sorted(self.alive)))
        for rank in order[: data.draw(st.integers(1, len(order)))]:
            self.step(rank)
        if deaths and len(self.alive) > 1 and data.draw(st.integers(0, 19)) == 0:
            victim = data.draw(st.sampled_from(sorted(self.alive)))
            if self.cycle or not self.pending or victim:
                self.bury(victim)
        self.root()
        may_cut = bool(self.pool) and self.started and not self.pending
        self.coordinate(cut=may_cut and data.draw(st.integers(0, 24)) == 0)

    def drain(self):
        """Let everybody run to the end in a fixed order."""
        for _ in range(4000):
            for rank in sorted(self.alive):
                self.step(rank)
            self.root()
            self.coordinate(cut=False)
            if self.is_over():
                return
        raise AssertionError(f"still in cycle {self.cycle} with {self.trained.total()} trained")

    def is_over(self):
        settled = self.accounts.is_settled(0, self.span.whole.size)
        quiet = all(self.is_idle(rank) for rank in self.alive)
        return self.started and settled and not self.pending and quiet


def assert_every_sample_once(world):
    whole = world.span.whole
    assert world.trained == Counter(range(whole.offset, whole.end))
    world.accounts.check(0, whole)
    for rank in world.alive:
        ours = world.ranks[rank]
        attributed = world.accounts.attributed(rank, 0)
        assert sum(ours.trained.values()) == attributed
        assert ours.reported == attributed


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 5), st.integers(BATCH, 60))
def test_sync_trains_every_sample_once_whatever_the_order_and_whoever_dies(data, world, samples):
    ours = World(world, samples)
    for _ in range(data.draw(st.integers(0, 60))):
        ours.turn(data, deaths=True)
    ours.drain()
    assert_every_sample_once(ours)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.data(), st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(BATCH, 90))
def test_cadence_trains_every_sample_once_with_cuts_and_deaths(data, counts, samples):
    ours = World(len(counts), samples, counts=counts)
    for _ in range(data.draw(st.integers(0, 60))):
        ours.turn(data, deaths=True)
    ours.drain()
    assert_every_sample_once(ours)


def test_in_sync_every_window_is_one_batch_of_each_rank():
    world = World(3, 30)
    world.drain()
    assert_every_sample_once(world)
    assert world.cycle == 4
    assert world.global_step == 10
