"""A whole run in one process: real machines, simulated everything else.

What it is: hosts, ranks, root and launcher tied together by lanes, the faults of the
scenario carried out, and the run driven until it ends. `simulate` is a function of
its seed: the same seed, the same run.
What it is not: a model of speed; delays are drawn to find orders, not to predict.
Who drives it: tests, and `python -m flodl_core.simulation`.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from flodl_core.coordinator.events import (
    CheckpointRequested,
    DrainRequested,
    HostStatsReported,
    RankLost,
    RankMessage,
    RoundEnded,
    StopRequested,
)
from flodl_core.coordinator.machine import Coordinator
from flodl_core.ids import Cycle, HostName, Rank, SyncOutcome
from flodl_core.membership.events import DeclareHostLost, MemberLeft
from flodl_core.messages.data import BucketFrame
from flodl_core.messages.job import Envelope
from flodl_core.messages.join import HostStats
from flodl_core.simulation.end_oracle import EndOracle
from flodl_core.simulation.faults import Faults, HostStrikes
from flodl_core.simulation.formation import coordinator_settings, form_world
from flodl_core.simulation.lanes import Delays, Lane, through_codec
from flodl_core.simulation.oracles import Oracles
from flodl_core.simulation.outcome import Outcome
from flodl_core.simulation.rank_calls import RankCalls
from flodl_core.simulation.rules import Rules
from flodl_core.simulation.scenario import Action, Order, Scenario
from flodl_core.simulation.sim_host import HostCalls, SimHost
from flodl_core.simulation.sim_launcher import LauncherCalls, SimLauncher
from flodl_core.simulation.sim_rank import SimRank
from flodl_core.simulation.sim_root import Committed, HostSide, SimRoot
from flodl_core.simulation.tiny_model import F32
from flodl_core.simulation.value_oracle import ValueOracle
from flodl_core.simulation.virtual_loop import VirtualLoop
from flodl_core.simulation.wires import HostWires, RankWires
from flodl_core.units import Seconds

T = TypeVar("T")

MOST_STEPS = 400_000
LONGEST_RUN_S: Seconds = 3000.0
NOTICE_S: Seconds = 1.0
"""Usual time from the end of a process to the news of it."""


class World:
    """Everything of one run.

    Raises:
        SimulationFailure: the join window closed without a world although every
            host dialled in.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.loop, self.rng = VirtualLoop(), scenario.rng("world")
        self.rules = Rules(scenario, lambda: self.loop.now)
        self.oracles = Oracles(self.rules, ValueOracle(self.rules), EndOracle(self.rules))
        self._formed = form_world(scenario, self.loop)
        self.envelope: Envelope = self._formed.envelope
        self.local = self.envelope.hosts[0].host if scenario.local else None
        self._lanes = 0
        self._cut: set[HostName] = set()
        self._partitioned: set[HostName] = set()
        self._dismissed: set[HostName] = set()
        self.ranks: dict[Rank, SimRank] = {}
        self.hosts: dict[HostName, SimHost] = {}
        self._wires: dict[Rank, RankWires] = {}
        self._host_wires: dict[HostName, HostWires] = {}
        self._host_of: dict[Rank, HostName] = {}
        self._open_lanes = {entry.host: len(entry.ranks) + 1 for entry in self.envelope.hosts}
        sides = [self._build_host(entry.host, entry.ranks) for entry in self.envelope.hosts]
        saved = scenario.saved
        coordinator = self.coordinator = Coordinator(
            self.envelope,
            coordinator_settings(scenario),
            has_eval=scenario.has_eval,
            local_host=self.local,
            resume=saved.point_for(scenario.world_size) if saved is not None else None,
        )
        self.root = SimRoot(scenario, sides, report=self._round_ended, watcher=self)
        self.faults = Faults(
            scenario,
            self.loop,
            ranks=self.ranks,
            hosts=self.hosts,
            ends=self.oracles.ends,
            strikes=HostStrikes(cut=self._cut_link, partition=self._partition),
        )
        self.launcher = SimLauncher(
            scenario,
            self.loop,
            coordinator,
            root=self.root,
            oracles=self.oracles,
            calls=LauncherCalls(
                send=self._send,
                end_rank=self._end_rank,
                close_host=self._close,
                dismiss_host=self._dismissed.add,
                finished=self._stop,
            ),
        )

    # building

    def _lane(
        self,
        delays: Delays,
        deliver: Callable[[T], None],
        on_end: Callable[[], None] = lambda: None,
    ) -> Lane[T]:
        self._lanes += 1
        rng = self.scenario.rng("lane", self._lanes)
        return Lane(self.loop, rng, delays=delays, deliver=deliver, on_end=on_end)

    def _build_host(self, name: HostName, ranks: tuple[Rank, ...]) -> HostSide:
        is_local = name == self.local
        delays = self.scenario.local_delays if is_local else self.scenario.link_delays

        lane = partial(self._lane, delays)
        side: HostSide
        host: SimHost
        wires = HostWires(
            buckets_up=lane(
                lambda bucket: self.root.take_bucket(side, bucket), lambda: self._lane_ended(name)
            ),
            buckets_down=lane(lambda bucket: host.take_bucket(bucket)),
            messages_down=lane(
                lambda message: host.take_message(message), lambda: host.upstream_closed()
            ),
        )
        side = HostSide(
            host=name,
            ranks=ranks,
            send_bucket=wires.buckets_down.send,
            send=lambda message: wires.messages_down.send(self._coded(message)),
            alive=set(ranks),
        )
        host = SimHost(
            self.scenario,
            self.loop,
            name,
            ranks,
            HostCalls(
                send_up=wires.buckets_up.send,
                fan_out=lambda rank, end: self._wires[rank].round_ends.send(end),
                relay_ended=lambda: self._relay_ended(name),
                drop_rank=lambda rank, why: self.ranks[rank].end(why),
                strike=lambda rank, site: self.faults.visit(rank, site),
            ),
        )
        self.hosts[name] = host
        self._host_wires[name] = wires
        for rank in ranks:
            self._host_of[rank] = name
            self._build_rank(rank, host, is_local=is_local)
        return side

    def _build_rank(self, rank: Rank, host: SimHost, *, is_local: bool) -> None:
        scenario = self.scenario
        far = scenario.local_delays if is_local else scenario.link_delays

        near = scenario.local_delays
        self._wires[rank] = RankWires(
            control_up=self._lane(
                far,
                lambda said: self.launcher.post(RankMessage(rank, said)),
                lambda: self._lane_ended(host.host),
            ),
            control_down=self._lane(far, lambda message: self.ranks[rank].take_message(message)),
            marks=self._lane(
                near,
                lambda mark: host.rank_ready(rank, mark[0], mark[1]),
                lambda: host.rank_gone(rank),
            ),
            round_ends=self._lane(near, lambda end: self.ranks[rank].take_round_end(end)),
        )
        self.ranks[rank] = SimRank(
            scenario,
            self.loop,
            rank=rank,
            host=host.host,
            geometry=self.envelope.geometry,
            calls=RankCalls(
                say=lambda said: self._wires[rank].control_up.send(self._coded(said)),
                mark=lambda cycle, slot: self._wires[rank].marks.send((cycle, slot)),
                staging=lambda: (host.params, host.buffers),
                exited=lambda cause: self._exited(rank, cause),
                strike=lambda site: self.faults.visit(rank, site),
                snapshot_taken=self.oracles.snapshot_taken,
                acknowledged=partial(self._acknowledged, rank),
                checkpoint_read=lambda version: self._checkpoint_read(rank, version),
            ),
        )

    def _coded(self, message: object) -> object:
        return through_codec(message) if self.scenario.wire else message

    # running

    def run(self) -> Outcome:
        """Drive the run until it is over."""
        start = self.loop.now
        self.launcher.start()
        for rank in self.ranks.values():
            rank.start(self.envelope.dataset_sig)
        self.faults.start()
        for order in self.scenario.orders:
            self.loop.at(start + order.at_s, partial(self._obey, order))
        if any(fault.action is Action.BUSY for fault in self.scenario.faults):
            self.loop.after(1.0, self._report_stats)
        while self.oracles.ends.finished is None:
            self.rules.require(self.loop.step(), "always ends", "nothing is left to happen")
            ended = self.loop.now - start > LONGEST_RUN_S or self.loop.done > MOST_STEPS
            self.rules.require(not ended, "always ends", self._stuck_text())
        return self._outcome(start)

    def _stuck_text(self) -> str:
        if self.loop.done > MOST_STEPS or self.loop.now > LONGEST_RUN_S:
            view = self.coordinator.view(self.loop.now)
            return f"{self.loop.done} steps; stage {view.stage}, {view.reason}; waits {view.waits}"
        return ""

    def _outcome(self, start: Seconds) -> Outcome:
        finished = self.oracles.ends.finished
        assert finished is not None
        view = self.coordinator.view(self.loop.now)
        return Outcome(
            seed=self.scenario.seed,
            exit_code=finished.exit_code,
            reason=finished.reason,
            detail=finished.detail,
            ended_at_s=self.loop.now - start,
            events=self.launcher.handled,
            syncs=view.training.syncs,
            trained=self.oracles.trained,
            dropped=self.oracles.dropped,
            saves=self.oracles.saves,
            lost=sum(rank.state == "lost" for rank in view.ranks),
        )

    def _obey(self, order: Order) -> None:
        if order.drain is not None:
            self._order_drain(order.drain)
        elif order.kind is None:
            self.launcher.post(CheckpointRequested("operator"))
        else:
            self.oracles.ends.stop_at = self.oracles.ends.stop_at or self.loop.now
            self.launcher.post(StopRequested(order.kind, order.exit_code, "operator"))

    def _order_drain(self, number: int) -> None:
        """The launcher asks whether a host can be drained, and passes the wish on if so."""
        name = HostName(f"host{number}")
        if not self.coordinator.refuse_drain(name):
            self.oracles.ends.drains[name] = self.hosts[name].ranks
            self.launcher.post(DrainRequested(name, "operator"))

    def _report_stats(self) -> None:
        for rank in self.ranks.values():
            if rank.running and rank.host not in self._partitioned:
                computing = not rank.frozen and self.loop.now < rank.busy_until
                rank.cpu_s += 0.9 if computing else 0.0
                state = "T" if rank.frozen else "R"
                stats = HostStats(rank=rank.rank, cpu_s=rank.cpu_s, state=state, rss=1)
                self.launcher.post(HostStatsReported(stats))
        self.loop.after(1.0, self._report_stats)

    # what ends

    def _cut_link(self, name: HostName) -> bool:
        """The connection of a worker host breaks, and both ends learn of it."""
        if name == self.local or name in self._cut or name in self._partitioned:
            return False
        self._cut.add(name)
        for lane in self._host_wires[name].all():
            lane.cut()
        for rank in self.hosts[name].ranks:
            self._wires[rank].control_up.cut()
            self._wires[rank].control_down.cut()
        return True

    def _partition(self, name: HostName) -> bool:
        """The network of a worker host drops everything, and nobody is told."""
        if name == self.local or name in self._cut or name in self._partitioned:
            return False
        self._partitioned.add(name)
        for rank in self.hosts[name].ranks:
            self._wires[rank].control_up.silence()
            self._wires[rank].control_down.silence()
        for lane in self._host_wires[name].all():
            lane.silence()
        return True

    def _relay_ended(self, name: HostName) -> None:
        """A relay ends: its link closes, and its ranks see their channels end.

        One whose host was dismissed ends when the last of its ranks has.
        """
        running = any(self.ranks[rank].running for rank in self.hosts[name].ranks)
        if name == self.local or (name in self._dismissed and running):
            return
        for lane in self._host_wires[name].all():
            lane.close()
        for rank in self.hosts[name].ranks:
            if self.ranks[rank].running:
                self.oracles.ends.struck.add(rank)
                self.loop.after(0.1, partial(self.ranks[rank].end, "its relay is gone"))

    def _lane_ended(self, name: HostName) -> None:
        """A lane of a host's link ended; the link has ended when they all have."""
        self._open_lanes[name] -= 1
        if self._open_lanes[name] == 0:
            self._link_ended(name)

    def _link_ended(self, name: HostName) -> None:
        """The launcher saw the link of a host end."""
        if name == self.local:
            return
        self.root.drop_host(name)
        ledger = self._formed.ledger
        assert ledger is not None
        left = MemberLeft(connection=self._formed.connections[name])
        for effect in ledger.handle(left, self.loop.now):
            if isinstance(effect, DeclareHostLost):
                for rank in effect.ranks:
                    self.launcher.post(RankLost(rank, f"the link of {name} ended"))

    def _exited(self, rank: Rank, cause: str) -> None:
        """A rank's process ended: its channels say so, and so does its parent."""
        if cause == "the controller is gone":
            partitioned = self._host_of[rank] in self._partitioned
            away = bool(self.scenario.absences)
            cut = self._host_of[rank] in self._cut
            self.rules.require(partitioned or away or cut, "innocence", f"rank {rank}: {cause}")
        if cause:
            self.oracles.ends.struck.add(rank)
        wires = self._wires[rank]
        wires.marks.close()
        wires.control_up.close()
        wires.control_down.close()
        if self._host_of[rank] in self._dismissed:
            self._relay_ended(self._host_of[rank])
        if self._host_of[rank] not in self._partitioned | self._cut:
            delay = self.rng.uniform(0.0, NOTICE_S)
            text = cause or "exit code 0"
            self.loop.after(delay, lambda: self.launcher.post(RankLost(rank, text)))

    def _round_ended(self, ended: RoundEnded) -> None:
        self.oracles.values.round_reported(ended)
        self.launcher.post(ended)

    def bucket_formed(self, frame: BucketFrame, values: F32) -> None:
        """The root formed a bucket of the consensus."""
        self.oracles.values.bucket_formed(frame, values)

    def cycle_committed(self, committed: Committed) -> None:
        """The root committed a cycle as a whole."""
        self.oracles.cycle_committed(committed)

    def _acknowledged(self, rank: Rank, cycle: Cycle, outcome: SyncOutcome, before: F32) -> None:
        model = self.ranks[rank].model
        values: F32 = np.concatenate((model.params, model.buffers))
        self.oracles.values.acknowledged(rank, cycle, outcome, values=values, before=before)

    def _checkpoint_read(self, rank: Rank, version: int) -> None:
        self.oracles.checkpoint_read(version, len(self.ranks[rank].drawn_since_snapshot))

    # what the launcher does

    def _send(self, rank: Rank, message: object) -> None:
        self._wires[rank].control_down.send(self._coded(message))

    def _end_rank(self, rank: Rank, grace_s: Seconds) -> None:
        """The host is told to end a rank; it does, if it can hear."""
        delay = grace_s + self.rng.uniform(0.0, 0.5)
        self.loop.after(delay, lambda: self._end_by_host(rank))

    def _end_by_host(self, rank: Rank) -> None:
        if self._host_of[rank] not in self._partitioned | self._cut:
            self.ranks[rank].end("ended by its host")

    def _close(self, name: HostName) -> None:
        """The launcher closes the links of a host."""
        self._cut_link(name)

    def _stop(self) -> None:
        """The run is over; nothing more is driven."""
