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

from coordinator_script import Script
from nccl_rank import RankProcess, Session

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
from flodl_core.ids import Cycle, Mode, Rank, RankPhase, Round, RoundOutcome
from flodl_core.machines import Tick
from flodl_core.messages import rendezvous, timing
from flodl_core.messages.data import RankTally

MOST_STEPS = 60_000


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
