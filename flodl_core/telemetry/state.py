"""The status document: everything that a reader of `GET /state.json` may know.

What it is: frozen pydantic models with a JSON Schema, one schema number, and
the two functions that turn a document into bytes and back. Absent is null; a
number that is not finite is written as null too.
What it is not: a place where state is kept. The launcher composes a document
from its machines' views and publishes the bytes; nothing here decides.
Who drives it: the launcher composes and publishes, `status`, `headless` and
every poller reads.

Durations are in seconds unless the name says otherwise. No field holds a token.
"""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flodl_core.errors import RemoteProtocolError
from flodl_core.ids import ClusterPhase, OuterKind, RankPhase

SCHEMA_VERSION: Final = 1
"""Grows when a field is removed or changes its meaning; added fields do not count."""

MAX_EPOCH_ROWS: Final = 100
MAX_ALERT_ROWS: Final = 50
MAX_WAIT_ROWS: Final = 64
MAX_REFUSAL_ROWS: Final = 20


class Section(BaseModel):
    """One frozen part of the document; a reader ignores fields that it does not know."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="null")


class RunState(Section):
    """Which run this is."""

    id: str
    name: str
    mode: str
    mode_reason: str
    started_at: str
    """UTC, ISO 8601."""
    uptime_s: float
    world_size: int | None = None
    port: int | None = None
    pid: int | None = None
    run_dir: str | None = None
    resumed_from: str | None = None
    """Stem of the checkpoint that the run goes on from; absent if it began anew."""


class MemberState(Section):
    """One host that joined."""

    host: str
    address: str
    ranks: tuple[int, ...]
    local_devices: tuple[str, ...]
    gpus: tuple[str, ...] = ()
    torch_variant: str = ""
    nccl_version: str | None = None
    joined_at_s: float
    """Seconds after the window opened."""


class JoinSettings(Section):
    """How hosts join this run."""

    window_s: float
    """How long the window stays open for the target, from its opening."""
    cap_s: float
    """When the window closes for good, from its opening."""
    line: str | None = None
    """What another host would type, as words for a shell; None where nobody may join."""
    is_open: bool = False
    """Whether a host needs no proof to join."""


class RefusalState(Section):
    """One host that was turned away."""

    host: str
    """As it called itself."""
    address: str
    reason: str
    fix: str = ""
    at: str
    """UTC, ISO 8601."""


class EpochState(Section):
    """One finished epoch, as the cohort's aggregate."""

    epoch: int
    pass_index: int
    loss: float | None = None
    samples: int
    dropped: int = 0
    duration_s: float | None = None
    syncs: int | None = None
    metric: float | None = None
    metric_name: str | None = None
    scalars: dict[str, float] = Field(default_factory=dict)
    """Means of what the job's steps noted with `ctx.scalar`, by name."""


class TrainingState(Section):
    """How far the training is."""

    epoch: int
    epochs: int
    global_step: int
    samples_done: int
    """Trained samples, over all passes."""
    samples_total: int
    """Samples that are to be trained, over all passes, tails left out."""
    samples_dropped: int = 0
    syncs: int = 0
    """Averages that were committed, the initial broadcast not counted."""
    loss: float | None = None
    throughput: float | None = None
    """Samples a second."""
    ideal_throughput: float | None = None
    """Samples a second if nothing but the steps took time."""
    eta_s: float | None = None
    metric: float | None = None
    metric_name: str | None = None


class ElcheState(Section):
    """Who does how many batches. Under Sync the counts are all 1 and growth is off."""

    phase: str
    """probe, warmup, stable or mature; inapplicable in Sync."""
    anchor: int
    """Batches of the slowest rank in a window."""
    anchor_rank: int | None = None
    batch_counts: tuple[int, ...] = ()
    """Batches of the next window by rank; 0 for a rank that is gone."""
    overshoot: int | None = None
    """Batches that the fastest rank may run on beyond its count; null where none runs on."""
    overhead: float | None = None
    """Averaging's part of a window, 0 to 1, by the last three."""
    overhead_target: float | None = None
    window_cap_binding: bool = False
    """Whether an epoch has too few batches for the window that was wanted."""
    growth_enabled: bool = False
    guard: str = "none"
    """level, growth or none, or the name that a guard of your own gives itself."""
    guard_failures: int = 0
    """Averages at which the guard raised, returned no verdict or was given up; they counted as
    stable."""
    last_verdict: str | None = None
    """stable, or suppress growth or nudge down with the reason."""
    verdict_by: str | None = None
    """Who gave it: the guard, the meta-controller, or both."""
    recent_shares: tuple[float, ...] = ()
    """Part of the batches by rank, over the last ten windows; 0 for a rank that is gone."""
    reason: str = ""
    """One sentence: why the counts are what they are."""


class ReduceState(Section):
    """Where the averaging stands."""

    state: str
    """idle or pending."""
    backend: str
    cycle: int
    version: int
    pending_s: float | None = None
    """Since the average under way was asked for."""
    stall_ceiling_s: float | None = None
    """At what `pending_s` it ends the run; null while it waits for a rank's batch, which has
    a ceiling of its own."""
    last_sync_ms: float | None = None
    last_outcome: str | None = None
    bytes: int = 0
    """Parameter and buffer bytes that one cycle averages."""
    outer: str = OuterKind.AVG.value
    """What is made of an average: avg, slowmo or nesterov."""
    outer_lr: float | None = None
    """Learning rate of the outer step; absent where there is none."""
    outer_momentum: float | None = None


