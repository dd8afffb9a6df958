"""The terminal is as it was before, whatever ends the console."""

import os
import signal

import pytest
from console_terminal import SCREEN_MODE, terminal

pytestmark = [pytest.mark.processes, pytest.mark.slow]

DRAWN = b"manual"


def test_leaving_gives_the_terminal_back_within_a_second() -> None:
    with terminal() as term:
        term.read_until(DRAWN)
        assert SCREEN_MODE in term.modes_on
        term.send(b"q")
        code, took_s = term.wait()
        assert code == 0
        assert took_s < 2.0
        term.assert_clean()


def test_control_c_leaves_as_q_does() -> None:
    with terminal() as term:
        term.read_until(DRAWN)
        term.send(b"\x03")
        code, _ = term.wait()
        assert code == 0
        term.assert_clean()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT])
def test_a_signal_ends_it_with_a_clean_terminal(signum: signal.Signals) -> None:
    with terminal() as term:
        term.read_until(DRAWN)
        term.process.send_signal(signum)
        code, took_s = term.wait()
        assert code == 128 + signum
        assert took_s < 2.5
        term.assert_clean()


def test_an_exception_in_a_screen_leaves_a_clean_terminal_and_a_traceback() -> None:
    with terminal("fail") as term:
        term.read_until(DRAWN)
        term.send(b"j")
        code, _ = term.wait()
        assert code == 1
        term.assert_clean()
        after = term.seen[term.seen.rindex(b"\x1b[?1049l") :]
        assert b"a widget failed" in after


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_console_that_hangs(signum: signal.Signals) -> None:
    with terminal("hang") as term:
        term.read_until(DRAWN)
        term.send(b"j")
        term.read_until(b"HANGS")
        term.send(b"q")
        term.process.send_signal(signum)
        code, took_s = term.wait()
        assert code == 128 + signum
        assert 0.5 < took_s < 3.0
        term.assert_clean()


def test_a_terminal_that_takes_no_more_bytes_does_not_keep_it() -> None:
    with terminal() as term:
        term.read_until(DRAWN)
        for _ in range(400):
            term.send(b"tt")
        term.process.send_signal(signal.SIGTERM)
        assert term.process.wait(timeout=10) == 128 + signal.SIGTERM


def test_a_terminal_that_is_gone_ends_it() -> None:
    with terminal() as term:
        term.read_until(DRAWN)
        os.close(term.master)
        term.process.send_signal(signal.SIGHUP)
        assert term.process.wait(timeout=10) == 128 + signal.SIGHUP


def test_what_a_program_before_left_on_is_switched_off_at_the_start() -> None:
    with terminal() as term:
        term.read_until(DRAWN)
        before = term.seen[: term.seen.index(b"\x1b[?1049h")]
        for off in (b"\x1b[!p", b"\x1b[?1003l", b"\x1b[?2004l", b"\x1b[?1l", b"\x1b[0m"):
            assert off in before


def test_without_colour_no_colour_is_sent() -> None:
    with terminal(environ={"NO_COLOR": "1"}) as term:
        term.read_until(DRAWN)
        term.send(b"q")
        term.wait()
        assert b"38;" not in term.seen
        assert b"48;" not in term.seen
