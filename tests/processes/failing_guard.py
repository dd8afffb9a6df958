"""A guard that raises three times and then never returns, as a user's may."""

import re
from collections.abc import Iterable

from flodl_core.elche.guards import DivergenceReport, Verdict


class Failing:
    """Knows no verdict; its last question it ponders for ever, with the interpreter's lock."""

    name = "failing"
    history: tuple[float, ...] = ()

    def __init__(self) -> None:
        self._asked = 0

    def review(self, report: DivergenceReport) -> Verdict:
        self._asked += 1
        if self._asked > 3:
            re.match("(a+)+$", "a" * 60 + "b")
        raise ValueError(f"no idea about {len(report.divergences)} ranks")

    def restore(self, history: Iterable[float]) -> None:
        return None