class ResourceState(Section):
    """What a rank or host uses; absent is not zero."""

    cpu_percent: float | None = None
    ram_used_bytes: int | None = None
    gpu_percent: float | None = None
    vram_used_bytes: int | None = None
    vram_total_bytes: int | None = None


class RankState(Section):
    """One rank, with its two signals: it answers, and its work progresses."""

    rank: int
    host: str
    device: str
    gpu: str | None = None
    """The name of the device, where its host told one."""
    state: RankPhase
    cause: str = ""
    """Why it takes no part any more; empty while it does."""
    phase: str | None = None
    batch_count: int = 0
    """Batches since the rank began."""
    planned_batches: int | None = None
    """Batches that it was dealt for the window under way."""
    steps_in_window: int = 0
    """Batches that it has done of them."""
    ms_per_batch: float | None = None
    samples: int = 0
    """Samples of this rank that are trained, that is committed."""
    share: float | None = None
    """Its part of all trained samples, 0 to 1."""
    weight: float | None = None
    """Its part of the mass of the last committed round, 0 to 1."""
    throughput: float | None = None
    loss: float | None = None
    divergence: float | None = None
    heartbeat_age_s: float | None = None
    heartbeat_ceiling_s: float | None = None
    progress_age_s: float | None = None
    progress_ceiling_s: float | None = None
    throttled: bool = False
    resources: ResourceState | None = None


class WaitState(Section):
    """Somebody has waited over five seconds: for how long, and what will happen."""

    rank: int | None = None
    host: str | None = None
    phase: str
    age_s: float
    ceiling_s: float | None = None
    outcome: str
    """What happens when the ceiling is reached."""


class AlertState(Section):
    """An alert as it was last emitted."""

    severity: str
    alert_class: str
    path: str
    detail: str
    count: int = 1
    at: str
    """UTC, ISO 8601."""
    uptime_s: float | None = None
    """Age of the run when it was emitted; null where it was not written down."""


class CheckpointState(Section):
    """The newest bundle that is complete, and the last failure."""

    path: str | None = None
    version: int | None = None
    epoch: int | None = None
    at: str | None = None
    uptime_s: float | None = None
    """Age of the run when it was complete; null where it was not written down."""
    reason: str | None = None
    """Why it was written: checkpoint, graceful_shutdown, max_failure_exceeded …"""
    rank_files: int = 0
    """Ranks whose own file belongs to it."""
    saving: bool = False
    last_error: str | None = None


class EndState(Section):
    """How the run ended; absent while it is on."""

    exit_code: int
    reason: str
    detail: str = ""


class StateDocument(Section):
    """The whole status document."""

    schema_version: int = SCHEMA_VERSION
    run: RunState
    phase: ClusterPhase
    joined_ranks: int
    joined_hosts: int
    min_rank_start: int
    target_ranks: int | None = None
    window_remaining_s: float | None = None
    cap_remaining_s: float | None = None
    start_mode: str
    start_armed: bool = False
    expected_hosts: tuple[str, ...] = ()
    """Configured hosts that have not been heard from yet."""
    refusals: int = 0
    """Joins that were refused since the window opened."""
    last_refusal: str | None = None
    recent_refusals: tuple[RefusalState, ...] = ()
    """The last refusals, oldest first, at most MAX_REFUSAL_ROWS."""
    dropped_connections: dict[str, int] = {}
    """By reason, how many were let go before they proved anything; a reason without one is absent.
    The reasons are those of `flodl_core.net.port_statistics.DropReason`."""
    refused_requests: dict[str, int] = {}
    """By HTTP status, how many requests were refused; a status that did not occur is absent."""
    join: JoinSettings | None = None
    newest_window_seq: int = 0
    """The newest record of `GET /history`; 0 before the first."""
    newest_event_seq: int = 0
    """The newest record of `GET /events`; 0 before the first."""
    members: tuple[MemberState, ...] = ()
    training: TrainingState | None = None
    elche: ElcheState | None = None
    reduce: ReduceState | None = None
    ranks: tuple[RankState, ...] = ()
    epochs: tuple[EpochState, ...] = ()
    """The last finished epochs, oldest first, at most MAX_EPOCH_ROWS."""
    waits: tuple[WaitState, ...] = ()
    alerts: tuple[AlertState, ...] = ()
    """The last alerts, oldest first, at most MAX_ALERT_ROWS."""
    checkpoint: CheckpointState | None = None
    report: str | None = None
    """What the job said of its model at the last evaluation."""
    end: EndState | None = None


def publish(document: StateDocument) -> bytes:
    """Return the document as UTF-8 JSON; numbers that are not finite become null."""
    return document.model_dump_json().encode()


def read_document_untrusted(body: bytes) -> StateDocument:
    """Read a document that another process published.

    Raises:
        RemoteProtocolError: the bytes are no status document, or one of a newer
            schema. Nothing else escapes.
    """
    try:
        document = StateDocument.model_validate_json(body)
    except (ValidationError, RecursionError, UnicodeDecodeError) as error:
        first = str(error).splitlines()[0]
        raise RemoteProtocolError(
            f"the answer is no status document of flodl ({first})",
            fix="check that the address is that of a flodl run",
        ) from error
    if document.schema_version > SCHEMA_VERSION:
        raise RemoteProtocolError(
            f"the status document has schema {document.schema_version}, newer than ours "
            f"({SCHEMA_VERSION})",
            fix="use the flodl version that started the run",
        )
    return document


def json_schema() -> dict[str, object]:
    """Return the published JSON Schema of the status document."""
    return StateDocument.model_json_schema(mode="serialization")
