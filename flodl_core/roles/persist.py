"""A host that is there for every run: it joins, trains, and dials again for the next one.

    dial ─▶ run ─▶ pause ─▶ dial …        pause: 5, 10, 20, 40, 60, 60 … s; 5 after a run
What it is: a loop around the agent. Each turn reads the settings anew, so that a token file
that was written for the next run is the one that is used, and begins with a fresh Offer:
nothing of one run is carried into another.
What it is not: the agent, or a service manager; a signal ends it.
Who drives it: `flodl join --persist`.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

import anyio

from flodl_core.errors import FlodlError
from flodl_core.net.dial import persist_pause_s
from flodl_core.roles.agent import AgentInterruptedError
from flodl_core.roles.error_groups import innermost
from flodl_core.units import Seconds


class JoiningAgent(Protocol):
    """An agent as this loop drives it."""

    @property
    def was_admitted(self) -> bool:
        """Whether the run let it in."""

    async def run(self) -> int:
        """Join and stay until the run has ended."""


async def persist(
    make_agent: Callable[[], JoiningAgent],
    *,
    say: Callable[[str], None],
    scale: float,
    sleep: Callable[[Seconds], Awaitable[None]] = anyio.sleep,
) -> None:
    """Join one run after another, until cancelled or a signal ends it.

    Args:
        make_agent: reads the settings and makes the agent of one turn.
        say: takes one line for the person who started it.
        scale: of all pauses.
        sleep: waits between two turns.

    Whatever else ends a turn may be otherwise in the next: another run, another token, another
    copy of the job, an answer of another program, a disk that is full.

    Raises:
        AgentInterruptedError: a signal.
        ConfigError: a setting that cannot be used at the first turn.
    """
    failed = 0
    is_first = True
    while True:
        agent: JoiningAgent | None = None
        try:
            agent = make_agent()
            is_first = False
            await agent.run()
            why = "the run is over"
        except Exception as error:
            why = _why(error)
            if is_first or not why:
                raise
        failed = 0 if agent is not None and agent.was_admitted else failed + 1
        pause_s = persist_pause_s(failed, scale)
        say(f"{why}; dialling again in {pause_s:g} s")
        await sleep(pause_s)


def _why(error: Exception) -> str:
    """Return what ended a turn, on one line; empty where no other turn is to follow."""
    cause = innermost(error) if isinstance(error, BaseExceptionGroup) else error
    if isinstance(cause, AgentInterruptedError):
        return ""
    if isinstance(cause, FlodlError):
        return f"{cause.happened} ({cause.fix})" if cause.fix else cause.happened
    return f"{type(cause).__name__}: {cause}" if isinstance(cause, OSError) else ""
