"""The hosts that `flodl.toml` lists, one `[[workers]]` each: where it is and what it brings.

What it is: a frozen model a host, and the rule that no two have one label.
What it is not: how a host is reached; `flodl_core.placement` knows ssh.
Who drives it: `file_values` reads them, the launcher places them.
"""

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from flodl_core.config.rules import review_destination, review_devices, review_label
from flodl_core.config.table import MAX_LOADER_WORKERS, MAX_RANKS_A_HOST, Settings
from flodl_core.config.values import Words
from flodl_core.errors import ConfigError

WORKERS: str = "workers"
"""The table's name."""


class PlacementKind(StrEnum):
    """How hosts other than the launcher's own are started."""

    AUTO = "auto"
    """By ssh where there are workers, else local."""
    LOCAL = "local"
    """As processes of the launcher's machine."""
    SSH = "ssh"
    """One session of the system's ssh a worker."""
    SLURM = "slurm"
    """One step of srun a host."""
    RAY = "ray"
    """One actor of a running Ray a host."""


class WorkerConfig(Settings):
    """One further host."""

    host: str = Field(min_length=1, max_length=255, examples=["blue"])
    """Label of the host, unique in the run."""
    ssh: str | None = Field(default=None, min_length=1, examples=["me@blue.lan"])
    """Destination of ssh: USER@HOST or a name of its configuration; the label if not set."""
    ranks: int | None = Field(default=None, ge=1, le=MAX_RANKS_A_HOST, examples=[2])
    """Ranks of the host; one a GPU, else one, if not set."""
    devices: Words = Field(default=("all",), examples=["cuda:0,cuda:1"])
    """Devices of the host: all, cpu, cuda, mps, cuda:N or cpu:N."""
    micro_batch: int | None = Field(default=None, ge=1, le=1 << 24, examples=[8])
    """Largest piece of a batch that the host's ranks compute at once."""
    loader_workers: int | None = Field(default=None, ge=0, le=MAX_LOADER_WORKERS, examples=[2])
    """Processes that read samples for each of its ranks; the job's own if not set."""
    job: str | None = Field(default=None, min_length=1, examples=["train.py:job"])
    """The job as it is found there; the launcher's own name for it if not set."""
    data: str | None = Field(default=None, min_length=1, examples=["/data/images"])
    """Directory of its data; the job finds it in the variable FLODL_DATA."""
    directory: str | None = Field(default=None, min_length=1, examples=["train"])
    """Working directory there; the login's own if not set."""
    python: str = Field(default="python3", min_length=1, examples=["venv/bin/python"])
    """The interpreter there that has flodl installed; a path begins where a login does."""
    env: dict[str, str] = Field(default_factory=dict, examples=[{"OMP_NUM_THREADS": "4"}])
    """Further variables of its processes."""

    @model_validator(mode="after")
    def _review(self) -> Self:
        """Check what pydantic's types do not say."""
        review_label("host", self.host)
        review_devices(self.devices)
        review_destination("host" if self.ssh is None else "ssh", self.destination)
        wrong = next((name for name in self.env if not _is_variable(name)), None)
        if wrong is not None:
            raise ConfigError(
                "env",
                wrong,
                "is no name of a variable that a host may be given",
                source="given",
                fix="use letters, digits and underscores, and none of flodl's own FLODL_ names",
            )
        return self

    @property
    def destination(self) -> str:
        """What ssh is told."""
        return self.ssh or self.host


def _is_variable(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not name.startswith("FLODL_")
