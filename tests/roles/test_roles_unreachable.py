"""An agent that reaches no controller says within three seconds which of the causes it is."""

import contextlib
import socket
import threading

import anyio
import pytest

from flodl_core.config.load import load_agent
from flodl_core.errors import TransientJoinError
from flodl_core.net.dial import DialPolicy
from flodl_core.roles.agent import Agent

TOLD_S = 3.0
AGAIN = DialPolicy(attempts=2, pause_s=60.0)


def first_words(controller, tmp_path):
    """Return what the agent says of its first dial, which it must do in time."""
    lines = []
    loaded = load_agent({"controller": controller}, environ={}, directory=tmp_path)

    async def join():
        began = anyio.current_time()
        with anyio.move_on_after(60) as whole:

            def say(line):
                lines.append(line)
                whole.cancel()

            with contextlib.suppress(TransientJoinError):
                await Agent(loaded, say, patience=AGAIN).run()
        return anyio.current_time() - began

    assert anyio.run(join) < TOLD_S
    return lines[0]


@contextlib.contextmanager
def full():
    """A port that takes no further connection: what is sent there is lost."""
    with socket.socket() as listener, contextlib.ExitStack() as held:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):
            waiting = held.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@contextlib.contextmanager
def hanging_up():
    """A port that closes every connection at once."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    listener.accept()[0].close()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_nothing_listens(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        assert "nothing listens at" in first_words(f"127.0.0.1:{port}", tmp_path)


def test_the_name_has_no_address(tmp_path):
    said = first_words("no-such-host.invalid:1337", tmp_path)
    assert "no-such-host.invalid" in said
    assert "has no address" in said or "was not resolved" in said


@pytest.mark.slow
def test_nothing_comes_back(tmp_path):
    with full() as port:
        assert "no answer from" in first_words(f"127.0.0.1:{port}", tmp_path)


def test_the_connection_is_closed_before_an_answer(tmp_path):
    with hanging_up() as port:
        assert "closed the connection before it answered" in first_words(
            f"127.0.0.1:{port}", tmp_path
        )
