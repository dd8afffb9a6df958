"""One rank of a drawn cohort on NCCL: a real pacer, a value, and where it is in a cycle.

The bridge heeds messages as they arrive, the training thread acts when it is scheduled; a
collective is entered once and looked at again until every member has entered it.
"""

from collections import deque
from dataclasses import dataclass, field

from flodl_core.dispatch import actions
from flodl_core.dispatch.pacer import RankPacer
from flodl_core.ids import Cycle, Rank, SyncOutcome
from flodl_core.messages import control, rendezvous, timing
from flodl_core.messages.metrics import MetricsMsg

Drawn = tuple[int, int, int]


@dataclass
class Session:
    """One communicator: its members, and what each entered."""

    members: dict[int, int]
    source: int | None
    joined: set[int] = field(default_factory=set)
    entered: dict[int, list[tuple[str, object, object]]] = field(default_factory=dict)

    @property
    def formed(self):
        return self.joined == set(self.members)

    def enter(self, rank, name, cycle, payload):
        mine = self.entered.setdefault(rank, [])
        mine.append((name, cycle, payload))
        at = len(mine) - 1
        for other in self.entered.values():
            if len(other) > at:
                assert other[at][:2] == (name, cycle), f"phantom: {other[at]} beside {mine[at]}"
        return at

    def result(self, at):
        """Every member's payload, once all have entered; None before."""
        if any(len(self.entered.get(rank, ())) <= at for rank in self.members):
            return None
        return {rank: self.entered[rank][at][2] for rank in self.members}


