"""What a relay passes on at the end of its link, whichever direction notices the end first."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from flodl_core.ids import Rank, SaveReason
from flodl_core.messages.control import ShutdownWithSave
from flodl_core.messages.mux import Data
from flodl_core.net.mux_outbox import LinkClosedError, OutboxFullError
from flodl_core.roles.relay import Relay
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.wire.codec import encode

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Refusing:
    """A link that takes nothing, and a plane and a rank's channel beside it."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.put_down: list[tuple[int, bytes]] = []
        self.says = [encode(ShutdownWithSave(reason=SaveReason.CHECKPOINT))]
        self.has_left = anyio.Event()

    def send(self, message: object) -> None:
        raise self.error

    def on_message(self, message: object) -> bool:
        return False

    def on_link_closed(self, reason: str) -> None:
        pass

    async def receive_raw(self) -> tuple[int, bytes]:
        if self.says:
            return self.says.pop()
        await self.has_left.wait()
        raise anyio.EndOfStream

    def put(self, message: tuple[int, bytes]) -> None:
        self.put_down.append(message)

    def finish(self) -> None:
        pass


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ProcessLog]:
    made = ProcessLog(tmp_path / "log", host="h", process="relay", utc_iso=lambda: "")
    yield made
    made.close()


def relay_on(around: Any, log: ProcessLog) -> Relay:
    order: Any = SimpleNamespace(
        envelope=SimpleNamespace(spec=SimpleNamespace(heartbeat_timeout_s=5.0))
    )
    relay = Relay(order, log)
    relay._link = relay._star = around
    relay._outboxes = {Rank(0): around}
    relay._running = {Rank(0)}
    return relay


async def test_what_came_before_the_end_is_passed_on_though_sending_failed(log: ProcessLog) -> None:
    around = Refusing(LinkClosedError("ended"))
    relay = relay_on(around, log)
    told = encode(ShutdownWithSave(reason=SaveReason.GRACEFUL_SHUTDOWN))
    channel: Any = around
    with anyio.fail_after(5):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(relay._carry_up, Rank(0), channel)
            relay.on_message(Data(rank=Rank(0), kind=told[0], payload=told[1]))
            relay.on_closed(None)
            ended = await relay._carry_down()
            assert relay._running == {Rank(0)}
            around.has_left.set()
    assert around.put_down == [told]
    assert ended.is_loss
    assert not relay._running  # nobody is asked for a last word who has left


async def test_a_controller_that_takes_nothing_more_is_lost(log: ProcessLog) -> None:
    around = Refusing(OutboxFullError("too slow"))
    relay = relay_on(around, log)
    channel: Any = around
    with anyio.fail_after(5):
        await relay._carry_up(Rank(0), channel)
        ended = await relay._carry_down()
    assert ended.is_loss
    assert "too slow" in ended.reason
