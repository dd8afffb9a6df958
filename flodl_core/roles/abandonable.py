"""Blocking work that the loop may leave behind: a write to a disk that has stopped answering.

What it is: one call in a daemon thread, awaited. A caller that is cancelled waits a
moment longer and then goes on; the thread does not hold the process up either.
What it is not: a way to end the call. Whatever it holds stays held until it returns.
Who drives it: whoever writes where a file system may hang.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import anyio

from flodl_core.units import Seconds

T = TypeVar("T")

ABANDON_S: Seconds = 1.0
"""From the caller's cancellation to the moment it goes on without the call's end."""


async def run_abandonable(function: Callable[[], T], *, name: str) -> T:
    """Call a function in a thread of its own and return what it returns.

    Args:
        function: blocks; it also ends well where nobody waits for it any more.
        name: of the thread.

    Raises:
        BaseException: whatever the function raises.
    """
    future: Future[T] = Future()
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def call() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(over.set)

    threading.Thread(target=call, name=name, daemon=True).start()
    try:
        await over.wait()
    except BaseException:
        with anyio.move_on_after(ABANDON_S, shield=True):
            await over.wait()
        raise
    return future.result()
