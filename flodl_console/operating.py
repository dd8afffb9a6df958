"""What an operator's keys do to a run: offer, ask the person, ask the run, say what it said.

What it is: the road from a key to `Feed.ask`; only a clear yes goes on.
What it is not: the rules; `view.actions` has the same as the run, and the run decides.
Who drives it: the app's actions.
"""

from typing import Final

from flodl_console.screens.choice import ChoiceScreen
from flodl_console.screens.confirm import ConfirmScreen
from flodl_console.shell import Shell
from flodl_console.view.actions import ActionId, ActionOffer, offer
from flodl_console.view.facts import alive_ranks, host_names, place_of
from flodl_console.view.texts import says

ANSWER_CELLS: Final = 48
"""Of an answer in a box, which fits into the smallest terminal."""


class Operating:
    """Does what operators ask for, one request at a time."""

    def __init__(self, shell: Shell) -> None:
        """Work for a shell."""
        self._shell = shell
        self._is_asking = False

    def ask(self, action: ActionId, *, rank: int | None = None, host: str | None = None) -> None:
        """Offer an action: refuse with the reason, ask the person, or ask the run at once.

        Args:
            action: what is wanted.
            rank: for evict.
            host: for drain.
        """
        if self._is_asking:
            self._shell.notice("the run has not answered yet", is_problem=True)
            return
        offered = offer(self._shell.latest, action, rank=rank, host=host)
        if not offered.is_enabled:
            self._shell.notice(offered.reason, is_problem=True)
        elif offered.confirm is None:
            self._send(offered)
        else:
            self._shell.ask_person(
                ConfirmScreen(offered.confirm, clock=self._shell.clock),
                lambda is_sure: self._send(offered) if is_sure else None,
            )

    def drain(self) -> None:
        """Drain the host that is chosen on the screen, or ask which one where one may be."""
        host = self._shell.chosen_host
        latest, hosts = self._shell.latest, self._hosts()
        taken = [one for one in hosts if offer(latest, ActionId.DRAIN, host=one).is_enabled]
        if host is None and not taken:
            host = next(iter(hosts), None)
        if host is not None or not taken:
            self.ask(ActionId.DRAIN, host=host)
            return
        self._shell.ask_person(
            ChoiceScreen(
                "Drain which host?",
                [(host, says(host, ANSWER_CELLS)) for host in taken],
                clock=self._shell.clock,
            ),
            lambda taken: None if taken is None else self.ask(ActionId.DRAIN, host=taken),
        )

    def evict(self) -> None:
        """Evict the rank that is chosen on the screen, or ask which one where one may be."""
        rank = self._shell.chosen_rank
        latest, ranks = self._shell.latest, self._ranks()
        if rank is None and not any(
            offer(latest, ActionId.EVICT, rank=int(number)).is_enabled for number, _ in ranks
        ):
            rank = next((int(number) for number, _ in ranks), None)
        if rank is not None or not ranks:
            self.ask(ActionId.EVICT, rank=rank)
            return
        self._shell.ask_person(
            ChoiceScreen("Evict which rank?", ranks, clock=self._shell.clock),
            lambda taken: None if taken is None else self.ask(ActionId.EVICT, rank=int(taken)),
        )

    def _send(self, offered: ActionOffer) -> None:
        self._is_asking = True
        self._shell.in_background(self._request(offered))

    async def _request(self, offered: ActionOffer) -> None:
        try:
            feed = self._shell.feed
            if feed is None:
                self._shell.notice("there is no run to ask", is_problem=True)
                return
            outcome = await feed.ask(offered.request, **offered.parameters)
        finally:
            self._is_asking = False
        fix = f" — {outcome.fix}" if outcome.fix else ""
        head = "accepted: " if outcome.is_accepted else ""
        self._shell.notice(f"{head}{outcome.text}{fix}", is_problem=not outcome.is_accepted)

    def _hosts(self) -> list[str]:
        document = self._shell.latest.document
        return [] if document is None else list(host_names(document))

    def _ranks(self) -> list[tuple[str, str]]:
        document = self._shell.latest.document
        if document is None:
            return []
        return [
            (str(row.rank), says(f"{place_of(row.rank, row.host)} ({row.device})", ANSWER_CELLS))
            for row in alive_ranks(document)
        ]
