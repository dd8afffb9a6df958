"""What a run is: the job, its signatures, its geometry and its numbers.

These parts travel inside Offer, JoinHello and WorldFormed.
"""

from flodl_core.ids import HostName, InnerState, Mode, OuterKind, Rank, RunId
from flodl_core.messages.registry import part

Scalar = bool | int | float | str


@part
class JobRef:
    """Which job, by name; nobody fetches code."""

    kind: str
    """recipe, module or file."""
    name: str
    """Recipe name, `package.module:attribute`, or the file's stem with `:attribute`."""
    args: dict[str, Scalar | tuple[Scalar, ...]]
    """Options of the job, such as step_ms of `synthetic`."""
    sha256: str | None = None
    """Digest of the file, when kind is file."""


@part
class View:
    """One name under which a segment's elements appear in the state dict."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements of the segment, laid out in logical C order of its primary shape."""
    storage_offset: int


@part
class Segment:
    """One distinct tensor storage that is reduced, in the flat order of the wire."""

    name: str
    """The first name under which it is registered."""
    dtype: str
    """As torch prints it, without `torch.`: float32, float64, bfloat16, complex64 …"""
    shape: tuple[int, ...]
    offset: int
    """Index of its first f32 value on the wire; a multiple of 16 (64 bytes)."""
    numel: int
    """Number of f32 values on the wire; a complex element is two."""
    trainable: bool
    views: tuple[View, ...]
    """Every name of it, the primary one included."""


@part
class LocalBuffer:
    """An integer or bool buffer: deterministic, local to each rank, saved with the consensus."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@part
class Geometry:
    """Where every reduced value lies; the same on all ranks of a run."""

    params: tuple[Segment, ...]
    params_numel: int
    """f32 values of the parameter region, padding included."""
    buffers: tuple[Segment, ...]
    """Floating-point buffers, reduced in the second round."""
    buffers_numel: int
    locals: tuple[LocalBuffer, ...]


@part
class JobFacts:
    """What `flodl inspect-job` learns by building the job once."""

    n_samples: int
    dataset_sig: str
    model_sig: str
    layout_sig: str
    model_entries: tuple[str, ...]
    """One line a tensor, `param|name|dtype|shape`: a refusal names the first difference."""
    model_bytes: int
    geometry: Geometry
    devices: tuple[str, ...]
    gpus: tuple[str, ...]
    torch_variant: str
    nccl_version: str | None = None
    batch_size: int
    """The job's own batch size, used where the run gives none."""
    epochs: int
    """The job's own number of epochs, used where the run gives none."""
    has_eval: bool


@part
class RankFileRef:
    """What only one rank had at a save, in a file on that rank's own host."""

    rank: Rank
    host: HostName
    device: str
    """`cpu:0`, `cuda:1`, …"""
    suffix: str
    """What follows the stem of the bundle, ending in .pt."""
    sha256: str
    nbytes: int
    folder: str = ""
    """Where it was written, on its host; empty if not told."""


@part
class ResumeSpec:
    """The bundle that a run goes on from."""

    stem: str
    """Of the bundle, on the launcher's host; rank files lie at stems of this name on theirs, or at
    those of an older or newer generation: the digest says which."""
    bundle_id: str
    sync_round: int
    """Version of the consensus in it; the first cycle of training is the next."""
    global_step: int
    rank_files: tuple[RankFileRef, ...]
    steps_next: bool = False
    """Whether its outer optimizer goes on, so that the first average is stepped."""


@part
class OuterSpec:
    """What the cohort makes of an average before everybody adopts it."""

    kind: OuterKind
    """Never the plain average, for which there is no such part."""
    lr: float
    """Rate of the outer step, above 0."""
    momentum: float
    """Part of the velocity that outlasts an average, from 0 to below 1."""
    inner: InnerState = InnerState.KEPT
    """What becomes of the ranks' own optimizers after each average."""


@part
class RunSpec:
    """The numbers of a run, frozen when the world forms; every rank has the same."""

    run_id: RunId
    mode: Mode
    job: JobRef
    n_samples: int
    batch_size: int
    epochs: int
    epoch_splits: int
    seed: int
    gamma: float
    wire_dtype: str
    heartbeat_interval_s: float
    heartbeat_timeout_s: float
    progress_timeout_s: float
    stall_timeout_s: float
    rendezvous_timeout_s: float
    save_path: str
    """Stem of the checkpoint files, on whichever host writes one."""
    micro_batch: int | None = None
    nccl_in_place: bool = False
    """On NCCL: averages overwrite the parameters while they run, and no buffer is kept."""
    keep_checkpoints: int = 2
    """Generations of checkpoint files that are kept, the newest included."""
    resume: ResumeSpec | None = None
    outer: OuterSpec | None = None
    """None: the average itself is adopted."""
    easgd_alpha: float | None = None
    """How far a rank moves towards a consensus, above 0 and at most 1; None overwrites."""


@part
class HostRanks:
    """One host of the final world."""

    host: HostName
    ranks: tuple[Rank, ...]
    devices: tuple[str, ...]
    """One device string a rank: `cpu:0`, `cuda:1`, …"""


@part
class Envelope:
    """The formed world, as every process of it receives it. Holds no secret."""

    spec: RunSpec
    world_size: int
    hosts: tuple[HostRanks, ...]
    geometry: Geometry
    model_sig: str
    layout_sig: str
    dataset_sig: str
    same_layout: bool
    """Whether every host declared the same layout_sig, so that dense strides may stay."""
    controller: str
    """`host:port`; the agent rewrites it to the address that it dialled."""
    seals_messages: bool = False
    """Whether messages on MUX are sealed as buckets are, and not only tagged: a run with --tls."""
