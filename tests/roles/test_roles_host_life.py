"""The life of a host ends though a rank or the relay cannot be killed, and says which."""

from functools import partial
from pathlib import Path

import anyio
import pytest
from host_stand_ins import facts_of, starts
from wire_examples import ENVELOPE

from flodl_core.errors import RunLostError
from flodl_core.ids import Rank
from flodl_core.messages.join import Abort, RankExited, RunEnded, WorldFormed
from flodl_core.roles.host_children import HostChildren
from flodl_core.roles.host_join import JoinedWorld
from flodl_core.roles.host_life import Attached, HostLife
from flodl_core.roles.rank_ends import close_ends

pytestmark = [pytest.mark.anyio, pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(60)]

RANKS = (Rank(0), Rank(1))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Link:
    """A control link down which one word comes."""

    def __init__(self, word):
        self.word, self.sent, self.is_closed = word, [], False

    async def receive(self):
        if self.word is None:
            await anyio.sleep_forever()
        word, self.word = self.word, None
        return word

    async def send(self, message):
        self.sent.append(message)

    async def aclose(self):
        self.is_closed = True


def life_of(place: Path, link: Link, *, stuck=(), relay_ends=True) -> HostLife:
    async def attach(envelope, salt, folding) -> Attached:
        close_ends(folding)

        async def finish() -> None:
            if not relay_ends:
                await anyio.sleep_forever()

        return Attached(until_lost=anyio.sleep_forever, finish=finish)

    world = JoinedWorld(
        formed=WorldFormed(envelope=ENVELOPE, ranks=RANKS),
        salt=b"",
        job=None,
        devices=("cpu:0", "cpu:0"),
    )
    return HostLife(
        link,
        world,
        facts=facts_of(place),
        attach=attach,
        controller="127.0.0.1:1",
        make_children=partial(HostChildren, start=starts(stuck=stuck), unkillable_s=0.5),
    )


async def test_the_end_of_a_run_names_the_rank_that_cannot_be_killed(tmp_path: Path) -> None:
    link = Link(RunEnded(code=0, summary="3 epochs"))
    with anyio.fail_after(20):
        ended = await life_of(tmp_path, link, stuck=("rank0",)).run()
    assert ended == RunEnded(code=0, summary="3 epochs; rank 0 cannot be killed")
    assert link.is_closed
    assert "rank 0" in (tmp_path / "host.jsonl").read_text()


async def test_the_loss_of_a_run_names_the_relay_and_the_rank(tmp_path: Path) -> None:
    link = Link(Abort(reason="operator"))
    with anyio.fail_after(20), pytest.raises(RunLostError) as lost:
        await life_of(tmp_path, link, stuck=("rank1",), relay_ends=False).run()
    assert lost.value.happened == ("operator; rank 1 cannot be killed; the relay cannot be killed")
    assert lost.value.fix == "see the launcher's output"
    assert link.is_closed


async def test_where_everything_ends_the_last_word_is_the_launchers(tmp_path: Path) -> None:
    link = Link(RunEnded(code=0, summary="3 epochs"))
    with anyio.fail_after(20):
        assert await life_of(tmp_path, link).run() == RunEnded(code=0, summary="3 epochs")
    assert not (tmp_path / "host.jsonl").exists()
    assert all(one.signal == "SIGKILL" for one in link.sent if isinstance(one, RankExited))
