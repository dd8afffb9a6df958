"""A rank's slot: its whole snapshot of one cycle, in memory shared with its relay or root.

```
| header 4 KiB | unfrozen flags, 1 byte a segment | parameters f32 | buffers f32 |
```

The rank owns and writes it; whoever folds maps it read-only. The parameter region may
be the very storage of a CPU model. What makes a snapshot valid is not in here: a
Ready mark travels by socket, and nobody reads before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from flodl_core.errors import LocalProtocolError, RemoteProtocolError
from flodl_core.ids import Cycle
from flodl_core.messages.job import Geometry
from flodl_core.planes.segment import F32, PAGE_BYTES, U8, MappedSegment, pages

_MAGIC = 0x464C_534C_4F54_0001
_VALUE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotHeader:
    """What a snapshot says of itself."""

    cycle: Cycle
    n: int
    """Batches since the last sync whose step was applied; 0 where declared non-finite."""
    samples: int
    """Samples drawn since the last sync."""
    mass_params: float
    """gamma_mass(n); 0 where declared."""
    mass_buffers: float
    """mover_mass(n); 0 where declared."""
    declared: bool
    """The rank declares its own values non-finite; none of them is read."""


def slot_bytes(geometry: Geometry) -> int:
    """Return the size of a slot for this geometry."""
    return _buffers_at(geometry) + pages(geometry.buffers_numel * _VALUE_BYTES)


def _params_at(geometry: Geometry) -> int:
    return PAGE_BYTES + pages(len(geometry.params))


def _buffers_at(geometry: Geometry) -> int:
    return _params_at(geometry) + pages(geometry.params_numel * _VALUE_BYTES)


class Slot:
    """The views into one slot.

    Attributes:
        params: the parameter region, f32, `geometry.params_numel` long.
        buffers: the buffer region, f32, `geometry.buffers_numel` long.
        unfrozen: one byte a parameter segment, not 0 where it has to be reduced now.
    """

    params: F32
    buffers: F32
    unfrozen: U8

    def __init__(self, segment: MappedSegment, geometry: Geometry) -> None:
        self._segment = segment
        self._integers = segment.i64(0, 5)
        self._masses = segment.f64(40, 2)
        self.unfrozen = segment.u8(PAGE_BYTES, len(geometry.params))
        self.params = segment.f32(_params_at(geometry), geometry.params_numel)
        self.buffers = segment.f32(_buffers_at(geometry), geometry.buffers_numel)

    @classmethod
    def create(cls, geometry: Geometry) -> Self:
        """Make a rank's own slot, zeroed and writable."""
        slot = cls(MappedSegment.create("flodl-slot", slot_bytes(geometry)), geometry)
        slot._integers[0] = _MAGIC
        return slot

    @classmethod
    def attach(cls, fd: int, geometry: Geometry) -> Self:
        """Map another process' slot read-only. `fd` stays the caller's.

        Raises:
            RemoteProtocolError: the file is no slot of this geometry.
        """
        slot = cls(MappedSegment.attach(fd, slot_bytes(geometry)), geometry)
        if slot._integers[0] != _MAGIC:
            slot.close()
            raise RemoteProtocolError(
                "a shared segment was offered as a slot but has no slot's mark",
                fix="start every process of the run from the same version of flodl",
            )
        return slot

    @property
    def fd(self) -> int:
        """The descriptor to pass on."""
        return self._segment.fd

    @property
    def nbytes(self) -> int:
        """Size of the shared segment."""
        return self._segment.nbytes

    def set_unfrozen(self, flags: Sequence[bool]) -> None:
        """Say of each parameter segment whether it takes gradients now.

        Raises:
            LocalProtocolError: another number of flags than segments.
        """
        if len(flags) != self.unfrozen.size:
            raise LocalProtocolError(
                f"{len(flags)} unfrozen flags were given for {self.unfrozen.size} segments"
            )
        self.unfrozen[:] = flags

    def write_header(self, header: SlotHeader) -> None:
        """Write what the snapshot says of itself; the Ready mark follows it."""
        self._integers[1:] = (header.cycle, header.n, header.samples, int(header.declared))
        self._masses[:] = (header.mass_params, header.mass_buffers)

    def header(self) -> SlotHeader:
        """Read what the snapshot says of itself."""
        _, cycle, n, samples, declared = (int(value) for value in self._integers)
        mass_params, mass_buffers = (float(value) for value in self._masses)
        return SlotHeader(
            cycle=Cycle(cycle),
            n=n,
            samples=samples,
            mass_params=mass_params,
            mass_buffers=mass_buffers,
            declared=declared != 0,
        )

    def forget_fd(self) -> None:
        """Close the descriptor once it was passed on; the mapping stays."""
        self._segment.forget_fd()

    def close(self) -> None:
        """Give the memory back, as soon as nobody holds a view."""
        del self.params, self.buffers, self.unfrozen, self._integers, self._masses
        self._segment.close()
