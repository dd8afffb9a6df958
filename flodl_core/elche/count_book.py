"""The counts of the alive ranks, and what they would be without bounds.

What it is: a memory. Wanted counts follow the speeds with a dead zone, which ends for a rank
whose speed asks for the same direction in every window of trust: noise goes both ways, an
error does not. What is handed out keeps the difference bound and the window cap. Pinned
counts are handed out as they are.
What it is not: the choice of the anchor, which is an argument here.
Who drives it: `elche.balancer`.
"""

from collections.abc import Mapping, Sequence

from flodl_core.elche.counts import bounded_counts, leaves_dead_zone, wanted_count
from flodl_core.elche.settings import MAX_SPEED_RATIO, TRUST_WINDOW, ElcheSettings
from flodl_core.errors import ConfigError
from flodl_core.ids import Rank
from flodl_core.units import Milliseconds


class CountBook:
    """Batches a window of each alive rank."""

    def __init__(
        self, settings: ElcheSettings, ranks: Sequence[Rank], *, speeds: Mapping[Rank, float]
    ) -> None:
        """Begin with the first anchor, in proportion to `speeds` where they are given.

        Raises:
            ConfigError: pinned counts are given and are not one a rank.
        """
        pinned = settings.pinned_counts
        if pinned is not None and len(pinned) != len(ranks):
            raise ConfigError(
                "pinned_counts",
                pinned,
                f"{len(pinned)} numbers for {len(ranks)} ranks",
                source="elche settings",
                fix="give one number for each rank, in the order of ranks",
            )
        self._max_batch_diff = settings.max_batch_diff
        self._is_pinned = pinned is not None
        self._cap_batches: int | None = None
        self._cap_binding = False
        self._wanted = (
            dict(zip(ranks, pinned, strict=True))
            if pinned is not None
            else _start_counts(settings.first_anchor, ranks, speeds)
        )
        self._counts: dict[Rank, int] = {}
        self._leaning: dict[Rank, int] = {}
        self._bound()

    @property
    def counts(self) -> dict[Rank, int]:
        """What is handed out; do not change it."""
        return self._counts

    @property
    def is_pinned(self) -> bool:
        """Whether counts never change."""
        return self._is_pinned

    @property
    def cap_batches(self) -> int | None:
        """What all counts together may reach; None is no cap."""
        return self._cap_batches

    @property
    def cap_binding(self) -> bool:
        """Whether the cap makes counts smaller."""
        return self._cap_binding

    def set_cap(self, cap_batches: int | None) -> bool:
        """Bound all counts together; return whether a count changed."""
        self._cap_batches = cap_batches
        return self._bound()

    def lose(self, rank: Rank) -> None:
        """Take a rank out."""
        self._wanted.pop(rank, None)
        self._leaning.pop(rank, None)
        self._bound()

    def follow(
        self,
        anchor: int,
        anchor_rank: Rank,
        *,
        speeds_ms: Mapping[Rank, Milliseconds],
        is_forced: bool,
    ) -> bool:
        """Follow the speeds; return whether a count changed.

        Args:
            anchor: batches of `anchor_rank`, which has a speed.
            anchor_rank: the rank that the window is counted in.
            speeds_ms: cost of a batch of each rank that has one.
            is_forced: whether the dead zone is skipped, because nothing was measured
                before or the anchor itself moved.
        """
        if self._is_pinned:
            return False
        slow_ms = speeds_ms[anchor_rank]
        for rank, current in self._wanted.items():
            if rank == anchor_rank:
                self._wanted[rank] = anchor
                continue
            wanted = wanted_count(anchor, slow_ms, speeds_ms.get(rank, 0.0))
            insists = self._insists(rank, wanted - current)
            if is_forced or insists or leaves_dead_zone(wanted, current):
                self._wanted[rank] = wanted
                self._leaning.pop(rank, None)
        return self._bound()

    def level(self, anchor: int) -> bool:
        """Give everybody the anchor, as long as no speed is known; return as `follow` does."""
        if self._is_pinned:
            return False
        self._wanted = dict.fromkeys(self._wanted, anchor)
        return self._bound()

    def _insists(self, rank: Rank, change: int) -> bool:
        """Return whether the last windows of trust all asked for a change to the same side.

        Keeps the number of such windows in a row, negative where less was asked for.
        """
        so_far = self._leaning.get(rank, 0)
        if change == 0:
            self._leaning.pop(rank, None)
            return False
        side = 1 if change > 0 else -1
        self._leaning[rank] = so_far + side if so_far * side > 0 else side
        return abs(self._leaning[rank]) >= TRUST_WINDOW

    def _bound(self) -> bool:
        before = self._counts
        if self._is_pinned:
            self._counts = dict(self._wanted)
        else:
            bounded = bounded_counts(
                self._wanted, cap_batches=self._cap_batches, max_batch_diff=self._max_batch_diff
            )
            self._counts, self._cap_binding = bounded.counts, bounded.cap_binding
        return self._counts != before


def _start_counts(
    anchor: int, ranks: Sequence[Rank], speeds: Mapping[Rank, float]
) -> dict[Rank, int]:
    slowest = min((speed for speed in speeds.values() if speed > 0), default=1.0)
    ratios = {
        rank: min(max(speeds.get(rank, slowest) / slowest, 1.0), MAX_SPEED_RATIO) for rank in ranks
    }
    return {rank: round(anchor * ratio) for rank, ratio in ratios.items()}
