"""Small scripts for the coordinator: a world, and ranks that say what they are told to say."""

from flodl_core.coordinator.effects import (
    Announce,
    DeclareRankDead,
    EvictRank,
    RaiseAlert,
    RecordSamples,
    RunFinished,
    SaveBundle,
    Send,
)
from flodl_core.coordinator.events import RankLost, RankMessage, RoundEnded, SaveFinished
from flodl_core.coordinator.machine import Coordinator
from flodl_core.coordinator.settings import CoordinatorSettings
from flodl_core.ids import (
    Cycle,
    HostName,
    Mode,
    Rank,
    RankPhase,
    Round,
    RoundOutcome,
    RunId,
    Session,
)
from flodl_core.ids import SyncOutcome as Sync
from flodl_core.machines import Note, Tick
from flodl_core.messages import control, rendezvous, timing
from flodl_core.messages.data import RankTally
from flodl_core.messages.job import Envelope, Geometry, HostRanks, JobRef, RankFileRef, RunSpec
from flodl_core.messages.metrics import MetricsMsg

DATASET = "d" * 64


def envelope(hosts=(("red", 2), ("blue", 1)), *, buffers=0, **numbers):
    spec = {
        "run_id": RunId("0123456789abcdef"),
        "mode": Mode.CPU_SYNC,
        "job": JobRef(kind="recipe", name="tiny", args={}),
        "n_samples": 12,
        "batch_size": 2,
        "epochs": 1,
        "epoch_splits": 1,
        "seed": 1,
        "gamma": 1.0,
        "wire_dtype": "f32",
        "heartbeat_interval_s": 1.0,
        "heartbeat_timeout_s": 30.0,
        "progress_timeout_s": 300.0,
        "stall_timeout_s": 300.0,
        "rendezvous_timeout_s": 120.0,
        "save_path": "tiny",
    } | numbers
    rosters, first = [], 0
    for name, count in hosts:
        ranks = tuple(Rank(first + index) for index in range(count))
        devices = tuple(f"cpu:{index}" for index in range(count))
        rosters.append(HostRanks(host=HostName(name), ranks=ranks, devices=devices))
        first += count
    geometry = Geometry(params=(), params_numel=4, buffers=(), buffers_numel=buffers, locals=())
    return Envelope(
        spec=RunSpec(**spec),
        world_size=first,
        hosts=tuple(rosters),
        geometry=geometry,
        model_sig="m" * 64,
        layout_sig="l" * 64,
        dataset_sig=DATASET,
        same_layout=True,
        controller="127.0.0.1:1337",
    )


_IN_A_BATCH = RankPhase.TRAINING


