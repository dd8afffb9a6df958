"""One rank of a simulated run on NCCL: a real pacer, a tiny model, its place in a cycle.

What it is: the bridge heeds messages as they arrive, the training thread acts when it is
scheduled; a collective is entered once and looked at again until all have entered it.
Averages, outer steps and what a broken session leaves follow `planes.nccl.cycle`.
What it is not: time; the world decides who goes on next.
Who drives it: `nccl_world`.
"""

from collections import deque
from collections.abc import Callable, Mapping

import numpy as np

from flodl_core.dispatch import actions
from flodl_core.dispatch.pacer import RankPacer
from flodl_core.ids import Cycle, Rank, SyncOutcome
from flodl_core.messages import control, rendezvous, timing
from flodl_core.messages.data import RankTally
from flodl_core.reduce.mass import gamma_mass, mover_mass
from flodl_core.reduce.outer import OuterAvg, OuterStep, rule_of
from flodl_core.reduce.velocity_cycles import velocity_up
from flodl_core.simulation.nccl_group import (
    Average,
    Brought,
    Completed,
    EnteredCall,
    Payload,
    SimGroup,
)
from flodl_core.simulation.nccl_home import Home, SimClaim, StarOffer
from flodl_core.simulation.nccl_words import batch_of, metrics_of, score_of
from flodl_core.simulation.rank_calls import Drawn
from flodl_core.simulation.scenario import Scenario
from flodl_core.simulation.tiny_model import F32, TinyModel

UID = bytes(128)
Then = Callable[[SimGroup, Mapping[Rank, Payload]], None]


