"""Blocking calls that a cancelled caller leaves behind."""

import threading
import time

import anyio
import pytest

from flodl_core.roles import abandonable
from flodl_core.roles.abandonable import ABANDON_S, run_abandonable

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_what_the_call_returns_is_returned_and_it_ran_in_a_thread_of_that_name() -> None:
    told = await run_abandonable(lambda: threading.current_thread().name, name="writer")
    assert told == "writer"


async def test_what_the_call_raises_is_raised() -> None:
    def fail() -> None:
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        await run_abandonable(fail, name="writer")


@pytest.mark.slow
async def test_a_cancelled_caller_goes_on_though_the_call_hangs() -> None:
    hangs, ended = threading.Event(), threading.Event()

    def hang() -> None:
        hangs.wait(30)
        ended.set()

    began = time.monotonic()
    with anyio.move_on_after(0.05):
        await run_abandonable(hang, name="writer")
    assert 0.05 + ABANDON_S <= time.monotonic() - began < 0.05 + ABANDON_S + 5
    hangs.set()
    assert ended.wait(5)


async def test_a_cancelled_caller_waits_for_a_call_that_ends_soon() -> None:
    ended = threading.Event()

    def end_soon() -> None:
        threading.Event().wait(0.1)
        ended.set()

    with anyio.move_on_after(0.01):
        await run_abandonable(end_soon, name="writer")
    assert ended.is_set()
    assert abandonable.ABANDON_S > 0.1
