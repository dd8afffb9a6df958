"""Small scripts: a cohort of given speeds that works window by window for a balancer."""

from collections.abc import Mapping

from flodl_core.elche.balancer import Balancer
from flodl_core.elche.guards import Stable, Verdict
from flodl_core.elche.report import Decision, StartValues, WindowReport
from flodl_core.elche.settings import ElcheSettings
from flodl_core.elche.window_ledger import RankWindow
from flodl_core.ids import Rank


def row(rank: int, batches: int, ms: float, *, fill_ms: float = 0.0) -> RankWindow:
    """A window of `batches` equal steps without waits for data."""
    return RankWindow(
        rank=Rank(rank),
        batches=batches,
        wall_ms=batches * ms,
        first_ms=ms + fill_ms if batches else 0.0,
        delivered_ms=max(0, batches - 1) * ms,
        delivered_batches=max(0, batches - 1),
    )


class ElcheWorld:
    """Ranks 0, 1, … whose batches take `speeds_ms`; averaging takes `sync_ms`."""

    def __init__(
        self,
        *speeds_ms: float,
        sync_ms: float = 0.0,
        fill_ms: float = 0.0,
        settings: ElcheSettings | None = None,
        start: StartValues | None = None,
    ) -> None:
        self.ms = {Rank(rank): ms for rank, ms in enumerate(speeds_ms)}
        self.sync_ms, self.fill_ms = sync_ms, fill_ms
        self.balancer = Balancer(settings or ElcheSettings(), tuple(self.ms), start=start)

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(self.balancer.counts.values())

    def report(
        self,
        *,
        odd_ms: Mapping[int, float] | None = None,
        batches: Mapping[int, int] | None = None,
        sync_ms: float | None = None,
        feeds_growth: bool = True,
    ) -> Decision:
        """One window in which everybody does its count; `odd_ms` and `batches` are exceptions."""
        rows = [
            row(
                rank,
                (batches or {}).get(rank, count),
                (odd_ms or {}).get(rank, self.ms[rank]),
                fill_ms=self.fill_ms,
            )
            for rank, count in self.balancer.counts.items()
        ]
        return self.balancer.report(
            WindowReport(
                rows=rows,
                sync_ms=self.sync_ms if sync_ms is None else sync_ms,
                feeds_growth=feeds_growth,
            )
        )

    def windows(self, times: int = 1, verdict: Verdict | None = None) -> Decision:
        """That many windows, each with a verdict."""
        for _ in range(times):
            self.report()
            decision = self.balancer.apply(verdict or Stable())
        return decision

    def efficiency(self) -> float:
        """Batches a second with averaging, over the sum of what each rank could do alone."""
        counts = self.balancer.counts
        window_ms = max(count * self.ms[rank] for rank, count in counts.items())
        whole_ms = window_ms + self.fill_ms + self.sync_ms
        return sum(counts.values()) / whole_ms / sum(1 / self.ms[rank] for rank in counts)
