"""The staging segment of a host: where the consensus lands, and what its ranks adopt from.

```
| header 4 KiB | control sum f64 | parameters f32 (1 or 2 sides) | buffers f32 (1 or 2 sides) |
```

A relay's segment has one side. The root's has two: one is the last committed
consensus, the other is being formed, and a commit only names the other side, so
the launcher's ranks read what the root computed without a copy. The side of each
region is in the header, written before the RoundEnd that commits it.

The process that folds writes; ranks map it read-only, and read a region only after
the RoundEnd of its round.
"""

from typing import Final, Self

from flodl_core.errors import RemoteProtocolError
from flodl_core.ids import Cycle, WireDtype
from flodl_core.messages.job import Geometry
from flodl_core.planes.segment import F32, F64, PAGE_BYTES, MappedSegment, pages

_MAGIC: Final = 0x464C_5354_4147_0001
_VALUE_BYTES: Final = 4
_CONTROL_BYTES: Final = 8


def control_length(geometry: Geometry, world_size: int) -> int:
    """Return the length of a control sum: n, samples, declared a rank, then a flag a segment."""
    return 3 * world_size + len(geometry.params)


def staging_bytes(geometry: Geometry, world_size: int, *, sides: int) -> int:
    """Return the size of a staging segment."""
    return _layout(geometry, world_size, sides)[-1]


def _layout(geometry: Geometry, world_size: int, sides: int) -> tuple[list[int], list[int], int]:
    at = PAGE_BYTES + pages(control_length(geometry, world_size) * _CONTROL_BYTES)
    params, buffers = [], []
    for _ in range(sides):
        params.append(at)
        at += pages(geometry.params_numel * _VALUE_BYTES)
    for _ in range(sides):
        buffers.append(at)
        at += pages(geometry.buffers_numel * _VALUE_BYTES)
    return params, buffers, at


class Staging:
    """The views into one staging segment.

    Attributes:
        control: the summed control vector of the cycle, f64.
        sides: 1 or 2.
    """

    control: F64
    sides: int

    def __init__(
        self, segment: MappedSegment, geometry: Geometry, world_size: int, *, sides: int
    ) -> None:
        self._segment = segment
        self.sides = sides
        params_at, buffers_at, _ = _layout(geometry, world_size, sides)
        self._header = segment.i64(0, 6)
        self.control = segment.f64(PAGE_BYTES, control_length(geometry, world_size))
        self._params = [segment.f32(at, geometry.params_numel) for at in params_at]
        self._buffers = [segment.f32(at, geometry.buffers_numel) for at in buffers_at]

    @classmethod
    def create(
        cls,
        geometry: Geometry,
        world_size: int,
        *,
        sides: int = 1,
        wire: WireDtype = WireDtype.F32,
    ) -> Self:
        """Make a host's staging segment, zeroed and writable."""
        nbytes = staging_bytes(geometry, world_size, sides=sides)
        segment = MappedSegment.create("flodl-staging", nbytes)
        staging = cls(segment, geometry, world_size, sides=sides)
        staging._header[:2] = (_MAGIC, sides)
        staging._header[5] = wire is not WireDtype.F32
        return staging

    @classmethod
    def attach(cls, fd: int, geometry: Geometry, world_size: int, *, nbytes: int) -> Self:
        """Map the host's segment read-only, as a rank does. `fd` stays the caller's.

        Args:
            fd: of the memory file.
            geometry: of the run.
            world_size: ranks of the run.
            nbytes: size that was offered; it tells how many sides there are.

        Raises:
            RemoteProtocolError: the file is no staging segment of this geometry.
        """
        for sides in (1, 2):
            if staging_bytes(geometry, world_size, sides=sides) == nbytes:
                break
        else:
            raise RemoteProtocolError(
                f"a staging segment of {nbytes} bytes was offered, which fits no layout of this "
                "run's geometry",
                fix="start every process of the run from the same version of flodl and of the job",
            )
        segment = MappedSegment.attach(fd, nbytes)
        sides = int(segment.i64(0, 2)[1])
        if int(segment.i64(0, 1)[0]) != _MAGIC or sides not in (1, 2):
            segment.close()
            raise RemoteProtocolError(
                "a shared segment was offered as staging but has no staging's mark",
                fix="start every process of the run from the same version of flodl",
            )
        return cls(segment, geometry, world_size, sides=sides)

    @property
    def fd(self) -> int:
        """The descriptor to pass on."""
        return self._segment.fd

    @property
    def nbytes(self) -> int:
        """Size of the shared segment."""
        return self._segment.nbytes

    @property
    def params(self) -> F32:
        """The parameters of the last committed params round; on one side, of the running one."""
        return self._params[self.params_side]

    @property
    def buffers(self) -> F32:
        """The buffers of the last committed buffers round; on one side, of the running one."""
        return self._buffers[self.buffers_side]

    @property
    def params_side(self) -> int:
        """Which side holds the committed parameters."""
        return int(self._header[2])

    @property
    def buffers_side(self) -> int:
        """Which side holds the committed buffers."""
        return int(self._header[3])

    @property
    def cycle(self) -> Cycle:
        """The cycle that the control sum is of."""
        return Cycle(int(self._header[4]))

    @property
    def is_reference(self) -> bool:
        """Whether snapshots travel as differences from the parameters that lie here."""
        return bool(self._header[5])

    def params_on(self, side: int) -> F32:
        """Return the parameter region of one side."""
        return self._params[side]

    def buffers_on(self, side: int) -> F32:
        """Return the buffer region of one side."""
        return self._buffers[side]

    def begin_cycle(self, cycle: Cycle) -> None:
        """Name the cycle whose control sum is about to be written."""
        self._header[4] = cycle

    def commit_params(self, side: int) -> None:
        """Name the side that holds the committed parameters from now on."""
        self._header[2] = side

    def commit_buffers(self, side: int) -> None:
        """Name the side that holds the committed buffers from now on."""
        self._header[3] = side

    def close(self) -> None:
        """Give the memory back, as soon as nobody holds a view."""
        del self._header, self.control
        self._params, self._buffers = [], []
        self._segment.close()
