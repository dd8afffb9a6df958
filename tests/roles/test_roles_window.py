"""The join window behind a real port: who is counted, and who is told."""

import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "net"))

from net_pairs import OTHER_TOKEN, SALT, TOKEN, RunningPort, running_port, until

from flodl_core.config.window import WindowConfig
from flodl_core.errors import WrongTokenError
from flodl_core.ids import ClusterPhase, StartMode
from flodl_core.membership.events import Aborted, WindowOpened
from flodl_core.membership.ledger import MembershipLedger
from flodl_core.membership.roster import Expected
from flodl_core.messages.join import Knock, Reject
from flodl_core.net.join_link import connect_join
from flodl_core.roles.window import JoinWindow, RefusedHost, Secrets, WindowReports
from flodl_core.telemetry.logs import ProcessLog
from flodl_core.wire.handshake import Channel, ClientHandshake

pytestmark = pytest.mark.anyio


class World:
    """A window that is open, and what it reported."""

    def __init__(self, place: Path) -> None:
        config = WindowConfig(
            min_rank_start=2,
            target_ranks=None,
            join_timeout_s=300.0,
            max_join_timeout_s=600.0,
            start_mode=StartMode.AUTO,
        )
        self.ledger = MembershipLedger(config, Expected())
        self.refused: list[RefusedHost] = []
        nobody = lambda *_: None  # noqa: E731
        self.log_file = place / "launcher.log"
        self.log = ProcessLog(self.log_file, host="red", process="launcher", utc_iso=lambda: "2031")
        self.window = JoinWindow(
            self.ledger,
            None,  # no host comes so far as to be offered anything
            secrets=Secrets(token=TOKEN, salt=SALT, admits_openly=False),
            reports=WindowReports(
                formed=nobody,
                failed=nobody,
                phase=nobody,
                refused=self.refused.append,
                joined=nobody,
                left=nobody,
                host_lost=nobody,
                from_host=nobody,
                leaves=nobody,
            ),
            log=self.log,
        )
        self.window.take(WindowOpened())

    @contextlib.asynccontextmanager
    async def port(self) -> AsyncIterator[RunningPort]:
        try:
            async with running_port(on_join=self.window.on_join) as port:
                yield port
        finally:
            self.log.close()


async def test_wrong_tokens_and_first_frames_that_do_not_verify_are_counted(tmp_path) -> None:
    world = World(tmp_path)
    async with world.port() as port:
        for _ in range(3):
            with pytest.raises(WrongTokenError):
                await connect_join(*port.at, token=OTHER_TOKEN)
        hello = ClientHandshake(
            Channel.JOIN, TOKEN, nonce=os.urandom(32), private_key=os.urandom(32)
        ).hello()
        with port.client(hello) as sock:
            await anyio.wait_readable(sock)  # the answer
            sock.sendall(b"x" * 100)
            await until(lambda: port.dropped().get("bad_handshake"))
        assert port.dropped() == {"unproven": 3, "bad_handshake": 1}
    assert "host_link_ended" not in world.log_file.read_text()


async def test_a_late_host_is_told_and_reported_as_refused(tmp_path) -> None:
    world = World(tmp_path)
    world.window.take(Aborted(reason="the operator stopped it"))
    async with world.port() as port:
        for _ in range(2):
            link = await connect_join(*port.at, token=TOKEN)
            await link.send(Knock(version="0"))
            answer = await link.receive()
            assert isinstance(answer, Reject)
            assert answer.transient
            await link.aclose()
    assert len(world.refused) == 2
    assert all("the join window is closed" in one.reason for one in world.refused)
    assert world.ledger.phase is ClusterPhase.FAILED
