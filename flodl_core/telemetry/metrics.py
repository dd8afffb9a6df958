"""`GET /metrics`: the status document as Prometheus text.

What it is: one table of metrics, each with the field that it shows, and the page made
from a document. Units stand in the names; what is absent has no sample.
What it is not: a measurement of its own, or a registry of the process.
Who drives it: the launcher answers scrapes with it, in a worker thread.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from flodl_core.ids import ClusterPhase, RankPhase
from flodl_core.telemetry.state import RankState, Section, StateDocument

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

Sample = tuple[Sequence[str], float | None]
"""Values of the labels after `run`, and the value."""


class MetricKind(StrEnum):
    """How a metric moves."""

    GAUGE = "gauge"
    COUNTER = "counter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One metric of the page."""

    name: str
    """Without `flodl_`, and without `_total` where it counts."""
    text: str
    labels: tuple[str, ...] = ()
    """After `run`."""
    kind: MetricKind = MetricKind.GAUGE
    samples: Callable[[StateDocument], Iterable[Sample]]


def _field(section: Section, path: str, scale: float) -> float | None:
    """Return a number of the document by its dotted path; None if a part of it is absent."""
    value: object = section
    for name in path.split("."):
        value = getattr(value, name, None)
    return value * scale if isinstance(value, int | float) else None


def _run(
    name: str,
    text: str,
    path: str,
    *,
    kind: MetricKind = MetricKind.GAUGE,
    scale: float = 1.0,
) -> Metric:
    """Describe a field of the run as a whole."""

    def samples(document: StateDocument) -> Iterator[Sample]:
        yield (), _field(document, path, scale)

    return Metric(name=name, text=text, kind=kind, samples=samples)


def _rank(
    name: str,
    text: str,
    path: str,
    *,
    kind: MetricKind = MetricKind.GAUGE,
    scale: float = 1.0,
) -> Metric:
    """Describe a field of each rank."""

    def samples(document: StateDocument) -> Iterator[Sample]:
        for rank in document.ranks:
            yield (str(rank.rank), rank.host), _field(rank, path, scale)

    return Metric(
        name=f"rank_{name}", text=text, labels=("rank", "host"), kind=kind, samples=samples
    )


def _alerts(document: StateDocument) -> Iterator[Sample]:
    yield (), float(sum(alert.count for alert in document.alerts))


def _drops(document: StateDocument) -> Iterator[Sample]:
    for reason, count in sorted(document.dropped_connections.items()):
        yield (reason,), float(count)


def _refused_requests(document: StateDocument) -> Iterator[Sample]:
    for status, count in sorted(document.refused_requests.items()):
        yield (status,), float(count)


def _scalars(document: StateDocument) -> Iterator[Sample]:
    last = document.epochs[-1].scalars if document.epochs else {}
    for name, mean in last.items():
        yield (name,), mean


def _info(document: StateDocument) -> Iterator[Sample]:
    yield (document.run.name, document.run.mode), 1.0


def _phases(document: StateDocument) -> Iterator[Sample]:
    for phase in ClusterPhase:
        yield (phase.value,), float(document.phase is phase)


def _rank_states(document: StateDocument) -> Iterator[Sample]:
    for state in RankPhase:
        yield (state.value,), float(sum(rank.state is state for rank in document.ranks))


def _count_of(document: StateDocument, rank: RankState) -> float | None:
    counts = document.elche.batch_counts if document.elche else ()
    return float(counts[rank.rank]) if rank.rank < len(counts) else None


def _planned(document: StateDocument) -> Iterator[Sample]:
    for rank in document.ranks:
        yield (str(rank.rank), rank.host), _count_of(document, rank)


_COUNTER: Final = MetricKind.COUNTER
MS: Final = 0.001

