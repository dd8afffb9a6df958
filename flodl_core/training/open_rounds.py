"""Which kind of rounds a rank has: through the root, or among the ranks on NCCL."""

from collections.abc import Callable

from flodl_core.ids import Cycle
from flodl_core.messages.data import RankTally
from flodl_core.messages.job import RunSpec
from flodl_core.training.flat import FlatLayout
from flodl_core.training.nccl_port import NcclPort
from flodl_core.training.rounds import RankRounds, StarPort


def open_rounds(
    layout: FlatLayout,
    star: StarPort,
    port: NcclPort | None,
    *,
    spec: RunSpec,
    on_adopting: Callable[[], None],
    on_counted: Callable[[Cycle, RankTally], None],
) -> RankRounds:
    """Return a rank's part in cycles.

    Args:
        layout: of its model.
        star: its end of the root's plane, which every mode has.
        port: its device for collectives; None in the modes that average through the root.
        spec: of the run.
        on_adopting: called when nothing but adoption is left of a cycle.
        on_counted: told what this rank contributes, where that is known only later.
    """
    if port is None:
        return RankRounds(layout, star, on_adopting=on_adopting, alpha=spec.easgd_alpha)
    from flodl_core.training.nccl_rounds import NcclRounds

    return NcclRounds(layout, star, port, on_adopting=on_adopting, on_counted=on_counted)
