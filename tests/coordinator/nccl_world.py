"""A cohort on NCCL in one process: the real coordinator and pacers, everything else drawn.

Whatever can happen next is picked by a generator with a seed: a message arrives, a rank
goes on, a collective ends at one of its members, a process dies. A collective with a
member that is gone never ends. `World.run` ends when the coordinator says so, and checks:

    alike        members of a session enter the same collectives in the same order
    one value    everybody who adopts a cycle adopts the same, of those who took part in it
    samples      a recorded sample was in a contribution that is in the average, once
"""

import random
from collections import deque
from dataclasses import dataclass, field

from coordinator_script import Script

from flodl_core.coordinator.effects import (
    DeclareRankDead,
    EvictRank,
    RecordSamples,
    RunFinished,
    SampleStatus,
    SaveBundle,
    Send,
)
from flodl_core.coordinator.events import RankLost, RankMessage, RoundEnded, SaveFinished
from flodl_core.dispatch import actions
from flodl_core.dispatch.pacer import RankPacer
from flodl_core.ids import Cycle, Mode, Rank, RankPhase, Round, RoundOutcome, SyncOutcome
from flodl_core.machines import Tick
from flodl_core.messages import control, rendezvous, timing
from flodl_core.messages.data import RankTally
from flodl_core.messages.metrics import MetricsMsg

MOST_STEPS = 60_000
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


