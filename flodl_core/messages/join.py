"""Join channel: agent ⇄ controller. After admission it stays open as the host control link."""

from flodl_core.ids import HostName, Mode, Rank, RunId
from flodl_core.messages.job import Envelope, JobRef
from flodl_core.messages.registry import message


@message(16)
class Knock:
    """Agent → controller: let me in. The version is this package's."""

    version: str


@message(17)
class Offer:
    """Controller → agent: this is the run."""

    run_id: RunId
    mode: Mode
    job: JobRef
    batch_size: int
    seed: int
    wire_dtype: str
    schema: int
    """Version of the message set; an agent of another version leaves."""


@message(18)
class JoinHello:
    """Agent → controller: this is my host and what the job looks like here."""

    host: HostName
    local_devices: tuple[str, ...]
    gpus: tuple[str, ...]
    torch_variant: str
    n_samples: int
    dataset_sig: str
    model_sig: str | None = None
    layout_sig: str | None = None
    model_entries: tuple[str, ...] = ()
    run_id: RunId | None = None
    nccl_version: str | None = None
    geometry_sig: str | None = None
    """`membership.job_facts.geometry_signature` of what is reduced here; strides do not count."""
    wire_dtype: str | None = None
    """The one of the Offer, if this host can speak it."""


@message(19)
class Accept:
    """Controller → agent: admitted. `salt` is sealed with the connection's gcm key."""

    ranks: tuple[Rank, ...]
    """Provisional until WorldFormed."""
    salt: bytes | None = None
    formation_wait_s: float


@message(20)
class Reject:
    """Controller → agent: not admitted, with the cause and what to do."""

    reason: str
    fix: str
    transient: bool
    """True if a later dial may be admitted without a change on the agent's side."""


@message(21)
class WorldFormed:
    """Controller → agent: the world is final."""

    envelope: Envelope
    ranks: tuple[Rank, ...]
    """The final ranks of this host."""


@message(22)
class RankExited:
    """Agent → controller: a child of this host ended."""

    rank: Rank
    code: int
    """Exit code, or minus the signal number."""
    signal: str | None = None
    cause: str | None = None
    """More than the signal says, such as out of memory, or that the host's relay ended."""


@message(23)
class HostStats:
    """Agent → controller, each second and rank."""

    rank: Rank
    cpu_s: float
    state: str
    """One letter of /proc/PID/stat."""
    rss: int
    """Resident bytes."""


@message(24)
class DumpStack:
    """Controller → agent: ask that rank for its stack."""

    rank: Rank


@message(25)
class RankStack:
    """Agent → controller: what faulthandler printed, at most 64 KiB."""

    rank: Rank
    text: str


@message(26)
class Evict:
    """Controller → agent: end that rank."""

    rank: Rank
    reason: str


@message(27)
class Abort:
    """Controller → agent: the run is over without training on. Agent → controller: it goes."""

    reason: str


@message(28)
class RunEnded:
    """Controller → agent: the run ended as it should; `code` is its exit code."""

    code: int
    summary: str
