"""A whole run on NCCL in one process: the real coordinator and pacers, everything else drawn.

Whatever can happen next is picked by a generator with a seed: a message arrives, a rank
goes on, a collective ends at one of its members, a process dies inside one, values become
non-finite, an operator stops the run. A collective with a member that is gone never ends.

What it is: the seed's world, and the loop that ends when the coordinator says so.
What it is not: a model of time: it passes when nothing else happens, and sometimes so.
Who drives it: `simulation.simulate`, for the modes on NCCL.
"""

import random
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from flodl_core.coordinator.effects import (
    DeclareRankDead,
    EvictRank,
    RecordSamples,
    RunFinished,
    SaveBundle,
    Send,
)
from flodl_core.coordinator.events import (
    Event,
    RankLost,
    RankMessage,
    RoundEnded,
    SaveFinished,
    StopKind,
    StopRequested,
)
from flodl_core.coordinator.machine import Coordinator
from flodl_core.ids import Cycle, ExitCode, Rank, RankPhase, Round, RoundOutcome, Session
from flodl_core.machines import Tick
from flodl_core.messages import rendezvous, timing
from flodl_core.messages.control import NewNcclSession
from flodl_core.messages.data import RankTally
from flodl_core.simulation.formation import coordinator_settings, form_world
from flodl_core.simulation.lanes import through_codec
from flodl_core.simulation.nccl_group import Average, Brought, SimGroup
from flodl_core.simulation.nccl_home import SimClaim, StarOffer
from flodl_core.simulation.nccl_oracle import Held, NcclOracle
from flodl_core.simulation.nccl_rank import NcclRank
from flodl_core.simulation.outcome import Outcome
from flodl_core.simulation.rank_calls import Drawn
from flodl_core.simulation.rules import Rules
from flodl_core.simulation.scenario import Scenario
from flodl_core.simulation.tiny_model import F32, TinyModel
from flodl_core.simulation.virtual_loop import VirtualLoop
from flodl_core.units import Seconds

MOST_STEPS = 120_000
SITES = ("", "COUNT", "PARAM", "RECOVER", "completed", "star")
"""Where somebody dies; the first is anywhere."""


@dataclass(slots=True)
class NcclFaults:
    """What goes wrong, by steps of the world.

    Attributes:
        kill_at: earliest step of each death; rank 0 lives at least to the first average.
        site: where they strike.
        poison_at: when some rank's values become non-finite.
        stop_at: when an operator stops the run.
    """

    kill_at: list[int] = field(default_factory=list)
    site: str = ""
    poison_at: list[int] = field(default_factory=list)
    stop_at: list[int] = field(default_factory=list)


def draw_faults(rng: random.Random) -> NcclFaults:
    """Return the faults of a seed."""
    kills = rng.choice((0, 0, 1, 1, 2, 3))
    return NcclFaults(
        kill_at=sorted(rng.randint(20, 900) for _ in range(kills)),
        site=rng.choice(SITES),
        poison_at=[rng.randint(20, 600)] if rng.random() < 0.25 else [],
        stop_at=[rng.randint(50, 900)] if rng.random() < 0.15 else [],
    )


