"""One rank's place in the formed world, and what it asks of torch."""

import os
from dataclasses import dataclass

import torch

from flodl_core.dispatch.seeds import derive_seed
from flodl_core.errors import LocalProtocolError
from flodl_core.ids import Rank
from flodl_core.messages.job import Envelope, HostRanks
from flodl_core.training.job import TrainJob
from flodl_core.training.load import JobSource
from flodl_core.training.step_context import Placement


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """Which rank of which world, and what its host gives it.

    Raises:
        LocalProtocolError: the world has no such rank.
    """

    envelope: Envelope
    rank: Rank
    source: JobSource | None = None
    """How its loader workers find the job; needed where there are any."""
    loader_workers: int | None = None
    """Processes that read its samples; the job's own number if None."""

    def __post_init__(self) -> None:
        """Refuse a rank that no host of the world has."""
        if not any(self.rank in host.ranks for host in self.envelope.hosts):
            raise LocalProtocolError(f"rank {self.rank} is on no host of the envelope")

    @property
    def host(self) -> HostRanks:
        """The host of this rank, with all its ranks."""
        return next(host for host in self.envelope.hosts if self.rank in host.ranks)

    @property
    def device_name(self) -> str:
        """The device as its host named it, such as `cpu:0` or `cuda:1`."""
        host = self.host
        return host.devices[host.ranks.index(self.rank)]

    @property
    def device(self) -> torch.device:
        """The device that this rank trains on; any CPU is `cpu`."""
        name = self.device_name
        return torch.device("cpu") if name.startswith("cpu") else torch.device(name)

    def placement(self, job: TrainJob) -> Placement:
        """Return what the job's step is told of its place."""
        spec = self.envelope.spec
        return Placement(
            rank=self.rank,
            world_size=self.envelope.world_size,
            device=self.device,
            batch_size=spec.batch_size,
            micro_batch=spec.micro_batch,
            precision=job.precision,
        )

    def seed(self, purpose: str, *numbers: int) -> int:
        """Return the run's seed for a purpose."""
        return derive_seed(self.envelope.spec.seed, purpose, *numbers)

    def pass_of(self, epoch: int) -> int:
        """Return the pass over the data that an epoch's event number belongs to."""
        return epoch // max(1, self.envelope.spec.epoch_splits)


def share_cores(seat: Seat) -> None:
    """Give torch this rank's share of its host's cores; once, in a process of its own."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    torch.set_num_threads(max(1, (cores or 1) // len(seat.host.ranks)))
    if seat.device.type == "cuda":
        torch.cuda.set_device(seat.device)