class NcclRank:
    """One rank's process."""

    def __init__(self, rank: Rank, scenario: Scenario, model: TinyModel, home: Home) -> None:
        self.rank, self.model, self.home = rank, model, home
        self.pacer = RankPacer(rank, scenario.batch_size)
        self.running, self.left = True, False
        self.down: deque[object] = deque()
        self.broken_below = 0
        self.session = -1
        self.poisoned = 0
        self.recovered = 0
        """How many times it was given a cycle that it had not completed."""
        self._scenario = scenario
        rule = rule_of(scenario.outer)
        self._outer = None if isinstance(rule, OuterAvg) else OuterStep(rule)
        self._previous: F32 = model.params.copy()
        self._velocity: F32 = np.zeros_like(model.params)
        self._steps_next = False
        self._newest = Completed(-1, None)
        self._inbox: deque[object] = deque()
        self._drawn: list[Drawn] = []
        self._sums: dict[int, tuple[int, int]] = {}
        self._steps = 0
        self._claim: SimClaim | None = None
        self._at: tuple[int, Then] | None = None
        self._tallies: tuple[RankTally, ...] = ()
        self._told = Cycle(0)
        self._gave: set[int] = set()
        self._star: list[StarOffer] = []
        self._errand: actions.WriteCheckpoint | None = None
        self._is_restless = True
        """Whether the pacer may have something to do."""

    # the bridge

    def arrive(self, message: object) -> None:
        """A message came: sessions are heeded at once, the rest waits for the training thread."""
        match message:
            case control.DeclareDead():
                self._break(self.session + 1)
            case control.RequestNewNcclId():
                self._break(message.session)
                self.home.say(
                    self.rank,
                    timing.NewNcclIdGenerated(
                        rank=self.rank,
                        session=message.session,
                        uid=UID if message.makes_uid else b"",
                        completed_cycle=Cycle(self._newest.cycle),
                    ),
                )
            case control.NewNcclSession():
                self.home.join(self.rank, message)
            case rendezvous.Role(role=rendezvous.RoleKind.GENERATE):
                self.home.say(self.rank, rendezvous.Uid(uid=UID))
                self.home.join(self.rank, None)
            case rendezvous.Uid():
                self.home.join(self.rank, None)
        self._inbox.append(message)

    def _break(self, below: int) -> None:
        self.broken_below = max(self.broken_below, below)
        self._at = None

    def came_to(self, number: int) -> None:
        """This rank's communicator of a session is being formed."""
        self.session, self._at = max(self.session, number), None

    def _usable(self) -> SimGroup | None:
        group = self.home.group(self.session)
        is_fit = group is not None and group.is_formed and self.session >= self.broken_below
        return group if is_fit else None

    # the training thread

    def can_act(self) -> bool:
        """Return whether the training thread has anything to do."""
        return self.running and (bool(self._inbox) or self._step(look=True))

    def act(self) -> None:
        """Do one thing, after the messages that came."""
        skipped = (rendezvous.Role, rendezvous.Uid, control.CoordHeartbeat)
        while self._inbox:
            message = self._inbox.popleft()
            if not isinstance(message, skipped):
                self.pacer.handle(message)
                self._is_restless = True
        self._step(look=False)

    def _step(self, *, look: bool) -> bool:
        """Do one thing; with `look`, only say whether there is one."""
        if self._star:
            return self._star_step(look=look)
        group = self._usable()
        if self._at is not None or (group is not None and self._owes_recovery(group)):
            return self._collective_step(group, look=look)
        if self._claim is not None:
            return group is not None and (look or self._collective_step(group, look=False))
        if look:
            return self._is_restless
        self._is_restless = self._perform(self.pacer.next_action())
        return self._is_restless

    def _owes_recovery(self, group: SimGroup) -> bool:
        return group.source is not None and group.number not in self._gave

    def _perform(self, action: actions.Action) -> bool:
        """Do what the pacer says; return False if that is to wait."""
        match action:
            case actions.Hold() | actions.AwaitRounds():
                return False
            case actions.TrainBatch():
                self._train(action)
            case actions.TakeSnapshot():
                self._snapshot(action)
            case actions.ReportEpoch(epoch=epoch):
                self._report(epoch)
            case actions.WriteCheckpoint():
                self._publish(action)
            case actions.RunEval():
                self._evaluate(action)
            case actions.Leave():
                if self.left:
                    return False
                self.left = True
                self.home.say(self.rank, timing.Exiting(rank=self.rank))
                self.home.exits(self.rank)
        return True

    def _train(self, action: actions.TrainBatch) -> None:
        self._steps += 1
        loss = self.model.train(action.offset, action.size, applied=True)
        self._drawn.append((action.epoch, action.offset, action.size))
        batches, samples = self._sums.get(action.epoch, (0, 0))
        self._sums[action.epoch] = (batches + 1, samples + action.size)
        self.pacer.handle(actions.BatchFinished(action.size, applied=True))
        said = batch_of(self.rank, self._steps, samples=action.size, loss=loss)
        self.home.say(self.rank, said)

    def _snapshot(self, action: actions.TakeSnapshot) -> None:
        cycle, n, samples = action.cycle, action.n, action.samples
        drawn, self._drawn = self._drawn, []
        if cycle == 0:
            self.home.say(
                self.rank,
                timing.SnapshotReady(rank=self.rank, cycle=cycle, n=n, samples=samples),
            )
            is_first = self.rank == 0
            params = self.model.params.copy() if is_first else None
            buffers = self.model.buffers.copy() if is_first else None
            self._show(StarOffer(cycle, params, buffers, is_initial=True))
            return
        if self.poisoned:
            self.poisoned -= 1
            self.model.poison()
        values = np.concatenate((self.model.params, self.model.buffers))
        declared = not bool(np.isfinite(values).all())
        tally = RankTally(
            rank=self.rank, n=0 if declared else n, samples=samples, declared=declared
        )
        self._claim = SimClaim(cycle, tally)
        brought = Brought(self.model.params.copy(), self.model.buffers.copy())
        self.home.offered(self._claim, brought, drawn)

    def _report(self, epoch: int) -> None:
        batches, samples = self._sums.pop(epoch, (0, 0))
        said = metrics_of(self.rank, epoch, batches=batches, samples=samples)
        self.home.say(self.rank, said)

    def _evaluate(self, action: actions.RunEval) -> None:
        self.pacer.handle(actions.EvalFinished(action.schedule_id))
        self.home.say(self.rank, score_of(self.rank, action))

    # the root's cycles

    def _publish(self, action: actions.WriteCheckpoint) -> None:
        self._errand = action
        publish, brings = action.publish, action.tells_locals
        if publish is None:
            self._answer()
            return
        values = (self._previous.copy(), self.model.buffers.copy()) if brings else (None, None)
        if self._outer is not None and self._steps_next:
            velocity = self._velocity.copy() if brings else None
            self._show(StarOffer(velocity_up(publish), velocity))
        self._show(StarOffer(publish, *values))

    def _show(self, offer: StarOffer) -> None:
        self._star.append(offer)
        if len(self._star) == 1:
            self.home.show(self.rank, offer)

    def _star_step(self, *, look: bool) -> bool:
        ended = self.home.star_ended(self.rank)
        if ended is None or look:
            return ended is not None
        self.home.take_star(self.rank)
        self._star.pop(0)
        self.home.visit("star")
        if self._star:
            self.home.show(self.rank, self._star[0])
        elif ended.is_initial:
            self.model.adopt(ended.params, ended.buffers)
            self._previous = self.model.params.copy()
            self._acknowledge(Cycle(0), SyncOutcome.COMMITTED, 0)
        else:
            self._answer()
        return True

    def _answer(self) -> None:
        action, self._errand = self._errand, None
        assert action is not None
        self.pacer.handle(actions.CheckpointWritten(action.version))
        self._is_restless = True
        said = timing.CheckpointResult(
            rank=self.rank, version=action.version, elapsed_ms=1.0, local_buffers={}
        )
        self.home.say(self.rank, said)

    # collectives

    def _collective_step(self, group: SimGroup | None, *, look: bool) -> bool:
        if group is None:
            self._at = None
            return False
        if self._at is not None:
            at, then = self._at
            found = group.result(at)
            if found is None or look:
                return found is not None
            self._at = None
            then(group, found)
            return True
        if look:
            return True
        if self._owes_recovery(group):
            self._gave.add(group.number)
            self._enter(group, EnteredCall("RECOVER", None, self._newest), self._take_recovery)
        elif self._claim is not None:
            claim = self._claim
            self._enter(group, EnteredCall("COUNT", claim.cycle, claim.tally), self._take_counts)
        return True

    def _enter(self, group: SimGroup, entry: EnteredCall, then: Then) -> None:
        self._at = (group.enter(self.rank, entry), then)
        self.home.visit(entry.name)

    def _take_recovery(self, group: SimGroup, found: Mapping[Rank, Payload]) -> None:
        assert group.source is not None
        newest = found[group.source]
        assert isinstance(newest, Completed)
        if self._claim is not None and self._claim.cycle == newest.cycle:
            self.recovered += 1
            self._finish(newest)

    def _take_counts(self, group: SimGroup, found: Mapping[Rank, Payload]) -> None:
        claim = self._claim
        assert claim is not None
        if self._told != claim.cycle:
            self._told = claim.cycle
            tally = claim.tally
            said = timing.SnapshotReady(
                rank=self.rank,
                cycle=claim.cycle,
                n=tally.n,
                samples=tally.samples,
                declared=tally.declared,
            )
            self.home.say(self.rank, said)
        self._tallies = tuple(one for one in found.values() if isinstance(one, RankTally))
        if not any(one.n for one in self._tallies):
            self._finish(Completed(claim.cycle, None))
            return
        brought = Brought(self.model.params.copy(), self.model.buffers.copy())
        self._enter(group, EnteredCall("PARAM", claim.cycle, brought), self._take_sum)

    def _take_sum(self, _group: SimGroup, found: Mapping[Rank, Payload]) -> None:
        assert self._claim is not None
        gamma = self._scenario.gamma
        masses = [gamma_mass(one.n, gamma) for one in self._tallies]
        movers = [mover_mass(one.n) for one in self._tallies]
        parts = [found[one.rank] for one in self._tallies]
        values = [part for part in parts if isinstance(part, Brought)]
        average = Average(
            self._claim.cycle,
            _weighted([one.params for one in values], masses),
            _weighted([one.buffers for one in values], movers),
            self._tallies,
        )
        self._finish(Completed(average.cycle, average))
        self.home.visit("completed")

    def _finish(self, completed: Completed) -> None:
        """The cycle is completed: adopt what it came to, if it came to anything."""
        claim, self._claim, self._newest = self._claim, None, completed
        assert claim is not None
        outcome = SyncOutcome.UNREALIZED
        if completed.average is not None:
            self._adopt(completed.average)
            declared = claim.tally.declared
            outcome = SyncOutcome.DECLINED if declared else SyncOutcome.COMMITTED
        self._acknowledge(claim.cycle, outcome, claim.tally.samples)

    def _adopt(self, average: Average) -> None:
        new = average.params.copy()
        if self._outer is not None and self._steps_next:
            after = np.empty_like(self._velocity)
            is_finite = self._outer.step(
                new, previous=self._previous, before=self._velocity, after=after
            )
            assert is_finite, "simulated values are small"
            self._velocity = after
        self._steps_next = True
        self._previous = new
        self.model.adopt(new, average.buffers)
        self.home.adopted(self.rank, average, self._velocity)

    def _acknowledge(self, cycle: Cycle, outcome: SyncOutcome, samples: int) -> None:
        said = timing.SyncAck(
            rank=self.rank,
            cycle=cycle,
            outcome=outcome,
            step_count=self._steps,
            divergence=0.1 if outcome is SyncOutcome.COMMITTED else None,
            samples=samples,
        )
        self.home.say(self.rank, said)
        self.pacer.handle(actions.CycleAdopted(cycle, outcome))
        self._is_restless = True


def _weighted(values: list[F32], masses: list[float]) -> F32:
    """Return Σ factor · value in f32, in the order of ranks; who weighs nothing adds zeros."""
    total, whole = np.zeros_like(values[0]), sum(masses)
    for value, mass in zip(values, masses, strict=True):
        if mass > 0:
            total = total + np.float32(mass / whole) * value
    result: F32 = total.astype(np.float32)
    return result