METRICS: Final = (
    Metric(
        name="run_info",
        text="Always 1; the labels say which run this is.",
        labels=("name", "mode"),
        samples=_info,
    ),
    Metric(name="phase", text="1 for the phase of the run.", labels=("phase",), samples=_phases),
    Metric(
        name="ranks",
        text="Ranks of the formed world by their state.",
        labels=("state",),
        samples=_rank_states,
    ),
    _run("uptime_seconds", "Age of the run.", "run.uptime_s"),
    _run("joined_ranks", "Ranks that are in.", "joined_ranks"),
    _run("joined_hosts", "Hosts that are in.", "joined_hosts"),
    _run("quorum_ranks", "Ranks that a start needs.", "min_rank_start"),
    _run("refused_joins", "Joins that were refused.", "refusals", kind=_COUNTER),
    Metric(
        name="dropped_connections",
        text="Connections that were let go before they proved anything, by reason.",
        kind=_COUNTER,
        labels=("reason",),
        samples=_drops,
    ),
    Metric(
        name="refused_requests",
        text="HTTP requests that were refused, by status.",
        kind=_COUNTER,
        labels=("status",),
        samples=_refused_requests,
    ),
    Metric(name="alerts", text="Alerts in the status document, repeats counted.", samples=_alerts),
    _run("epoch", "Epoch under way.", "training.epoch"),
    _run("epochs", "Epochs of the run.", "training.epochs"),
    _run(
        "samples_trained",
        "Samples trained, over all passes.",
        "training.samples_done",
        kind=_COUNTER,
    ),
    _run(
        "samples_dropped",
        "Samples dropped, over all passes.",
        "training.samples_dropped",
        kind=_COUNTER,
    ),
    _run(
        "samples_planned",
        "Samples that are to be trained, over all passes.",
        "training.samples_total",
    ),
    _run(
        "global_steps",
        "Optimizer steps of all ranks together.",
        "training.global_step",
        kind=_COUNTER,
    ),
    _run("loss", "Mean of the ranks' last losses.", "training.loss"),
    Metric(
        name="epoch_scalar",
        text="Means of what the job's steps noted in the last finished epoch, by name.",
        labels=("name",),
        samples=_scalars,
    ),
    _run(
        "throughput_samples_per_second",
        "Samples a second, over the last half minute.",
        "training.throughput",
    ),
    _run(
        "ideal_throughput_samples_per_second",
        "Samples a second if nothing but the steps took time.",
        "training.ideal_throughput",
    ),
    _run("eta_seconds", "Time left.", "training.eta_s"),
    _run("syncs", "Averages that were committed.", "training.syncs"),
    _run("consensus_version", "Version of the consensus.", "reduce.version"),
    _run(
        "sync_pending_seconds",
        "Age of the average under way.",
        "reduce.pending_s",
    ),
    _run(
        "sync_stall_ceiling_seconds",
        "Age at which the average under way ends the run.",
        "reduce.stall_ceiling_s",
    ),
    _run(
        "last_sync_seconds",
        "What the last average took.",
        "reduce.last_sync_ms",
        scale=MS,
    ),
    _run(
        "anchor_batches",
        "Batches of the slowest rank in a window.",
        "elche.anchor",
    ),
    _run("overhead_ratio", "Averaging's part of a window.", "elche.overhead"),
    _run(
        "overhead_target_ratio",
        "The part that is aimed at.",
        "elche.overhead_target",
    ),
    _run(
        "checkpoint_version",
        "Version of the newest complete bundle.",
        "checkpoint.version",
    ),
    _run(
        "exit_code",
        "How the run ended; absent while it is on.",
        "end.exit_code",
    ),
    Metric(
        name="rank_planned_batches",
        text="Batches of a rank in the next window.",
        labels=("rank", "host"),
        samples=_planned,
    ),
    _rank("batches", "Batches since the rank began.", "batch_count", kind=_COUNTER),
    _rank("samples", "Samples of the rank that are trained.", "samples", kind=_COUNTER),
    _rank("batch_seconds", "What a batch takes.", "ms_per_batch", scale=MS),
    _rank("share_ratio", "Its part of all trained samples.", "share"),
    _rank("weight_ratio", "Its part of the last average.", "weight"),
    _rank("loss", "Its last loss.", "loss"),
    _rank("divergence_ratio", "How far it was from the last consensus.", "divergence"),
    _rank("heartbeat_age_seconds", "Since it was last heard.", "heartbeat_age_s"),
    _rank(
        "progress_age_seconds",
        "Since its last batch, while it owes one.",
        "progress_age_s",
    ),
    _rank(
        "cpu_percent",
        "Processor use of its process; 100 is one core.",
        "resources.cpu_percent",
    ),
    _rank(
        "memory_bytes",
        "Resident memory of its process.",
        "resources.ram_used_bytes",
    ),
    _rank("gpu_percent", "Use of its device.", "resources.gpu_percent"),
    _rank(
        "gpu_memory_bytes",
        "Memory in use on its device.",
        "resources.vram_used_bytes",
    ),
)
"""Every metric of the page, in its order."""


def render_metrics(document: StateDocument) -> bytes:
    """Return the page of a document; takes some milliseconds with many ranks."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
    from prometheus_client.core import Metric as Family
    from prometheus_client.registry import Collector

    class Page(Collector):
        """What the library collects: one document, once."""

        def collect(self) -> Iterator[Family]:
            """Yield every metric that has a sample."""
            for metric in METRICS:
                make = GaugeMetricFamily if metric.kind is MetricKind.GAUGE else CounterMetricFamily
                family = make(f"flodl_{metric.name}", metric.text, labels=("run", *metric.labels))
                for labels, value in metric.samples(document):
                    if value is not None:
                        family.add_metric((document.run.id, *labels), value)
                if family.samples:
                    yield family

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Page())
    return generate_latest(registry)