class World:
    """A run on NCCL, drawn from a seed."""

    def __init__(self, seed, *, mode=Mode.NCCL_CADENCE, kills=0, ranks=None, **numbers):
        self.rng = random.Random(seed)
        self.size = ranks or self.rng.randint(2, 5)
        self.batch_size, samples = 2, numbers.pop("n_samples", None)
        self.n_samples = samples or 2 * self.rng.randint(self.size, 10 * self.size)
        self.script = Script(
            (("red", self.size),),
            mode=mode,
            n_samples=self.n_samples,
            epochs=numbers.pop("epochs", self.rng.choice((1, 2))),
            batch_size=self.batch_size,
            buffers=self.rng.choice((0, 2)),
            settings={"checkpoint_every_s": self.rng.choice((None, 0.3))} | numbers,
        )
        self.kills = kills
        self.kill_at = sorted(self.rng.randint(20, 700) for _ in range(kills))
        self.slow = self.rng.randrange(self.size)
        """Whose training thread is seldom scheduled."""
        self.strikes = self.rng.choice(("", "COUNT", "PARAM", "completed"))
        """Where somebody dies instead, once its moment has come."""
        self.ranks = {rank: RankProcess(self, rank) for rank in range(self.size)}
        self.sessions: dict[int, Session] = {}
        self.offers, self.averages = {}, {}
        self.lost, self.at_root = deque(), set(range(self.size))
        self.star: dict[int, tuple] = {}
        self.star_key, self.ended_star = None, {}
        self.published = {}
        self.trained, self.finished, self.saves = {}, None, []
        self.steps = 0

    # the launcher

    def handle(self, event):
        for effect in self.script.handle(event):
            match effect:
                case Send(rank=rank, message=message):
                    if self.ranks[rank].running:
                        self.ranks[rank].down.append(message)
                case DeclareRankDead(rank=rank) | EvictRank(rank=rank):
                    self.at_root.discard(int(rank))
                    self.kill(int(rank))
                    self._star_review()
                case RecordSamples(entries=entries):
                    for entry in entries:
                        self._record(entry)
                case SaveBundle():
                    self._save(effect)
                case RunFinished():
                    self.finished = effect

    def _record(self, entry):
        assert entry.status is SampleStatus.TRAINED, entry
        _, contributors = self.averages[entry.cycle]
        assert entry.rank in contributors, f"{entry} is not in the average of {contributors}"
        told = [(entry.epoch, p) for r in entry.ranges for p in range(r.offset, r.end)]
        drawn = self.offers[entry.cycle, entry.rank]
        assert told == [(e, p) for e, at, size in drawn for p in range(at, at + size)]
        for one in told:
            assert one not in self.trained, f"{one} twice"
            self.trained[one] = entry.cycle

    def _save(self, effect):
        assert effect.held_as is not None
        held = self.published.get(effect.held_as)
        version = effect.facts.sync_round
        expected = self.averages[version][0] if version else self.published.get(0)
        error = None if held is not None and held == expected else "nobody brought it"
        self.saves.append((version, error))
        self.lost.append(SaveFinished(effect.version, error))

    def note_average(self, cycle, value, contributors):
        """A member completed a cycle; another average of it can only be of ranks that died."""
        known = self.averages.get(cycle, (value, contributors))
        holders = [one.rank for one in self.ranks.values() if one.running and one.kept == known[0]]
        assert known[0] == value or not holders, f"two averages of cycle {cycle}: {holders}"
        self.averages[cycle] = value, contributors

    # the star

    def star_ready(self, rank, key, n=0, value=None):
        assert self.star_key in (None, key), f"{key} beside {self.star_key}"
        self.star_key = key
        self.star[rank] = value if key[0] == "publish" else (self.ranks[rank].value if n else None)
        self._star_review()

    def _star_review(self):
        if self.star_key is None or not self.at_root <= set(self.star):
            return
        (kind, number), values = self.star_key, list(self.star.values())
        brought = next((one for one in values if one is not None), None)
        if brought is not None:
            self.published[number] = brought
        for rank in self.star:
            self.ended_star[rank] = (kind, brought)
        if kind == "initial":
            tallies = tuple(
                RankTally(rank=Rank(rank), n=int(rank == 0), samples=0, declared=False)
                for rank in sorted(self.star)
            )
            rounds = [Round.CONTROL, Round.PARAMS]
            if self.script.buffers:
                rounds.append(Round.BUFFERS)
            for one in rounds:
                ended = RoundEnded(
                    Cycle(0), one, RoundOutcome.COMMITTED, (Rank(0),), 1.0, tallies=tallies
                )
                self.lost.append(ended)
        self.star, self.star_key = {}, None

    def star_ended(self, rank):
        found = self.ended_star.get(rank)
        if found is not None and self.ranks[rank].star is not None:
            if found[0] == "initial" and self.lost:
                return None
            return self.ended_star.pop(rank) if self._takes else found
        return None

    _takes = False

    # the fabric

    def join_first(self, rank):
        members = {one: one for one in range(self.size)}
        self._join(rank, 0, members, None)

    def join(self, rank, message):
        members = self.script.machine._state.nccl.members
        if message.new_world_size != len(members):
            return
        source = message.consensus_from
        places = {int(one): place for place, one in enumerate(members)}
        self._join(rank, message.session, places, None if source is None else int(members[source]))

    def _join(self, rank, number, members, source):
        session = self.sessions.setdefault(number, Session(members, source))
        if session.members != members:
            return
        process = self.ranks[rank]
        if number < process.broken_below:
            return
        session.joined.add(rank)
        process.session = max(process.session, number)
        process.at = None
        if session.formed:
            for member in session.members:
                if self.ranks[member].running:
                    self.ranks[member].say(
                        timing.NcclSessionFormed(rank=Rank(member), session=number)
                    )

    # deaths

    def kill(self, rank):
        process = self.ranks[rank]
        if process.running:
            process.running = False
            process.down.clear()
            process.up.append(None)

    def exits(self, rank):
        self.kill(rank)

    # the run

    def run(self):
        for rank, process in self.ranks.items():
            process.say(
                rendezvous.RendezvousHello(
                    dataset_sig=self.script.envelope.dataset_sig,
                    global_rank=Rank(rank),
                    host_name=self.script.envelope.hosts[0].host,
                )
            )
        self.handle(Tick())
        while self.finished is None:
            self.steps += 1
            assert self.steps < MOST_STEPS, self._stuck_text()
            self.visit("")
            self._step()
        return self.finished

    def _stuck_text(self):
        view = self.script.machine.view(self.script.now)
        return f"stuck: {view.stage} {view.reason} {view.waits}"

    def visit(self, site):
        """Something happens in a cycle, or time has passed: somebody dies there if it is due."""
        if site == self.strikes and self.kill_at and self.steps >= self.kill_at[0]:
            self.kill_at.pop(0)
            self._kill_one()

    def _kill_one(self):
        running = [rank for rank, one in self.ranks.items() if one.running and rank > 0]
        if running:
            self.kill(self.rng.choice(running))

    def _step(self):
        choices = [("up", rank) for rank, one in self.ranks.items() if one.up]
        choices += [("down", rank) for rank, one in self.ranks.items() if one.running and one.down]
        choices += [
            ("act", rank)
            for rank, one in self.ranks.items()
            if one.can_act() and (rank != self.slow or self.rng.random() < 0.1)
        ]
        choices += [("own", 0)] * bool(self.lost)
        if not choices or self.rng.random() < 0.02:
            self._let_time_pass()
            return
        what, rank = self.rng.choice(choices)
        process = self.ranks[rank]
        self.script.now += 0.001
        if what == "up":
            message = process.up.popleft()
            lost = RankLost(Rank(rank), "signal 9")
            self.handle(lost if message is None else RankMessage(Rank(rank), message))
        elif what == "down":
            process.arrive(process.down.popleft())
        elif what == "own":
            self.handle(self.lost.popleft())
        else:
            self._takes = True
            process.act()
            self._takes = False

    def _let_time_pass(self):
        due = self.script.machine.deadline()
        now = self.script.now
        self.script.now = max(now + 0.01, min(due if due is not None else now + 1.0, now + 1.0))
        for rank, process in self.ranks.items():
            if process.running:
                beat = timing.Heartbeat(rank=Rank(rank), step_count=0, phase=RankPhase.TRAINING)
                self.handle(RankMessage(Rank(rank), beat))
        if self.finished is None:
            self.handle(Tick())
