"""The console at a run with --tls: it knows the run by its fingerprint, or says why not."""

import anyio
import pytest
from net_pairs import running_port

from flodl_console.feed.clock import RealClock
from flodl_console.feed.run_port import PortFaultError, RunPort, RunTrust
from flodl_core.net.http import HttpApp, Publisher
from flodl_core.net.http_trust import TrustPolicy
from flodl_core.net.tls_identity import make_identity

IDENTITY, OTHER = make_identity(), make_identity()
DOCUMENT = b'{"run": {"id": "0123456789abcdef"}}'


def web():
    publisher = Publisher()
    publisher.publish(DOCUMENT)
    return HttpApp(publisher, trust=TrustPolicy(operator_token="sesame", require_token=True)).serve


async def asked(port, fingerprint):
    trust = RunTrust(operator_token="sesame", fingerprint=fingerprint)
    run = RunPort(*port.at, trust=trust, clock=RealClock())
    try:
        return await run.read("/state.json")
    finally:
        await run.aclose()


@pytest.fixture
def anyio_backend():
    """The console runs on asyncio."""
    return "asyncio"


@pytest.mark.anyio
async def test_the_console_reads_a_run_whose_fingerprint_it_knows():
    async with running_port(on_http=web(), tls=IDENTITY.context) as port:
        assert await asked(port, IDENTITY.fingerprint) == DOCUMENT
        assert port.dropped() == {}


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("tls", "fingerprint", "word", "counted"),
    [
        (IDENTITY, OTHER.fingerprint, "another certificate than the token names", "distrusted"),
        (IDENTITY, None, "speaks TLS, and its token is not here", "plain"),
        (None, IDENTITY.fingerprint, "speaks no TLS 1.3", "tls"),
    ],
    ids=["another run", "no fingerprint", "no TLS"],
)
async def test_a_run_that_is_not_the_one_that_was_meant_is_a_sentence_on_the_screen(
    tls, fingerprint, word, counted
):
    context = None if tls is None else tls.context
    async with running_port(on_http=web(), tls=context) as port:
        with pytest.raises(PortFaultError, match=word):
            await asked(port, fingerprint)
        with anyio.fail_after(5):
            while not port.dropped():  # noqa: ASYNC110 - what is waited for tells nobody
                await anyio.sleep(0.01)
        assert port.dropped() == {counted: 1}
