"""What a child process with torch found out: the devices, and how fast one is at a job.

What it is: frozen records that travel as JSON.
What it is not: a way to find anything out (`training.torch_facts`, `training.solo`).
Who drives it: `roles.prober` writes them, `flodl probe` and the placed process read them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProbe:
    """One device, used once."""

    device: str
    title: str
    memory_bytes: int | None = None
    """Its own memory; None where it shares the machine's."""
    memory_free_bytes: int | None = None
    error: str | None = None
    """What went wrong when it computed a little; None if nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFacts:
    """What torch is here."""

    torch: str
    cuda: str | None
    nccl: str | None
    devices: tuple[DeviceProbe, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SoloRate:
    """How fast one device is at a job, alone on it."""

    device: str
    batch_samples: int
    batch_ms: float
    """Median of a batch, from its samples' being read to its step's being done."""
    data_ms: float
    """Median of the part in which samples were read and moved."""
    first_ms: float
    """Of the first batch, compilation and warming up included."""
    batches: int
    """Measured, the first one not counted."""
    model_bytes: int
    """Of what an averaging moves."""
    copy_bytes_per_s: float
    """How fast this machine copies that many bytes."""
    peer_bytes_per_s: float | None = None
    """How fast this GPU copies to another one of the machine; None where there is none."""
    memory_bytes_per_s: float | None = None
    """How fast it moves bytes in its own memory, read and written ones counted."""
    samples: int
    """Of one pass over the data."""

    @property
    def samples_per_s(self) -> float:
        """What the device does alone."""
        return self.batch_samples / self.batch_ms * 1e3
