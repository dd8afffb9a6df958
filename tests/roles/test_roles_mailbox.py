"""The mailbox, the outbox and the driver: order, bounds, ticks."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio
import pytest

from flodl_core.errors import LocalProtocolError
from flodl_core.machines import Tick
from flodl_core.net.clock import now
from flodl_core.roles.drive import Driver
from flodl_core.roles.mailbox import Mailbox
from flodl_core.roles.outbox import LinkOutbox

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_events_of_many_threads_arrive_in_each_thread_s_order() -> None:
    mailbox: Mailbox[tuple[int, int]] = Mailbox()

    def post_all(thread: int) -> None:
        for number in range(200):
            mailbox.post((thread, number))

    threads = [threading.Thread(target=post_all, args=(one,)) for one in range(4)]
    for thread in threads:
        thread.start()
    got: list[tuple[int, int]] = []
    with anyio.fail_after(5):
        while len(got) < 800:
            got.append(await mailbox.receive())
    for thread in threads:
        thread.join()
    for one in range(4):
        assert [number for thread_, number in got if thread_ == one] == list(range(200))
    assert mailbox.statistics().posted == 800


async def test_a_mailbox_refuses_beyond_its_capacity() -> None:
    mailbox: Mailbox[int] = Mailbox(capacity=2)
    mailbox.post(1)
    mailbox.post(2)
    with pytest.raises(LocalProtocolError, match="2 events"):
        mailbox.post(3)
    assert await mailbox.receive() == 1


async def test_a_call_runs_on_the_loop_s_own_thread() -> None:
    mailbox: Mailbox[int] = Mailbox()
    seen: list[str] = []
    done = anyio.Event()

    def note(word: str) -> None:
        seen.append(f"{word} {threading.current_thread() is threading.main_thread()}")
        done.set()

    threading.Thread(target=mailbox.call, args=(note, "called")).start()
    with anyio.fail_after(5):
        await done.wait()
    assert seen == ["called True"]


@dataclass
class Sink:
    """A link that can be held and broken."""

    sent: list[object] = field(default_factory=list)
    gate: anyio.Event = field(default_factory=anyio.Event)
    is_closed: bool = False

    async def send(self, message: object) -> None:
        await self.gate.wait()
        if self.is_closed:
            raise anyio.ClosedResourceError
        self.sent.append(message)

    async def aclose(self) -> None:
        self.is_closed = True
        self.gate.set()


async def test_an_outbox_writes_everything_in_order_before_it_finishes() -> None:
    sink = Sink()
    outbox = LinkOutbox(sink)
    for number in range(5):
        outbox.put(number)
    outbox.finish()
    outbox.put("too late")
    sink.gate.set()
    with anyio.fail_after(5):
        await outbox.run()
    assert sink.sent == [0, 1, 2, 3, 4]


async def test_a_peer_that_takes_nothing_is_cut_off_at_the_capacity() -> None:
    sink = Sink()
    outbox = LinkOutbox(sink, capacity=3)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(outbox.run)
        await anyio.lowlevel.checkpoint()
        for number in range(10):
            outbox.put(number)
        assert outbox.overflowed
        sink.gate.set()
        with anyio.fail_after(5):
            await sink.gate.wait()
            while not sink.is_closed:
                await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


class Counter:
    """A machine that asks for a tick every few milliseconds and echoes events."""

    def __init__(self) -> None:
        self.due = now() + 0.005
        self.ticks = 0

    def handle(self, event: str | Tick, now: float) -> Sequence[str]:
        if isinstance(event, Tick):
            self.ticks += 1
            self.due = now + 0.005
            return [f"tick {self.ticks}"]
        return [event]

    def deadline(self) -> float | None:
        return self.due


async def test_a_driver_serves_ticks_although_its_mailbox_never_empties() -> None:
    machine, mailbox = Counter(), Mailbox[str]()
    done: list[str] = []

    def perform(effect: str) -> None:
        done.append(effect)
        if effect == "tick 3":
            driver.stop()
        elif not effect.startswith("tick"):
            mailbox.post(effect)

    driver = Driver(machine, mailbox, perform)
    mailbox.post("again")
    with anyio.fail_after(10):
        await driver.run()
    assert machine.ticks == 3
    assert driver.lateness().ticks == 3
    assert driver.lateness().max_ms >= driver.lateness().p99_ms >= 0
