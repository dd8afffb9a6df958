"""What `flodl join` is told: each setting with its type, range, default and meaning.

What it is: the table `agent`, validated when it is built.
What it is not: what a run is told (`schema`), or where values come from (`load`).
Who drives it: `load` builds it; the agent and the command line read it.
"""

from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from flodl_core.config.rules import (
    JOIN_FIX,
    review_destination,
    review_devices,
    review_fingerprint,
    review_label,
    review_token,
)
from flodl_core.config.run_rules import review_interface
from flodl_core.config.table import MAX_LOADER_WORKERS, MAX_RANKS_A_HOST, Settings
from flodl_core.config.values import Ceiling, HomePath, HomeText, Lowered, Words


class AgentConfig(Settings):
    """What `flodl join` brings to a run."""

    controller: str = Field(default="127.0.0.1:1337", min_length=1, examples=["10.0.0.5:1337"])
    """`host:port` of the launcher; IPv6 literals in brackets."""
    job: HomeText | None = Field(default=None, min_length=1, examples=["train.py:job"])
    """The job as it is found here; the launcher's own name for it if not set."""
    host: str | None = Field(default=None, min_length=1, max_length=255, examples=["blue"])
    """Label of this host, unique in the run; the machine's name if not set."""
    ranks: int | None = Field(default=None, ge=1, le=MAX_RANKS_A_HOST, examples=[2])
    """Ranks of this host; one a GPU, else one, if not set."""
    devices: Words = Field(default=("all",), examples=["cuda:0,cuda:1"])
    """Devices of this host: all, cpu, cuda, mps, cuda:N or cpu:N."""
    micro_batch: int | None = Field(default=None, ge=1, le=1 << 24, examples=[8])
    """Largest piece of a batch that this host's ranks compute at once."""
    loader_workers: int | None = Field(default=None, ge=0, le=MAX_LOADER_WORKERS, examples=[2])
    """Processes that read samples for each rank of this host; the job's own if not set."""
    nccl_interface: str | None = Field(default=None, examples=["eth0"])
    """Network interface of this host that NCCL uses between hosts; its own choice if not set."""
    token: Lowered | None = Field(default=None, examples=["0f1e2d3c4b5a69788796a5b4c3d2e1f0"])
    """Join token of the run, 32 hex characters; with --tls the fingerprint follows a dot."""
    token_file: HomePath | None = Field(default=None, examples=["token"])
    """File that holds the join token; keeps it out of the process list."""
    tls_fingerprint: Lowered | None = Field(default=None, examples=["4d5e" * 16])
    """SHA-256 of the run's certificate, where no token says it; TLS is spoken or nothing."""
    data: HomePath | None = Field(default=None, examples=["data"])
    """Directory of this host's data; the job finds it in the variable FLODL_DATA."""
    persist: bool = Field(default=False, examples=["true"])
    """Dial again after a run, or a failure that may pass, for as long as this host is up."""
    ssh: str | None = Field(default=None, min_length=1, examples=["me@gateway"])
    """Machine that reaches the controller; a tunnel of the system's ssh leads through it."""
    run_dir: HomePath = Field(default=Path("runs"), examples=["runs"])
    """Directory under which this host keeps its logs of the run."""
    inspect_timeout_s: Ceiling = Field(default=120.0, examples=[120])
    """Longest time for building the job once to learn its facts."""

    @model_validator(mode="after")
    def _review(self) -> Self:
        """Check what pydantic's types do not say."""
        review_label("host", self.host)
        review_devices(self.devices)
        review_destination("ssh", self.ssh)
        review_interface("nccl_interface", self.nccl_interface)
        review_token("token", self.token, fix=JOIN_FIX, may_pin=True)
        review_fingerprint("tls_fingerprint", self.tls_fingerprint)
        return self