class RankProcess:
    """One rank: a pacer, a value, and where it is in a cycle."""

    def __init__(self, world, rank):
        self.world, self.rank = world, rank
        self.pacer = RankPacer(Rank(rank), world.batch_size)
        self.running, self.left = True, False
        self.up, self.down, self.inbox = deque(), deque(), deque()
        self.value = ("own", rank)
        self.kept = None
        self.drawn: list[Drawn] = []
        self.sums = {}
        self.steps = 0
        self.session = self.broken_below = -1
        self.completed, self.completed_realized = -1, False
        self.claim = self.at = None
        self.told = 0
        self.recovered = set()
        self.star = None
        self.errand = None

    def say(self, message):
        self.up.append(message)

    # the bridge

    def arrive(self, message):
        match message:
            case control.DeclareDead():
                self.broken_below = max(self.broken_below, self.session + 1)
                self.at = None
            case control.RequestNewNcclId():
                self.broken_below = max(self.broken_below, message.session)
                self.at = None
                self.say(
                    timing.NewNcclIdGenerated(
                        rank=Rank(self.rank),
                        session=message.session,
                        uid=bytes(128) if message.makes_uid else b"",
                        completed_cycle=Cycle(self.completed),
                    )
                )
            case control.NewNcclSession():
                self.world.join(self.rank, message)
            case rendezvous.Uid():
                self.world.join_first(self.rank)
            case rendezvous.Role(role=rendezvous.RoleKind.GENERATE):
                self.say(rendezvous.Uid(uid=bytes(128)))
                self.world.join_first(self.rank)
        self.inbox.append(message)

    @property
    def usable(self):
        session = self.world.sessions.get(self.session)
        fit = session is not None and session.formed and self.session >= self.broken_below
        return session if fit else None

    # the training thread

    def can_act(self):
        return self.running and (bool(self.inbox) or self._progress(look=True))

    def act(self):
        while self.inbox:
            message = self.inbox.popleft()
            if not isinstance(message, rendezvous.Role | rendezvous.Uid | control.CoordHeartbeat):
                self.pacer.handle(message)
        self._progress(look=False)

    def _progress(self, *, look):
        """Do one thing; with `look`, say whether there is one."""
        if self.star is not None:
            return self._star_step(look=look)
        session = self.usable
        must_give = (
            session is not None
            and session.source is not None
            and self.session not in self.recovered
        )
        if self.at is not None or must_give:
            return self._collective_step(session, look=look)
        if self.claim is not None:
            return session is not None and (look or self._collective_step(session, look=False))
        if look:
            return not self.left and not self._is_idle()
        return self._perform(self.pacer.next_action())

    def _is_idle(self):
        pacer, pending = self.pacer, self.pacer.stage
        if pending is actions.CycleStage.REQUESTED or pacer._leave or pacer._checkpoints:
            return False
        if pending is not None:
            return True
        unreported = not pacer.uncommitted_samples and any(
            epoch != pacer.epoch or not pacer.samples_left for epoch in pacer._unreported
        )
        return pacer._hold() is not None and not (unreported or pacer._evals)

    def _perform(self, action):
        rank = Rank(self.rank)
        match action:
            case actions.TrainBatch():
                self._train(action)
            case actions.TakeSnapshot(cycle=cycle, n=n, samples=samples):
                drawn, self.drawn = self.drawn, []
                if cycle == 0:
                    self.say(timing.SnapshotReady(rank=rank, cycle=cycle, n=n, samples=samples))
                    self.star = cycle
                    self.world.star_ready(self.rank, ("initial", 0), n=n)
                else:
                    self.claim = (cycle, n, samples)
                    self.world.offers[cycle, self.rank] = drawn
            case actions.ReportEpoch(epoch=epoch):
                batches, samples = self.sums.pop(epoch, (0, 0))
                self.say(
                    MetricsMsg(
                        rank=rank,
                        epoch=epoch,
                        avg_loss=0.5 if samples else None,
                        batches_processed=batches,
                        samples_processed=samples,
                        epoch_ms=1.0,
                        share_complete_ms=1.0,
                        compute_only_ms=1.0,
                        data_starve_ms=0.0,
                        scalars={},
                    )
                )
            case actions.WriteCheckpoint():
                self.errand = action
                if action.publish is None:
                    self._answer(None)
                else:
                    assert not self.drawn, "a save after the next batch"
                    self.star = action.publish
                    brings = self.value if action.tells_locals else None
                    self.world.star_ready(self.rank, ("publish", action.publish), value=brings)
            case actions.RunEval():
                self.pacer.handle(actions.EvalFinished(action.schedule_id))
                self.say(
                    timing.EvalResult(
                        rank=rank,
                        schedule_id=action.schedule_id,
                        epoch=action.epoch,
                        metric=1.0,
                        metric_name="m",
                        elapsed_ms=1.0,
                    )
                )
            case actions.Leave():
                self.left = True
                self.say(timing.Exiting(rank=rank))
                self.world.exits(self.rank)
        return True

    def _train(self, action):
        self.steps += 1
        self.value = ("trained", self.rank, self.steps)
        self.drawn.append((action.epoch, action.offset, action.size))
        batches, samples = self.sums.get(action.epoch, (0, 0))
        self.sums[action.epoch] = (batches + 1, samples + action.size)
        self.pacer.handle(actions.BatchFinished(action.size, True))
        row = timing.Batch(
            batch_ms=10.0,
            data_ms=0.0,
            since_previous_ms=0.0,
            step_count=self.steps,
            samples=action.size,
            loss=0.5,
        )
        self.say(timing.Batches(rank=Rank(self.rank), rows=(row,)))

    def _answer(self, error):
        action, self.errand = self.errand, None
        self.pacer.handle(actions.CheckpointWritten(action.version))
        self.say(
            timing.CheckpointResult(
                rank=Rank(self.rank),
                version=action.version,
                elapsed_ms=1.0,
                error=error,
                local_buffers={},
            )
        )

    def _star_step(self, *, look):
        ended = self.world.star_ended(self.rank)
        if ended is None or look:
            return ended is not None
        self.star = None
        kind, value = ended
        if kind == "initial":
            self.value = self.kept = value
            self._acknowledge(Cycle(0), SyncOutcome.COMMITTED, 0)
        else:
            self._answer(None if value is not None else "not taken")
        return True

    def _collective_step(self, session, *, look):
        if session is None:
            self.at = None
            return False
        if self.at is not None:
            at, then = self.at
            found = session.result(at)
            if found is None or look:
                return found is not None
            self.at = None
            then(session, found)
            return True
        if look:
            return True
        if session.source is not None and self.session not in self.recovered:
            self.recovered.add(self.session)
            payload = (self.completed, self.completed_realized, self.kept)
            self._enter(session, "RECOVER", None, payload, self._recovered)
        elif self.claim is not None:
            cycle, n, samples = self.claim
            self._enter(session, "COUNT", cycle, (n, samples), self._counted)
        return True

    def _enter(self, session, name, cycle, payload, then):
        self.at = (session.enter(self.rank, name, cycle, payload), then)
        self.world.visit(name)

    def _recovered(self, session, found):
        completed, realized, kept = found[session.source]
        if self.claim is None or self.claim[0] != completed:
            return
        self.completed, self.completed_realized = completed, realized
        self._finish(kept if realized else None)

    def _counted(self, session, found):
        cycle, n, samples = self.claim
        if self.told != cycle:
            self.told = cycle
            self.say(timing.SnapshotReady(rank=Rank(self.rank), cycle=cycle, n=n, samples=samples))
        if not sum(one for one, _ in found.values()):
            self.completed, self.completed_realized = cycle, False
            self._finish(None)
            return
        self._enter(session, "PARAM", cycle, (self.value, n), self._reduced)

    def _reduced(self, session, found):
        cycle = self.claim[0]
        contributors = tuple(sorted(rank for rank, (_, n) in found.items() if n))
        value = ("average", cycle, tuple(sorted((r, v) for r, v in found.items())))
        self.world.note_average(cycle, value, contributors)
        self.completed, self.completed_realized = cycle, True
        self._finish(value)
        self.world.visit("completed")

    def _finish(self, value):
        cycle, _, samples = self.claim
        self.claim = None
        if value is not None:
            self.value = self.kept = value
        outcome = SyncOutcome.UNREALIZED if value is None else SyncOutcome.COMMITTED
        self._acknowledge(cycle, outcome, samples)

    def _acknowledge(self, cycle, outcome, samples):
        self.say(
            timing.SyncAck(
                rank=Rank(self.rank),
                cycle=cycle,
                outcome=outcome,
                step_count=self.steps,
                divergence=0.1 if outcome is SyncOutcome.COMMITTED else None,
                samples=samples,
            )
        )
        self.pacer.handle(actions.CycleAdopted(cycle, outcome))
