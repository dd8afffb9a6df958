"""Several ranks as threads, a data plane in memory, and a coordinator of thirty lines.

The plane computes each round by itself, in float64, so that what the ranks adopt is
not decided by the code under test.
"""

import queue
import socket
import threading

import numpy as np

from flodl_core.dispatch.epoch_plan import plan_sync, span_event
from flodl_core.ids import Cycle, Mode, Round, RoundOutcome
from flodl_core.messages import control
from flodl_core.messages.data import RoundEnd
from flodl_core.messages.job import Envelope, HostRanks, JobRef, RunSpec
from flodl_core.messages.metrics import MetricsMsg
from flodl_core.messages.rendezvous import RendezvousHello, Role, RoleKind, Uid
from flodl_core.messages.timing import Batches, CheckpointResult, EvalResult, Exiting, SyncAck
from flodl_core.planes.slot import Slot
from flodl_core.planes.staging import Staging
from flodl_core.planes.star_client import StarClient
from flodl_core.planes.star_root import StarRoot
from flodl_core.reduce.buckets import active_segments, active_spans
from flodl_core.training.channel import RankChannel
from flodl_core.training.inspection import describe_job
from flodl_core.training.seat import Seat
from flodl_core.training.worker import RankWorker

CEILING_S = 30.0


def envelope_for(job, world, *, seed=7, epochs=1, devices=None, **spec):
    """Return the envelope of a world on one host, of CPU ranks unless it names devices."""
    facts = describe_job(job, name="test")
    return Envelope(
        spec=RunSpec(
            **{
                "run_id": "0123456789abcdef",
                "mode": Mode.CPU_SYNC,
                "job": JobRef(kind="module", name="test:job", args={}),
                "n_samples": facts.n_samples,
                "batch_size": job.batch_size,
                "epochs": epochs,
                "epoch_splits": 1,
                "seed": seed,
                "gamma": 1.0,
                "wire_dtype": "f32",
                "heartbeat_interval_s": 1.0,
                "heartbeat_timeout_s": 30.0,
                "progress_timeout_s": 300.0,
                "stall_timeout_s": 300.0,
                "rendezvous_timeout_s": 120.0,
                "save_path": "",
                **spec,
            }
        ),
        world_size=world,
        hosts=(
            HostRanks(
                host="here", ranks=tuple(range(world)), devices=devices or ("cpu:0",) * world
            ),
        ),
        geometry=facts.geometry,
        model_sig=facts.model_sig,
        layout_sig=facts.layout_sig,
        dataset_sig=facts.dataset_sig,
        same_layout=True,
        controller="127.0.0.1:1",
    )


class MemoryStar:
    """Every rank's end of one reduce, computed when the last alive rank is ready."""

    def __init__(self, envelope):
        self.geometry, self.world = envelope.geometry, envelope.world_size
        self.staging = Staging.create(self.geometry, self.world)
        self.alive = set(range(self.world))
        self.waiting = set()
        self.lock = threading.Lock()
        self.ports = [StarEnd(self, rank) for rank in range(self.world)]
        self.records = []

    def stop(self):
        self.staging.close()

    def ready(self, rank, cycle):
        with self.lock:
            self.waiting.add(rank)
            if self.waiting >= self.alive:
                self.waiting.clear()
                self.reduce(cycle)

    def reduce(self, cycle):
        ranks = sorted(self.alive)
        headers = {rank: self.ports[rank].slot.header() for rank in ranks}
        vector = np.zeros(3 * self.world + len(self.geometry.params))
        for rank in ranks:
            assert headers[rank].cycle == cycle
            vector[rank] = headers[rank].n
            vector[self.world + rank] = headers[rank].samples
            vector[2 * self.world + rank] = headers[rank].declared
            vector[3 * self.world :] += self.ports[rank].slot.unfrozen != 0
        self.staging.begin_cycle(cycle)
        self.staging.control[:] = vector
        masses = {rank: headers[rank].mass_params for rank in ranks}
        self.records.append((cycle, headers))
        realized = sum(masses.values()) > 0
        self.tell(cycle, Round.CONTROL, ranks, realized=realized)
        if not realized:
            return
        active = active_segments(self.geometry, cycle, vector[3 * self.world :])
        for offset, length in active_spans(self.geometry, active):
            self.staging.params[offset : offset + length] = self.mean(masses, "params")[
                offset : offset + length
            ]
        self.tell(cycle, Round.PARAMS, [rank for rank in ranks if masses[rank] > 0])
        if self.geometry.buffers_numel:
            movers = {rank: headers[rank].mass_buffers for rank in ranks}
            self.staging.buffers[:] = self.mean(movers, "buffers")
            self.tell(cycle, Round.BUFFERS, ranks)

    def mean(self, masses, region):
        total = sum(
            mass * getattr(self.ports[rank].slot, region).astype(np.float64)
            for rank, mass in masses.items()
            if mass > 0
        )
        return (total / sum(masses.values())).astype(np.float32)

    def tell(self, cycle, kind, ranks, *, realized=True):
        outcome = RoundOutcome.COMMITTED if realized else RoundOutcome.UNREALIZED
        end = RoundEnd(
            cycle=cycle, round=kind, outcome=outcome, ranks_accepted=tuple(ranks), mass=1.0
        )
        for rank in self.alive:
            self.ports[rank].ends.put(end)


