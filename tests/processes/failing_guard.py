"""A guard that raises at every average, as a user's may."""

from collections.abc import Iterable

from flodl_core.elche.guards import DivergenceReport, Verdict


class Failing:
    """Knows no verdict."""

    name = "failing"
    history: tuple[float, ...] = ()

    def review(self, report: DivergenceReport) -> Verdict:
        raise ValueError(f"no idea about {len(report.divergences)} ranks")

    def restore(self, history: Iterable[float]) -> None:
        return None
