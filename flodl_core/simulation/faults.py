"""What goes wrong, carried out: at its instant, or where its rank comes by.

What it is: the faults of a scenario with a count of every rank's visits to every
site. It remembers who was struck, so that the oracles know the innocent.
What it is not: the consequence; the machines under test draw it.
Who drives it: `simulation.world` at instants, ranks and hosts at sites.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from flodl_core.ids import HostName, Rank
from flodl_core.simulation.end_oracle import EndOracle
from flodl_core.simulation.scenario import Action, Fault, Scenario, Site
from flodl_core.simulation.sim_host import SimHost
from flodl_core.simulation.sim_rank import SimRank
from flodl_core.simulation.virtual_loop import VirtualLoop

BUSY_FACTOR = 1.5
"""A busy rank computes silently for this many heartbeat ceilings, but within its progress one."""

_HOST_ACTIONS = (Action.KILL_HOST, Action.CUT_LINK, Action.PARTITION)
_HARMLESS_HERE = (Action.POISON, Action.BUSY, Action.CUT_LINK, Action.PARTITION)
"""Faults after which the process that they strike goes on for a while."""


@dataclass(slots=True)
class HostStrikes:
    """What can be done to the link of a worker host; each says whether it took effect."""

    cut: Callable[[HostName], bool]
    partition: Callable[[HostName], bool]


class Faults:
    """The faults of one run."""

    def __init__(
        self,
        scenario: Scenario,
        loop: VirtualLoop,
        *,
        ranks: Mapping[Rank, SimRank],
        hosts: Mapping[HostName, SimHost],
        ends: EndOracle,
        strikes: HostStrikes,
    ) -> None:
        self._scenario, self._loop = scenario, loop
        self._ranks, self._hosts = ranks, hosts
        self._ends, self._strikes = ends, strikes
        self._visits: dict[tuple[Rank, Site], int] = {}

    def start(self) -> None:
        """Set the faults that strike at an instant."""
        for fault in self._scenario.faults:
            if fault.site is None:
                self._loop.after(fault.at_s, partial(self._strike_at_last, fault))

    def _strike_at_last(self, fault: Fault) -> None:
        self._apply(fault)

    def visit(self, rank: Rank, site: Site) -> bool:
        """A rank comes by a site; whether a fault there stops what it was about to do."""
        visits = self._visits[rank, site] = self._visits.get((rank, site), 0) + 1
        stops = False
        for fault in self._scenario.faults:
            if fault.site is site and fault.nth == visits and self._concerns(fault, rank, site):
                took_effect = self._apply(fault)
                stops = stops or (took_effect and fault.action not in _HARMLESS_HERE)
        return stops

    def _concerns(self, fault: Fault, rank: Rank, site: Site) -> bool:
        if site is Site.SHIP_BUCKET:
            return self._ranks[Rank(fault.rank)].host == self._ranks[rank].host
        return fault.rank == rank

    def _apply(self, fault: Fault) -> bool:
        """Carry out a fault; False if there is nothing left that it could strike."""
        rank = self._ranks[Rank(fault.rank)]
        if fault.action in _HOST_ACTIONS:
            took_effect = self._strike_host(fault.action, rank.host)
            if took_effect:
                self._ends.struck.update(self._hosts[rank.host].ranks)
                for other in self._hosts[rank.host].ranks:
                    self._ends.struck_silent(other, greeted=self._ranks[other].greeted)
        else:
            took_effect = rank.running
            if took_effect:
                self._strike_rank(fault, rank)
        if took_effect:
            self._ends.applied.add(fault.action)
        return took_effect

    def _strike_rank(self, fault: Fault, rank: SimRank) -> None:
        if fault.action is Action.BUSY:
            longest = 0.8 * self._scenario.progress_timeout_s
            silence = min(self._scenario.heartbeat_timeout_s * BUSY_FACTOR, longest)
            rank.busy_until = self._loop.now + silence
            return
        self._ends.struck.add(rank.rank)
        if fault.action in (Action.CRASH, Action.FREEZE, Action.RAISE):
            self._ends.struck_silent(rank.rank, greeted=rank.greeted)
        match fault.action:
            case Action.CRASH:
                rank.end("signal 9")
            case Action.FREEZE:
                rank.frozen = True
            case Action.STICK:
                rank.stuck = True
                self._ends.stuck_outside_batches |= fault.site is not Site.IN_BATCH
            case Action.RAISE:
                rank.raise_error()
            case _:
                rank.poisoned = fault.snapshots or -1

    def _strike_host(self, action: Action, name: HostName) -> bool:
        if action is Action.PARTITION:
            return self._strikes.partition(name)
        if not self._strikes.cut(name):
            return False
        if action is Action.KILL_HOST:
            host = self._hosts[name]
            host.stop()
            for rank in host.ranks:
                self._ranks[rank].running = False
        return True