class LocalStar:
    """The real plane: a root with every rank on its own host."""

    def __init__(self, envelope, *, beginning=None):
        pairs = {rank: socket.socketpair() for rank in range(envelope.world_size)}
        self.ended = []
        self.root = StarRoot(
            envelope,
            {rank: pair[0] for rank, pair in pairs.items()},
            self.ended.append,
            beginning=beginning,
        )
        self.ports = [
            StarClient(pair[1], envelope.geometry, rank, envelope.world_size)
            for rank, pair in pairs.items()
        ]

    def stop(self):
        for port in self.ports:
            port.close()
        self.root.stop()


class StarEnd:
    """One rank's end; it has what `StarClient` has."""

    def __init__(self, star, rank):
        self.star, self.rank = star, rank
        self.slot = Slot.create(star.geometry)
        self.staging = star.staging
        self.ends = queue.SimpleQueue()

    def ready(self, cycle):
        self.star.ready(self.rank, cycle)

    def wait_round(self, timeout_s):
        try:
            return self.ends.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None

    def ends_cycle(self, end):
        if end.outcome is not RoundOutcome.COMMITTED or end.round is Round.BUFFERS:
            return True
        return end.round is Round.PARAMS and not self.star.geometry.buffers_numel

    def active_spans(self, cycle):
        flags = self.staging.control[3 * self.star.world :]
        return active_spans(self.star.geometry, active_segments(self.star.geometry, cycle, flags))


class MemoryLog:
    """Keeps what was logged."""

    def __init__(self):
        self.records = []

    def info(self, event, **fields):
        self.records.append((event, fields))

    def warning(self, event, **fields):
        self.records.append((event, fields))

    def exception(self, event, error, **fields):
        self.records.append((event, {**fields, "raised": error}))

    def named(self, event):
        return [fields for found, fields in self.records if found == event]


