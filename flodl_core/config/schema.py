"""Every setting: its type, its range, its default and what it means.

What it is: frozen models, validated when they are built. Rules between two
settings are checked here too and raise `ConfigError` with the fix.
What it is not: where values come from (`load`), what depends on the number of
ranks (`join`) or on devices (`placement`).
Who drives it: `load` builds the models; roles and command line read them.

Only settings that do something exist. Durations are seconds; 0 and None are
spelled out where they mean "never" or "derived".
"""

from pathlib import Path
from typing import Annotated, Final, Self, TypeAlias

from pydantic import BeforeValidator, Field, model_validator

from flodl_core.config.addresses import is_loopback_address, parse_bind
from flodl_core.config.cadence_rules import (
    read_callback_rank,
    read_speed_ratio,
    review_guard,
    review_hints,
)
from flodl_core.config.rules import (
    GIVEN,
    review_advertise,
    review_anchors,
    review_devices,
    review_max_failure,
    review_period,
    review_token,
    review_wire,
)
from flodl_core.config.run_rules import (
    review_heartbeats,
    review_interface,
    review_on_event,
    review_outer,
    review_ranks,
)
from flodl_core.config.table import MAX_LOADER_WORKERS, MAX_RANKS_A_HOST, Settings
from flodl_core.config.tls_rules import review_identity, review_insecure_nccl
from flodl_core.config.values import (
    AUTO,
    MAX_DURATION_S,
    MIN_CEILING_S,
    Ceiling,
    Counts,
    HomePath,
    HomeText,
    Lowered,
    Ratios,
    Words,
    lower_guard,
    lower_words,
    number_as_text,
    switch_or_path,
)
from flodl_core.config.workers import PlacementKind
from flodl_core.errors import ConfigError
from flodl_core.ids import GuardKind, InnerState, NcclScratch, OuterKind, StartMode, WireDtype

JobValue: TypeAlias = bool | int | float | str

MIN_QUORUM: Final = 2
MAX_GAMMA: Final = 8.0
CEILING_FLOOR_S: Final = 300.0
HEARTBEATS_A_CEILING: Final = 10.0
MIN_BEAT_S: Final = 0.01
MAX_TIMEOUT_SCALE: Final = 1000.0
DEFAULT_CAP_S: Final = 600.0
DEFAULT_MANUAL_CAP_S: Final = 86_400.0