class Script:
    """A coordinator, its clock, and everything that it has said since the last look."""

    def __init__(
        self,
        hosts=(("red", 2), ("blue", 1)),
        *,
        has_eval=False,
        settings=None,
        local=None,
        **numbers,
    ):
        self.envelope = envelope(hosts, **numbers)
        self.machine = Coordinator(
            self.envelope,
            CoordinatorSettings(**({"checkpoint_every_s": None} | (settings or {}))),
            has_eval=has_eval,
            local_host=HostName(local or hosts[0][0]),
        )
        self.now = 100.0
        self.said = []
        self.world = self.envelope.world_size
        self.buffers = self.envelope.geometry.buffers_numel > 0

    # events

    def handle(self, event):
        effects = self.machine.handle(event, self.now)
        self.machine.check()
        if isinstance(event, Tick) and not self.machine.ended:
            deadline = self.machine.deadline()
            assert deadline is None or deadline > self.now
        self.said += effects
        return effects

    def tell(self, rank, message):
        return self.handle(RankMessage(Rank(rank), message))

    def lose(self, rank, cause="signal 9"):
        return self.handle(RankLost(Rank(rank), cause))

    def tick(self, after_s=0.0):
        self.now += after_s
        return self.handle(Tick())

    def wait(self, seconds, *, beating=()):
        """Let time pass as the launcher would: a tick at each deadline, heartbeats of some.

        Those that beat are ranks, all in a batch, or a mapping of each to its phase.
        """
        phases = beating if isinstance(beating, dict) else dict.fromkeys(beating, _IN_A_BATCH)
        end = self.now + seconds
        said = []
        while not self.machine.ended:
            due = self.machine.deadline()
            step = min(end, due if due is not None else end)
            self.now = max(self.now, step)
            for rank, phase in phases.items():
                said += self.tell(rank, self.heartbeat(rank, phase))
            said += self.handle(Tick())
            if self.now >= end:
                break
        return said

    @staticmethod
    def heartbeat(rank, phase=_IN_A_BATCH):
        return timing.Heartbeat(rank=Rank(rank), step_count=0, phase=phase)

    # ranks in step

    def hello(self, rank, dataset=DATASET):
        name = next(host.host for host in self.envelope.hosts if rank in host.ranks)
        said = rendezvous.RendezvousHello(
            dataset_sig=dataset, global_rank=Rank(rank), host_name=name
        )
        return self.tell(rank, said)

    def rendezvous(self):
        for rank in range(self.world):
            self.hello(rank)
        self.tell(0, rendezvous.Uid(uid=bytes(128)))
        return self

    def ready(self, rank, cycle, n=1, samples=2):
        said = timing.SnapshotReady(rank=Rank(rank), cycle=Cycle(cycle), n=n, samples=samples)
        return self.tell(rank, said)

    def batch(self, rank, samples=2, loss=0.5, batch_ms=10.0):
        row = timing.Batch(
            batch_ms=batch_ms,
            data_ms=0.0,
            since_previous_ms=0.0,
            step_count=1,
            samples=samples,
            loss=loss,
        )
        return self.tell(rank, timing.Batches(rank=Rank(rank), rows=(row,)))

    def ack(self, rank, cycle, outcome=Sync.COMMITTED, divergence=0.1):
        said = timing.SyncAck(
            rank=Rank(rank),
            cycle=Cycle(cycle),
            outcome=outcome,
            step_count=0,
            divergence=divergence if outcome is Sync.COMMITTED else None,
            samples=0,
        )
        return self.tell(rank, said)

    def end(self, cycle, round_, outcome=RoundOutcome.COMMITTED, accepted=(), tallies=()):
        mass = float(sum(tally.n for tally in tallies))
        event = RoundEnded(Cycle(cycle), round_, outcome, tuple(accepted), mass, tuple(tallies))
        return self.handle(event)

    def rounds(self, cycle, tallies, accepted=None):
        """All rounds of a cycle end as the root would end them."""
        movers = tuple(tally.rank for tally in tallies if tally.n > 0)
        everybody = tuple(tally.rank for tally in tallies)
        accepted = movers if accepted is None else accepted
        if not movers:
            return self.end(cycle, Round.CONTROL, RoundOutcome.UNREALIZED, everybody, tallies)
        said = self.end(cycle, Round.CONTROL, accepted=everybody, tallies=tallies)
        said += self.end(cycle, Round.PARAMS, accepted=accepted, tallies=tallies)
        if self.buffers:
            said += self.end(cycle, Round.BUFFERS, accepted=accepted, tallies=tallies)
        return said

    def start(self):
        """Rendezvous, cycle 0 and the first checkpoint answer: ranks hold their first plans."""
        self.rendezvous()
        tallies = [tally(rank, n=int(rank == 0), samples=0) for rank in range(self.world)]
        for rank in range(self.world):
            self.ready(rank, 0, n=int(rank == 0), samples=0)
        self.rounds(0, tallies)
        for rank in range(self.world):
            self.ack(rank, 0)
        self.checkpoint_result(0, 0)
        self.forget()
        return self

    def cycle(self, number, ranks=None, samples=2):
        """One whole window of these ranks: batch, marks, rounds, acknowledgements."""
        ranks = range(self.world) if ranks is None else ranks
        for rank in ranks:
            self.batch(rank, samples)
        for rank in ranks:
            self.ready(rank, number, samples=samples)
        said = self.rounds(number, [tally(rank, samples=samples) for rank in ranks])
        for rank in ranks:
            said += self.ack(rank, number)
        return said

    def metrics(self, rank, samples, epoch=0, loss=0.5, loss_samples=None, scalars=None):
        said = MetricsMsg(
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
        return self.tell(rank, said)

    def checkpoint_result(self, rank, version, error=None, buffers=None, **rank_file):
        said = timing.CheckpointResult(
            rank=Rank(rank),
            version=version,
            elapsed_ms=1.0,
            error=error,
            local_buffers=buffers or {},
            **rank_file,
        )
        return self.tell(rank, said)

    def checkpoint_results(self, version, ranks=None):
        """Every rank answers that it has written what only it has."""
        said = []
        for rank in range(self.world) if ranks is None else ranks:
            said += self.checkpoint_result(rank, version)
        return said

    def eval_result(self, rank, epoch=0, metric=1.5, error=None):
        said = timing.EvalResult(
            rank=Rank(rank),
            schedule_id=epoch,
            epoch=epoch,
            metric=metric,
            metric_name="nats",
            elapsed_ms=1.0,
            error=error,
        )
        return self.tell(rank, said)

    def form_session(self, ranks=None, session=0):
        """The communicators of these ranks are usable; those of all if None."""
        for rank in range(self.world) if ranks is None else ranks:
            self.tell(rank, timing.NcclSessionFormed(rank=Rank(rank), session=Session(session)))

    def exiting(self, rank, error=None):
        return self.tell(rank, timing.Exiting(rank=Rank(rank), error=error))

    def saved(self, version, error=None):
        return self.handle(SaveFinished(version, error))

    # looking

    def forget(self):
        self.said = []


def tally(rank, n=1, samples=2, declared=False):
    return RankTally(rank=Rank(rank), n=n, samples=samples, declared=declared)


def rank_file(rank, digest="aa"):
    return RankFileRef(
        rank=rank,
        host="red",
        device=f"cpu:{rank}",
        suffix=f".rank{rank}.pt",
        sha256=digest,
        nbytes=64,
    )


def sent(effects, kind, rank=None):
    """Messages of a class that were sent, to one rank or to all."""
    return [
        effect.message if rank is not None else (effect.rank, effect.message)
        for effect in effects
        if isinstance(effect, Send)
        and isinstance(effect.message, kind)
        and rank in (None, effect.rank)
    ]


def of(effects, kind):
    return [effect for effect in effects if isinstance(effect, kind)]


def codes(effects):
    return [note.code for note in of(effects, Note)]


def ends(effects):
    finished = of(effects, RunFinished)
    assert len(finished) <= 1
    return finished[0] if finished else None


def ranges(effects, status="trained"):
    return {
        (entry.rank, part.offset, part.size)
        for record in of(effects, RecordSamples)
        for entry in record.entries
        if entry.status == status
        for part in entry.ranges
    }


__all__ = [
    "Announce",
    "DeclareRankDead",
    "EvictRank",
    "RaiseAlert",
    "SaveBundle",
    "Script",
    "codes",
    "control",
    "ends",
    "envelope",
    "of",
    "ranges",
    "sent",
    "tally",
]
