"""The command palette's entries: every action of the registry that the screen offers.

What it is: a search over titles and tooltips.
What it is not: a second list of actions.
Who drives it: Textual's palette.
"""

from collections.abc import Awaitable, Callable

from textual.command import DiscoveryHit, Hit, Hits, Provider

from flodl_console.actions import ConsoleAction, Scope
from flodl_console.registry import actions_in
from flodl_console.screens.console_screen import ConsoleScreen


class ConsoleCommands(Provider):
    """Actions by name; running one is as pressing its key."""

    async def discover(self) -> Hits:
        """List what the screen offers while nothing is typed."""
        for action in self._offered():
            yield DiscoveryHit(
                _title(action), self._runner(action), text=action.title, help=action.tooltip
            )

    async def search(self, query: str) -> Hits:
        """Find actions by title and tooltip."""
        matcher = self.matcher(query)
        for action in self._offered():
            score = max(matcher.match(action.title), 0.5 * matcher.match(action.tooltip))
            if score > 0:
                yield Hit(
                    score,
                    matcher.highlight(_title(action)),
                    self._runner(action),
                    text=action.title,
                    help=action.tooltip,
                )

    def _offered(self) -> tuple[ConsoleAction, ...]:
        own = actions_in(self.screen.SCOPE) if isinstance(self.screen, ConsoleScreen) else ()
        return tuple(
            action
            for action in (*actions_in(Scope.SHELL), *own)
            if action.id not in {"palette", "next-field", "previous-field", "leave-field"}
        )

    def _runner(self, action: ConsoleAction) -> Callable[[], Awaitable[None]]:
        screen = self.screen

        async def run() -> None:
            await screen.run_action(action.call)

        return run


def _title(action: ConsoleAction) -> str:
    return f"{action.title} ({action.key_shown})"
