"""Which library a rank's collectives go through: NVIDIA's on a GPU, none on a CPU.

Tests train on CPUs with a stand-in over loopback sockets; `stand_in` says so.
"""

from flodl_core.errors import FlodlError
from flodl_core.planes.nccl.collective import Fabric
from flodl_core.reduce.outer import rule_of
from flodl_core.roles.orders import RankOrder
from flodl_core.roles.stand_in import has_stand_in
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.training.channel import RankChannel
from flodl_core.training.nccl_port import NcclPort
from flodl_core.training.seat import Seat


class NoCollectivesError(FlodlError):
    """The mode averages among GPUs, and this rank has none."""


def make_port(
    order: RankOrder, seat: Seat, channel: RankChannel, log: ProcessLog
) -> NcclPort | None:
    """Return a rank's device for collectives; None in the modes that average through the root.

    Raises:
        CollectiveError: nccl4py is not installed.
        NoCollectivesError: the rank's device is no GPU.
    """
    spec = order.envelope.spec
    if not spec.mode.uses_nccl:
        return None

    def record(what: str, where: str) -> None:
        log.debug("collective", what=what, where=where)

    def park(where: str) -> None:
        channel.activity = where

    return NcclPort(
        rank=order.rank,
        world_size=order.envelope.world_size,
        fabric=_make_fabric(seat),
        listen=channel.heed_with,
        post=channel.post,
        note=lambda event, text: log.info(event, what=text),
        record=record if order.is_verbose else None,
        park=park,
        in_place=spec.nccl_in_place,
        outer=rule_of(spec.outer),
        begins_stepped=spec.resume is not None and spec.resume.steps_next,
    )


def _make_fabric(seat: Seat) -> Fabric:
    if seat.device.type == "cuda":
        from flodl_core.planes.nccl.device import DeviceFabric

        return DeviceFabric(seat.device)
    if has_stand_in():
        from flodl_core.planes.nccl.loopback import LoopbackFabric

        return LoopbackFabric()
    raise NoCollectivesError(
        f"rank {seat.rank} has device {seat.device_name}, and {seat.envelope.spec.mode} averages "
        "among GPUs",
        fix="give every rank a GPU, or train with --mode cpu_cadence",
    )