class RunConfig(Settings):
    """What is trained, by whom and how."""

    job: HomeText | None = Field(default=None, min_length=1, examples=["charlm"])
    """A packaged recipe, `package.module:attribute` or `path/file.py:attribute`."""
    job_args: dict[str, JobValue | tuple[JobValue, ...]] = Field(
        default_factory=dict, examples=["step_ms=5,5,20"]
    )
    """Options of the job, such as step_ms of the recipe synthetic."""
    name: str | None = Field(default=None, min_length=1, max_length=64, examples=["night"])
    """Label of the run in its directory and on screens; the job's name if not set."""
    hosts: int = Field(default=1, ge=1, le=1024, examples=[2])
    """Hosts started on this machine: the launcher's own and further `flodl join` children."""
    ranks_per_host: int | None = Field(default=None, ge=1, le=MAX_RANKS_A_HOST, examples=[2])
    """Ranks on each of `hosts`; one a GPU, else one, if not set."""
    ranks: int | None = Field(default=None, ge=1, le=MAX_RANKS_A_HOST, examples=[4])
    """Ranks on the launcher's own host; one a GPU, else one, if not set."""
    devices: Words = Field(default=("all",), examples=["cuda:0,cuda:1"])
    """Devices of the launcher's hosts: all, cpu, cuda, mps, cuda:N or cpu:N."""
    placement: Annotated[PlacementKind, BeforeValidator(lower_words)] = Field(
        default=PlacementKind.AUTO, examples=["slurm"]
    )
    """How further hosts are started: local (as processes here), ssh (those of the workers in
    flodl.toml), slurm or ray (`hosts` less the launcher's own); auto is ssh with workers."""
    place_timeout_s: Ceiling = Field(default=300.0, examples=[300])
    """Longest time for hosts of ssh, slurm or ray to start and be looked at, queues included."""
    data: HomePath | None = Field(default=None, examples=["data"])
    """Directory of this machine's data; the job finds it in the variable FLODL_DATA."""
    mode: Lowered = Field(default=AUTO, examples=["cpu_sync"])
    """How ranks apply and average; auto chooses when the world forms."""
    overhead_target: float = Field(default=0.05, gt=0, lt=1, examples=[0.02])
    """Part of a window that averaging may take in Cadence, held within 0.01 and 0.5."""
    anchor: int = Field(default=10, ge=1, le=1_000_000, examples=[10])
    """Batches of the slowest rank in the first windows of Cadence."""
    min_anchor: int | None = Field(default=None, ge=1, le=1_000_000, examples=[10])
    """Batches of the slowest rank below which growth never ends; `anchor` if not set."""
    max_anchor: int = Field(default=1000, ge=1, le=1_000_000, examples=[1000])
    """Most batches of the slowest rank in a window of Cadence."""
    pin_counts: Counts = Field(default=(), examples=["10,20"])
    """Batches of each rank in a window of Cadence, for good; measured if not set."""
    max_batch_diff: int | None = Field(default=None, ge=0, examples=[50])
    """Most batches by which a rank's window may exceed the shortest; no bound if not set."""
    late_factor: float = Field(default=1.5, gt=1, le=1000, examples=[1.5])
    """Of the planned window; a rank that cannot end before it has the window cut for all."""
    overshoot: int | None = Field(default=None, ge=0, le=10_000, examples=[5])
    """Batches beyond its count that the fastest rank of cpu_async may run on, the others for as
    long; 3, rising to 15 while averages are calm, if not set."""
    easgd_alpha: float | None = Field(default=None, gt=0, le=1, examples=[0.5])
    """How far a rank of cpu_async moves towards an average; 0.5 if not set, 1 as far as it is."""
    guard: Annotated[str, BeforeValidator(lower_guard)] = Field(
        default=GuardKind.LEVEL.value, min_length=1, max_length=400, examples=["level"]
    )
    """Who may stop windows from growing: level (by how large divergence is), growth (by how
    fast it grows), none, or package.module:attribute or path/file.py:attribute of your own."""
    guard_timeout_s: Ceiling = Field(default=10.0, examples=[10])
    """Longest time for an answer of a guard of your own; past it the guard is asked no more."""
    meta: bool = Field(default=True, examples=["false"])
    """Shorten windows when the learning rate falls by 30 % at once, or verdicts persist."""
    relax_up: bool = Field(default=False, examples=["true"])
    """Lengthen the window of Cadence by a batch at each calm average, whatever averaging costs."""
    speed_ratio: str | None = Field(default=None, min_length=1, examples=["2:12"])
    """RANK:R, a guess for the first window: that rank is slow, the others R times as fast."""
    partition_ratios: Ratios = Field(default=(), examples=["3,1,1"])
    """Parts of an epoch that each rank gets in cpu_sync; equal if not set."""
    callback_rank: str = Field(default="fastest", min_length=1, examples=["rank:0"])
    """Who evaluates: fastest, sticky (the one that was fastest at first) or rank:N."""
    eval_every: int = Field(default=1, ge=0, le=10_000_000, examples=[5])
    """Epochs between two evaluations; the last epoch always has one, 0 has no other."""
    epochs: int | None = Field(default=None, ge=1, le=10_000_000, examples=[10])
    """Passes over the samples; the job's own number if not set."""
    epoch_splits: int = Field(default=1, ge=1, le=1_000_000, examples=[4])
    """Slices of a pass, each with its own evaluation; no sample repeats."""
    batch_size: int | None = Field(default=None, ge=1, le=1 << 24, examples=[32])
    """Samples a rank takes a step; the job's own number if not set."""
    micro_batch: int | None = Field(default=None, ge=1, le=1 << 24, examples=[8])
    """Largest piece of a batch that the launcher's ranks compute at once."""
    loader_workers: int | None = Field(default=None, ge=0, le=MAX_LOADER_WORKERS, examples=[2])
    """Processes that read samples for each of the launcher's ranks; the job's own if not set."""
    seed: int = Field(default=0, ge=0, lt=1 << 63, examples=[7])
    """Seed of sample order and of every rank's chance."""
    gamma: float = Field(default=1.0, ge=-MAX_GAMMA, le=MAX_GAMMA, examples=[1.0])
    """Exponent of a rank's weight n^gamma: 1 weights by batches, 0 is the plain mean, below 0
    the rank that did fewer batches weighs more."""
    outer: Annotated[OuterKind, BeforeValidator(lower_words)] = Field(
        default=OuterKind.AVG, examples=["nesterov"]
    )
    """What the cohort makes of an average: avg adopts it, slowmo adds momentum over averages,
    nesterov is DiLoCo's."""
    outer_lr: float | None = Field(default=None, gt=0, le=10, examples=[0.7])
    """Learning rate of the outer step; 1 with slowmo and 0.7 with nesterov if not set."""
    outer_momentum: float | None = Field(default=None, ge=0, lt=1, examples=[0.9])
    """Part of the outer velocity that outlasts an average; 0.9 if not set."""
    inner_state: Annotated[InnerState | None, BeforeValidator(lower_words)] = Field(
        default=None, examples=["kept"]
    )
    """With slowmo or nesterov: kept has ranks go on with their optimizer's state after each
    average, fresh has them begin it anew; fresh with nesterov and kept with slowmo if not set."""
    wire_dtype: Annotated[WireDtype, BeforeValidator(lower_words)] = Field(
        default=WireDtype.F32, examples=["bf16"]
    )
    """What parameters travel as between hosts: f32, or bf16 differences at half the bytes."""
    nccl_scratch: Annotated[NcclScratch, BeforeValidator(lower_words)] = Field(
        default=NcclScratch.FULL, examples=["none"]
    )
    """GPU memory on NCCL: full keeps one model for the consensus; none keeps nothing, measures no
    divergence, and a death inside an average ends the run with its newest checkpoint."""
    nccl_interface: str | None = Field(default=None, examples=["eth0"])
    """Network interface of the launcher's host that NCCL uses between hosts; its own choice if
    not set."""
    sample_log: Annotated[str | None, BeforeValidator(switch_or_path)] = Field(
        default=None, examples=["auto"]
    )
    """File that gets every trained or dropped sample; auto is the run directory's own."""
    save_path: HomeText | None = Field(default=None, min_length=1, examples=["out/model"])
    """Stem of the checkpoint files; inside the run directory if not set."""
    checkpoint_every_s: float = Field(default=1800.0, ge=0, le=MAX_DURATION_S, examples=[600])
    """Time between two checkpoints; 0 makes none by the clock."""
    checkpoint_every_epochs: int = Field(default=0, ge=0, le=10_000_000, examples=[5])
    """Passes between two checkpoints; 0 makes none for that reason."""
    keep_checkpoints: int = Field(default=2, ge=1, le=1000, examples=[3])
    """Checkpoints that are kept, the newest included."""
    resume: Annotated[str | None, BeforeValidator(switch_or_path)] = Field(
        default=None, examples=["auto"]
    )
    """Checkpoint to go on from: its stem, a run's directory, or auto for this job's newest."""
    max_failure: Annotated[str | None, BeforeValidator(number_as_text)] = Field(
        default=None, examples=["50%"]
    )
    """Lost ranks, as a number or a percentage, that end the run with a save; down to one rank
    it goes on if not set."""
    stop_grace_s: Ceiling = Field(default=25.0, examples=[25])
    """How long a stop may take to finish the window; then what is committed is saved."""
    heartbeat_interval_s: float = Field(default=1.0, ge=MIN_BEAT_S, le=MAX_DURATION_S, examples=[1])
    """How often a rank says that it answers."""
    heartbeat_timeout_s: Ceiling = Field(default=30.0, examples=[30])
    """Silence after which a rank is declared dead."""
    progress_timeout_s: Ceiling | None = Field(default=None, examples=[300])
    """Longest time for one batch; max(300, 10 x heartbeat_timeout_s) if not set."""
    first_batch_timeout_s: Ceiling = Field(default=1800.0, examples=[1800])
    """Longest time for a rank's first batch, compilation included."""
    stall_timeout_s: Ceiling | None = Field(default=None, examples=[300])
    """Longest pending reduce; max(300, 10 x heartbeat_timeout_s) if not set."""
    rendezvous_timeout_s: Ceiling = Field(default=120.0, examples=[120])
    """Longest time without a new rank while the world gathers."""
    formation_timeout_s: Ceiling = Field(default=60.0, examples=[60])
    """Longest wait for the relays of a formed world."""
    inspect_timeout_s: Ceiling = Field(default=120.0, examples=[120])
    """Longest time for building the job once to learn its facts."""
    run_dir: HomePath = Field(default=Path("runs"), examples=["runs"])
    """Directory under which each run makes its own."""
    on_event: str | None = Field(default=None, min_length=1, examples=["notify-send flodl"])
    """Command run for alerts of `on_event_classes` and at the end of the run."""
    on_event_classes: Words = Field(default=(), examples=["rank_lost,save_failed"])
    """Alert classes that run `on_event`; all if empty."""

    @model_validator(mode="after")
    def _review(self) -> Self:
        """Check what depends on two settings."""
        review_devices(self.devices)
        review_wire(self.wire_dtype, self.mode)
        review_outer(
            self.outer, lr=self.outer_lr, momentum=self.outer_momentum, inner=self.inner_state
        )
        review_interface("nccl_interface", self.nccl_interface)
        review_anchors(self.min_anchor, self.max_anchor)
        review_guard(self.guard)
        read_speed_ratio(self.speed_ratio)
        read_callback_rank(self.callback_rank)
        review_hints(
            mode=self.mode,
            pin_counts=bool(self.pin_counts),
            speed_ratio=self.speed_ratio is not None,
            partition_ratios=bool(self.partition_ratios),
            for_async=self.given_for_async,
        )
        review_max_failure(self.max_failure)
        review_period("checkpoint_every_s", self.checkpoint_every_s, least_s=MIN_CEILING_S)
        review_ranks(ranks=self.ranks, hosts=self.hosts, ranks_per_host=self.ranks_per_host)
        review_heartbeats(interval_s=self.heartbeat_interval_s, timeout_s=self.heartbeat_timeout_s)
        review_on_event(classes=self.on_event_classes, command=self.on_event)
        return self

    @property
    def given_for_async(self) -> tuple[str, ...]:
        """Names of the settings that are given and only cpu_async has a use for."""
        given = {"overshoot": self.overshoot, "easgd_alpha": self.easgd_alpha}
        return tuple(name for name, value in given.items() if value is not None)

    @property
    def progress_ceiling_s(self) -> float:
        """The longest time for one batch after a rank's first."""
        return self.progress_timeout_s or derived_ceiling_s(self.heartbeat_timeout_s)

    @property
    def stall_ceiling_s(self) -> float:
        """The longest time that a reduce may be pending."""
        return self.stall_timeout_s or derived_ceiling_s(self.heartbeat_timeout_s)


