"""What a replay and a demo have in common: a player, and orders to it.

What it is: the methods of `Playback` over one player.
What it is not: the answer to an operator; each feed has its own.
Who drives it: `feed.replay` and `feed.demo` are its two forms.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from flodl_console.feed.player import Player
from flodl_console.feed.playhead import Playhead
from flodl_console.view.records import Record, SourceKind, SourceOpened
from flodl_core.units import Seconds


class PlayedFeed:
    """A feed whose records come from a player.

    Args:
        player: of the recording.
        kind: replay or demo.
        label: what is played.
        is_read_only: whether an operator's keys are off.
    """

    def __init__(self, player: Player, *, kind: SourceKind, label: str, is_read_only: bool) -> None:
        self._player = player
        self._source = SourceOpened(kind=kind, label=label, is_read_only=is_read_only)

    @property
    def join_token(self) -> None:
        """None: nobody can join what is played."""
        return None

    async def records(self) -> AsyncGenerator[Record, None]:
        """Yield SourceOpened, then what is played, until cancelled."""
        yield self._source
        played = self._player.play(self._source.label)
        async with aclosing(played):
            async for record in played:
                yield record

    def set_paused(self, *, is_paused: bool) -> None:
        """Stop or go on; at the end, go on from the beginning."""

        def order(head: Playhead) -> None:
            if not is_paused and head.is_paused:
                head.resume()
            head.is_paused = is_paused

        self._player.order(order)

    def step(self, records: int) -> None:
        """Move by so many documents, backwards if negative; pauses."""
        self._player.order(lambda head: head.step(records))

    def seek(self, position_s: Seconds) -> None:
        """Jump; clamped to the record's length."""
        self._player.order(lambda head: head.seek(position_s))

    def set_speed(self, speed: float) -> None:
        """Play so many times as fast as it happened, 0.25 to 64."""
        self._player.order(lambda head: head.set_speed(speed))

    async def aclose(self) -> None:
        """Hold nothing, so give back nothing."""
