"""The demo: a made-up cluster of any size, played like a record.

What it is: a playback over one scenario; an operator's question is answered in words
and changes nothing.
What it is not: the scenarios; those are `flodl_console.demo`.
Who drives it: `flodl console --demo`, tests, screenshots.
"""

from typing import Final

from flodl_console.demo.recording import DemoRun
from flodl_console.demo.scenarios import DEFAULT_RANKS, DEFAULT_SCENARIO, open_scenario
from flodl_console.feed.clock import FeedClock, RealClock
from flodl_console.feed.played import PlayedFeed
from flodl_console.feed.player import Player
from flodl_console.feed.source import ActionOutcome
from flodl_console.view.records import SourceKind
from flodl_core.units import Seconds

_ANSWERS: Final = {
    "start": "a run would close its window and start",
    "stop": "a run would end its window, save and end",
    "checkpoint": "a run would save at its next commit",
    "drain": "a run would let that host leave at its next average",
    "evict": "a run would go on without that rank",
}


class DemoFeed(PlayedFeed):
    """Plays a scenario.

    Attributes:
        asked: what was asked of it so far, oldest first.
    """

    def __init__(
        self,
        scenario: str = DEFAULT_SCENARIO,
        *,
        seed: int = 0,
        ranks: int = DEFAULT_RANKS,
        start_s: Seconds | None = None,
        is_paused: bool = False,
        clock: FeedClock | None = None,
    ) -> None:
        """Make a feed; the same arguments play the same documents.

        Args:
            scenario: one of `demo.scenarios.SCENARIOS`.
            seed: of all that varies.
            ranks: in the cluster.
            start_s: where to begin; the scenario's own place if None.
            is_paused: whether to begin standing.
            clock: time to wait by; the machine's if None.

        Raises:
            ConfigError: there is no such scenario, or the number of ranks is out of range.
        """
        run: DemoRun = open_scenario(scenario, seed=seed, ranks=ranks)
        begin_s = run.begin_s if start_s is None else start_s
        player = Player(
            lambda: run,
            begin_s=lambda _: begin_s,
            is_paused=is_paused,
            clock=clock or RealClock(),
            reads_files=False,
        )
        label = f"{scenario}, {ranks} ranks, seed {seed}"
        super().__init__(player, kind=SourceKind.DEMO, label=label, is_read_only=False)
        self.asked: list[tuple[str, dict[str, str]]] = []

    async def ask(self, action: str, **parameters: str) -> ActionOutcome:
        """Say what a run would do; nothing happens."""
        self.asked.append((action, parameters))
        answer = _ANSWERS.get(action)
        if answer is None:
            return ActionOutcome(is_accepted=False, text=f"a run does not know {action!r}")
        return ActionOutcome(is_accepted=True, text=f"demo: {answer}")