class Cohort:
    """Ranks of one run, driven step by step by `train`."""

    def __init__(self, job, world, *, jobs=None, star=None, worker=RankWorker, **spec):
        self.job, self.world = job, world
        self.envelope = envelope_for(job, world, **spec)
        self.star = (star or MemoryStar)(self.envelope)
        self.channels = [RankChannel(rank) for rank in range(world)]
        self.logs = [MemoryLog() for _ in range(world)]
        self.workers = [
            worker(
                self.seat(rank),
                jobs[rank] if jobs else job,
                star=self.star.ports[rank],
                channel=self.channels[rank],
                log=self.logs[rank],
            )
            for rank in range(world)
        ]
        self.codes = [None] * world
        self.alive = list(range(world))
        self.seen = []
        self.acks = {}
        self.global_step = 0
        self.cycle = 0
        self.wake = threading.Event()
        self.backlog = []
        for channel in self.channels:
            channel.on_outgoing(self.wake.set)
        self.threads = [
            threading.Thread(target=self._run, args=(rank,), daemon=True) for rank in range(world)
        ]

    def seat(self, rank):
        """The place of a rank; a kind of cohort may give it more."""
        return Seat(envelope=self.envelope, rank=rank)

    def _run(self, rank):
        self.codes[rank] = self.workers[rank].run()

    def __enter__(self):
        for rank, thread in enumerate(self.threads):
            thread.start()
            self._await_build(rank)
        return self

    def _await_build(self, rank):
        """Wait until a rank has built: threads share one generator, so each builds alone."""
        while not any(
            who == rank and isinstance(message, RendezvousHello | Exiting)
            for who, message in self.backlog
        ):
            assert self.wake.wait(CEILING_S)
            self.wake.clear()
            self._drain()

    def _drain(self):
        for rank, channel in enumerate(self.channels):
            drained = [(rank, message) for message in channel.drain()]
            self.seen.extend(drained)
            self.backlog.extend(drained)

    def __exit__(self, *_):
        for channel in self.channels:
            channel.close("the test is over")
        for thread in self.threads:
            thread.join(CEILING_S)
            assert not thread.is_alive()

    def send(self, rank, message):
        self.channels[rank].deliver(message)

    def broadcast(self, message):
        for rank in self.alive:
            self.send(rank, message)

    def collect(self, kind, ranks):
        """Wait for one message of a kind from each rank; others are kept in order."""
        found = {}
        while set(found) != set(ranks):
            self.wake.clear()
            self._drain()
            left = []
            for rank, message in self.backlog:
                if isinstance(message, Exiting) and kind is not Exiting:
                    raise AssertionError(f"rank {rank} left: {message.error}")
                if isinstance(message, kind) and rank in ranks and rank not in found:
                    found[rank] = message
                else:
                    left.append((rank, message))
            self.backlog = left
            if set(found) != set(ranks):
                assert self.wake.wait(CEILING_S), (
                    f"no {kind.__name__} from {set(ranks) - set(found)}"
                )
        return found

    def meet(self):
        self.collect(RendezvousHello, self.alive)
        for rank in self.alive:
            self.send(rank, Role(role=RoleKind.WAIT if rank else RoleKind.GENERATE))
        uid = self.collect(Uid, [0])[0]
        assert len(uid.uid) == 128
        for rank in self.alive[1:]:
            self.send(rank, uid)
        self.reduce()

    def reduce(self, batches=0, *, release=True):
        cycle = Cycle(self.cycle)
        self.broadcast(control.RequestParams(cycle=cycle))
        self.acks[cycle] = self.collect(SyncAck, self.alive)
        self.cycle += 1
        self.global_step += batches
        if release:
            self.release()
        return self.acks[cycle]

    def release(self):
        """Let the ranks go on after the last cycle."""
        cycle = Cycle(self.cycle - 1)
        self.broadcast(control.Update(version=cycle, cycle=cycle))
        self.broadcast(control.SetGlobalStep(n=self.global_step))

    def train_epoch(self, event, *, windows=None):
        """Train an epoch, or only its first windows and leave the ranks held after the last."""
        spec = self.envelope.spec
        span = span_event(
            event, spec.n_samples, splits=spec.epoch_splits, batch_size=spec.batch_size
        )
        plans = plan_sync(span, self.alive, spec.batch_size)
        for rank, plan in plans.items():
            self.send(rank, control.StartEpoch(plan=plan))
        left = {rank: plan.size // spec.batch_size for rank, plan in plans.items()}
        while any(left.values()) and windows != 0:
            movers = [rank for rank, batches in left.items() if batches]
            reports = self.collect(Batches, movers)
            for rank in movers:
                assert len(reports[rank].rows) == 1
                left[rank] -= 1
            windows = None if windows is None else windows - 1
            self.reduce(len(movers), release=windows != 0)
        if windows == 0:
            return None
        return self.collect(MetricsMsg, self.alive)

    def send_window(self, batches, *, full_at=None, rank=0, offset=0):
        """Give a rank batches from a position on; its window is full after all, or at a count."""
        size, full_at = batches * self.job.batch_size, batches if full_at is None else full_at
        plan = control.EpochPlan(epoch=0, offset=offset, size=size, window_batches=full_at)
        self.send(rank, control.StartEpoch(plan=plan))

    def rows(self, rank=0):
        """Every batch that a rank has told of so far."""
        reports = [m for who, m in self.seen if who == rank and isinstance(m, Batches)]
        return [row for report in reports for row in report.rows]

    def until_told(self, batches, rank=0):
        """Wait until a rank has told of so many batches."""
        while len(self.rows(rank)) < batches:
            self.collect(Batches, [rank])

    def finish(self):
        self.broadcast(control.Shutdown())
        self.collect(Exiting, self.alive)
        for rank in self.alive:
            self.threads[rank].join(CEILING_S)
        return [self.codes[rank] for rank in self.alive]

    def checkpoint(self, target=0):
        self.send(target, control.Checkpoint(version=self.cycle - 1, target_rank=target))
        return self.collect(CheckpointResult, [target])[target]

    def evaluate(self, target=0, epoch=0):
        self.send(target, control.ExecuteEval(schedule_id=epoch, epoch=epoch, target_rank=target))
        return self.collect(EvalResult, [target])[target]

    def model(self, rank):
        return self.workers[rank].trainee.model