class NcclWorld:
    """A run on NCCL, drawn from a scenario's seed.

    Args:
        scenario: its work, its hosts and its numbers; its faults and orders are not used.
        faults: what goes wrong; drawn from the seed if None.
    """

    def __init__(self, scenario: Scenario, faults: NcclFaults | None = None) -> None:
        self.scenario = scenario
        self._rng = scenario.rng("nccl world")
        loop = VirtualLoop()
        self._envelope = form_world(scenario, loop).envelope
        self._now: Seconds = loop.now
        self._began = loop.now
        self.rules = Rules(scenario, lambda: self._now)
        self.oracle = NcclOracle(self.rules)
        self._machine = Coordinator(
            self._envelope,
            coordinator_settings(scenario),
            has_eval=scenario.has_eval,
            local_host=self._envelope.hosts[0].host if scenario.local else None,
        )
        world = range(scenario.world_size)
        self.ranks = {
            Rank(number): NcclRank(
                Rank(number), scenario, TinyModel(Rank(number), self._envelope.geometry), self
            )
            for number in world
        }
        self._up: dict[Rank, deque[object]] = {rank: deque() for rank in self.ranks}
        self._own: deque[Event] = deque()
        self._groups: dict[int, SimGroup] = {}
        self._rosters: dict[int, dict[Rank, Rank]] = {}
        """By session, and by place in it: who was told."""
        self._at_root = set(self.ranks)
        self._slots: dict[Rank, StarOffer] = {}
        self._ended: dict[Rank, StarOffer] = {}
        self._brought: dict[int, StarOffer] = {}
        self._finished: RunFinished | None = None
        self._lost = 0
        self._steps = 0
        self._events = 0
        self._slow = self._rng.choice(tuple(self.ranks))
        self._faults = faults or draw_faults(self._rng)

    # what a rank has around it

    def say(self, rank: Rank, message: object) -> None:
        """Send to the coordinator."""
        self._up[rank].append(through_codec(message) if self.scenario.wire else message)

    def join(self, rank: Rank, message: NewNcclSession | None) -> None:
        """Come to the session that a message names, or to the first one."""
        number, source = 0, None
        members = tuple(self.ranks)
        if message is not None:
            number = message.session
            roster = self._rosters[number]
            members = tuple(roster[place] for place in sorted(roster))
            source = None if message.consensus_from is None else roster[message.consensus_from]
        group = self._groups.setdefault(number, SimGroup(number, members, source))
        one = self.ranks[rank]
        if number < one.broken_below:
            return
        group.joined.add(rank)
        one.came_to(number)
        for member in group.members if group.is_formed else ():
            if self.ranks[member].running:
                self.say(member, timing.NcclSessionFormed(rank=member, session=Session(number)))

    def group(self, number: int) -> SimGroup | None:
        """Return a session's communicator."""
        return self._groups.get(number)

    def show(self, rank: Rank, offer: StarOffer) -> None:
        """Show the root a slot."""
        for other in self._slots.values():
            fits = other.cycle == offer.cycle
            self.rules.require(fits, "root", f"rank {rank} in {offer.cycle} beside {other.cycle}")
        self._slots[rank] = offer
        self._review_root()

    def star_ended(self, rank: Rank) -> StarOffer | None:
        """Return what the root's cycle came to; the initial one once the coordinator knows."""
        ended = self._ended.get(rank)
        return None if ended is not None and ended.is_initial and self._own else ended

    def take_star(self, rank: Rank) -> None:
        """Take that."""
        ended = self._ended.pop(rank)
        if ended.is_initial and ended.params is not None:
            self.oracle.began(rank, ended.params)

    def offered(self, claim: SimClaim, values: Brought, drawn: list[Drawn]) -> None:
        """A claim was made."""
        self.oracle.offered(claim, values, drawn)

    def adopted(self, rank: Rank, average: Average, velocity: F32) -> None:
        """A rank holds what it made of an average."""
        held = Held(
            average.cycle, self.ranks[rank].model.params.copy(), velocity.copy(), is_average=True
        )
        self.oracle.adopted(rank, average, held, alive=self._running())

    @property
    def sessions(self) -> int:
        """How many sessions were formed, or begun."""
        return len(self._groups)

    @property
    def recovered(self) -> int:
        """How many times a rank was given a cycle that it had not completed."""
        return sum(one.recovered for one in self.ranks.values())

    def visit(self, site: str) -> None:
        """Somebody dies here, if it is due."""
        faults = self._faults
        if site == faults.site and faults.kill_at and self._steps >= faults.kill_at[0]:
            faults.kill_at.pop(0)
            victims = sorted(self._running())
            if Rank(0) in victims and not any(one.is_average for one in self.oracle.held()):
                victims.remove(Rank(0))
            if victims:
                self._kill(self._rng.choice(victims))

    def exits(self, rank: Rank) -> None:
        """The process ends by itself."""
        self._kill(rank)

    def _running(self) -> set[Rank]:
        return {rank for rank, one in self.ranks.items() if one.running}

    def _kill(self, rank: Rank) -> None:
        one = self.ranks[rank]
        if one.running:
            one.running = False
            one.down.clear()
            self._lost += not one.left
            self._up[rank].append(None)

    # the root

    def _review_root(self) -> None:
        """End the root's cycle once every rank that it waits for has shown itself."""
        if not self._slots or not self._at_root <= set(self._slots):
            return
        offers = [self._slots[rank] for rank in sorted(self._slots)]
        whole = next((one for one in offers if one.params is not None), offers[0])
        self._brought[whole.cycle] = whole
        members = sorted(self._slots)
        self._slots.clear()
        self._ended.update(dict.fromkeys(members, whole))
        if whole.is_initial:
            self._own.extend(self._initial_rounds(members))

    def _initial_rounds(self, members: list[Rank]) -> list[RoundEnded]:
        tallies = tuple(
            RankTally(rank=rank, n=int(rank == 0), samples=0, declared=False) for rank in members
        )
        rounds = [Round.CONTROL, Round.PARAMS]
        if self.scenario.buffer_buckets:
            rounds.append(Round.BUFFERS)
        return [
            RoundEnded(Cycle(0), one, RoundOutcome.COMMITTED, (Rank(0),), 1.0, tallies=tallies)
            for one in rounds
        ]

    # the launcher

    def _handle(self, event: Event) -> None:
        self._events += 1
        effects = self._machine.handle(event, self._now)
        self._machine.check()
        for effect in effects:
            match effect:
                case Send(rank=rank, message=message):
                    if isinstance(message, NewNcclSession):
                        roster = self._rosters.setdefault(message.session, {})
                        roster[message.new_rank] = rank
                    if self.ranks[rank].running:
                        coded = through_codec(message) if self.scenario.wire else message
                        self.ranks[rank].down.append(coded)
                case DeclareRankDead(rank=rank) | EvictRank(rank=rank):
                    self._at_root.discard(rank)
                    self._kill(rank)
                    self._slots.pop(rank, None)
                    self._review_root()
                case RecordSamples(entries=entries):
                    for entry in entries:
                        self.oracle.recorded(entry)
                case SaveBundle():
                    flaw = self.oracle.flaw_of(effect, self._brought)
                    self._own.append(SaveFinished(effect.version, flaw))
                case RunFinished():
                    self._finished = effect

    # the run

    def run(self) -> Outcome:
        """Drive the run until it is over."""
        for rank in self.ranks:
            hello = rendezvous.RendezvousHello(
                dataset_sig=self._envelope.dataset_sig,
                global_rank=rank,
                host_name=next(one.host for one in self._envelope.hosts if rank in one.ranks),
            )
            self.say(rank, hello)
        self._handle(Tick())
        while self._finished is None:
            self._steps += 1
            self.rules.require(self._steps < MOST_STEPS, "always ends", self._stuck_text())
            self.visit("")
            self._interfere()
            self._step()
        finished = self._finished
        alive = {rank for rank, one in self.ranks.items() if one.running or one.left}
        self.oracle.ended(is_finished=finished.reason == "finished", alive=alive)
        return Outcome(
            seed=self.scenario.seed,
            exit_code=finished.exit_code,
            reason=finished.reason,
            detail=finished.detail,
            ended_at_s=self._now - self._began,
            events=self._events,
            syncs=self._machine.view(self._now).training.syncs,
            trained=len(self.oracle.trained) - self.oracle.dropped,
            dropped=self.oracle.dropped,
            saves=self.oracle.saves,
            lost=self._lost,
        )

    def _stuck_text(self) -> str:
        if self._steps < MOST_STEPS:
            return ""
        view = self._machine.view(self._now)
        return f"{self._steps} steps; {view.stage} {view.reason} {view.waits}"

    def _interfere(self) -> None:
        poison_at, stop_at = self._faults.poison_at, self._faults.stop_at
        if poison_at and self._steps >= poison_at[0]:
            poison_at.pop(0)
            rank = self._rng.choice(tuple(self.ranks))
            self.ranks[rank].poisoned = self._rng.choice((1, 2, 5))
        if stop_at and self._steps >= stop_at[0]:
            stop_at.pop(0)
            stop = StopRequested(StopKind.SAVE, ExitCode.STOPPED_SAVED, "operator")
            self._own.append(stop)

    def _step(self) -> None:
        rng, ranks = self._rng, self.ranks
        choices = [("up", rank) for rank, said in self._up.items() if said]
        choices += [("down", rank) for rank, one in ranks.items() if one.running and one.down]
        choices += [("own", Rank(0))] * bool(self._own)
        able = [rank for rank, one in ranks.items() if one.can_act()]
        quick = [rank for rank in able if rank != self._slow or rng.random() < 0.1]
        choices += [("act", rank) for rank in (quick if choices or quick else able)]
        if not choices or rng.random() < 0.02:
            self._let_time_pass()
            return
        what, rank = rng.choice(choices)
        self._now += 0.001
        if what == "up":
            message = self._up[rank].popleft()
            lost = RankLost(rank, "signal 9")
            self._handle(lost if message is None else RankMessage(rank, message))
        elif what == "down":
            ranks[rank].arrive(ranks[rank].down.popleft())
        elif what == "own":
            self._handle(self._own.popleft())
        else:
            ranks[rank].act()

    def _let_time_pass(self) -> None:
        due = self._machine.deadline()
        soon = self._now + 1.0
        self._now = max(self._now + 0.01, min(due if due is not None else soon, soon))
        for rank, one in self.ranks.items():
            if one.running:
                beat = timing.Heartbeat(rank=rank, step_count=0, phase=RankPhase.TRAINING)
                self._handle(RankMessage(rank, beat))
        if self._finished is None:
            self._handle(Tick())


def values_of(world: NcclWorld) -> tuple[F32, ...]:
    """Return what each rank that is there at the end holds."""
    held = [world.oracle.holding.get(rank) for rank, one in world.ranks.items() if one.left]
    return tuple(np.array(one.params) for one in held if one is not None)