class JoinConfig(Settings):
    """Who may join, until when, and who closes the window."""

    min_rank_start: int | None = Field(default=None, le=65_536, examples=[4])
    """Quorum in ranks; the configured capacity in auto, 2 otherwise, if not set."""
    join_timeout_s: Ceiling = Field(default=300.0, examples=[300])
    """The window; an early quorum does not close it."""
    target_ranks: int | None = Field(default=None, ge=1, le=65_536, examples=[8])
    """Closes the window once this many are in; the configured capacity if not set."""
    max_join_timeout_s: Ceiling | None = Field(default=None, examples=[600])
    """Hard cap of the window; 600, in manual 86 400, if not set."""
    start_mode: Annotated[StartMode, BeforeValidator(lower_words)] = Field(
        default=StartMode.AUTO, examples=["manual"]
    )
    """Who closes the window: auto, manual or hybrid."""
    bind: str = Field(default="127.0.0.1", examples=["::"])
    """Address that the port listens on; `::` is dual stack."""
    port: int = Field(default=1337, ge=0, le=65_535, examples=[1337])
    """TCP port of everything; 0 takes any free one."""
    advertise: str | None = Field(default=None, min_length=1, examples=["10.0.0.5"])
    """HOST or HOST:PORT that other machines dial; the bind, or this machine's name, if not set."""
    open_admission: bool = Field(default=False, examples=["true"])
    """Admit hosts without the token on a bind that is not loopback."""
    require_token: bool = Field(default=False, examples=["true"])
    """Ask for the token on a loopback bind too, and for reading the state."""
    token: Lowered | None = Field(default=None, examples=["0f1e2d3c4b5a69788796a5b4c3d2e1f0"])
    """Join token, 32 hex characters; generated for each run if not set. With tls_identity the
    fingerprint may follow a dot."""
    tls: bool = Field(default=False, examples=["true"])
    """Speak TLS 1.3 with hosts and over HTTP, and seal every message; the token names the key."""
    tls_identity: HomePath | None = Field(default=None, examples=["identity.pem"])
    """PEM file with the certificate and its key that tls shows in every run; made there if there
    is none. Each run makes its own, in memory only, if not set."""
    insecure_nccl: bool = Field(default=False, examples=["true"])
    """Let NCCL's own traffic between hosts go unencrypted in a run with tls."""
    handshake_timeout_s: Ceiling = Field(default=10.0, examples=[10])
    """Longest time from a connection's first byte to its admission or refusal."""

    @model_validator(mode="after")
    def _review(self) -> Self:
        """Check what needs no number of ranks."""
        parse_bind(self.bind, source=GIVEN)
        review_advertise(self.advertise)
        review_token("token", self.token, may_pin=True)
        review_identity(self.tls_identity, has_tls=self.tls)
        if self.min_rank_start is not None and self.min_rank_start < MIN_QUORUM:
            raise ConfigError(
                "min_rank_start",
                self.min_rank_start,
                f"the quorum is at least {MIN_QUORUM}: one rank has nobody to average with",
                source=GIVEN,
                fix="leave it unset (one local rank trains solo, without a window) or give 2",
            )
        self._review_window()
        review_insecure_nccl(is_insecure=self.insecure_nccl, has_tls=self.tls)
        if self.open_admission and self.require_token:
            raise ConfigError(
                "open_admission",
                self.open_admission,
                "contradicts require_token",
                source=GIVEN,
                fix="set one of the two",
            )
        return self

    def _review_window(self) -> None:
        if self.max_join_timeout_s is not None and self.max_join_timeout_s < self.join_timeout_s:
            raise ConfigError(
                "max_join_timeout_s",
                self.max_join_timeout_s,
                f"the hard cap is below the window, join_timeout_s = {self.join_timeout_s:g}",
                source=GIVEN,
                fix=f"give at least {self.join_timeout_s:g}, or shorten join_timeout_s",
            )
        if self.target_ranks is None:
            return
        if self.start_mode is StartMode.MANUAL:
            raise ConfigError(
                "target_ranks",
                self.target_ranks,
                "a target would close the window, and in start mode manual only the operator does",
                source=GIVEN,
                fix="leave target_ranks unset, or use start mode hybrid",
            )
        if self.min_rank_start is not None and self.target_ranks < self.min_rank_start:
            raise ConfigError(
                "target_ranks",
                self.target_ranks,
                f"the target is below the quorum, min_rank_start = {self.min_rank_start}",
                source=GIVEN,
                fix=f"give at least {self.min_rank_start}, or lower min_rank_start",
            )

    @property
    def cap_s(self) -> float:
        """The hard cap of the window, never below the window."""
        if self.max_join_timeout_s is not None:
            return self.max_join_timeout_s
        return max(default_cap_s(self.start_mode), self.join_timeout_s)

    @property
    def admits_openly(self) -> bool:
        """Whether a host without the token is admitted."""
        if self.require_token:
            return False
        return self.open_admission or is_loopback_address(self.bind)


class NetConfig(Settings):
    """What scales every network ceiling."""

    timeout_scale: float = Field(default=1.0, ge=0.1, le=MAX_TIMEOUT_SCALE, examples=[2.0])
    """Factor of every ceiling but stop_grace_s, for slow machines; at least 0.1."""


def derived_ceiling_s(heartbeat_timeout_s: float, *, scale: float = 1.0) -> float:
    """Return max(300 s, 10 heartbeats), the ceiling of work that makes no progress."""
    ceiling_s = max(CEILING_FLOOR_S * scale, HEARTBEATS_A_CEILING * heartbeat_timeout_s)
    return min(ceiling_s, MAX_DURATION_S)


def default_cap_s(start_mode: StartMode) -> float:
    """Return the hard cap of a window for which none is set."""
    return DEFAULT_MANUAL_CAP_S if start_mode is StartMode.MANUAL else DEFAULT_CAP_S
