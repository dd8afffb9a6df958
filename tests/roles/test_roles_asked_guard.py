"""A user's guard in its process: heard in time or later, given up where it never answers."""

import contextlib
import subprocess
import sys
import textwrap
import threading
from functools import partial
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.guards import (
    DivergenceReport,
    GuardTroubleError,
    LevelGuard,
    NudgeDown,
    Stable,
    SuppressGrowth,
)
from flodl_core.elche.judge import Judge
from flodl_core.errors import BadFrameError, ConfigError
from flodl_core.ids import Rank
from flodl_core.net.children import own_environment
from flodl_core.roles.asked_guard import PATIENCE_S, harder, start_guard
from flodl_core.roles.guard_words import (
    MAX_LINE_BYTES,
    GuardReady,
    GuardRefused,
    Lines,
    Opinion,
    Restore,
    Review,
    line_of,
)

pytestmark = pytest.mark.slow

OWN = """
import os, re, threading
from flodl_core.elche.guards import LevelGuard, NudgeDown, Stable

class Mine(LevelGuard):
    name = "mine"
    def review(self, report):
        print("a word of mine")
        if report.divergences == {7: 0.5}:
            return self.odd()
        return super().review(report)

class Slow(Mine):
    def odd(self):
        threading.Event().wait(0.3)
        return NudgeDown(0.25, "thought about it")

class Endless(Mine):
    def odd(self):
        while True:
            pass

class Locked(Mine):
    def odd(self):
        return re.match("(a+)+$", "a" * 60 + "b")

class Leaves(Mine):
    def odd(self):
        os._exit(3)

class Raises(Mine):
    def odd(self):
        raise ValueError("no idea")

class Odd(Mine):
    def odd(self):
        return "stable"
"""
ODD = DivergenceReport(divergences={Rank(7): 0.5}, n_batches={Rank(7): 10})


def report(largest: float) -> DivergenceReport:
    return DivergenceReport(divergences={Rank(0): largest}, n_batches={Rank(0): 10})


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def started(path, name, **more):
    return await start_guard(
        f"{path}:{name}",
        source="--guard",
        env=own_environment(),
        **({"load_s": 50.0, "ceiling_s": 10.0} | more),
    )


@pytest.fixture
def asked(tmp_path):
    """Start guards and end them; the function takes one's name and a test's deeds with it."""

    def ask(name, deeds, text=OWN, **more):
        path = tmp_path / "own_asked_guard.py"
        path.write_text(textwrap.dedent(text))

        async def live():
            guard = await started(path, name, **more)
            try:
                deeds(guard)
            finally:
                await guard.close()
            return guard

        return anyio.run(live)

    return ask


def until_heard(guard, verdicts):
    """Review calm cycles until the guard says something else than Stable."""
    for _ in range(500):
        verdicts.append(guard.review(report(0.001)))
        if verdicts[-1] != Stable():
            return
        threading.Event().wait(0.01)


@pytest.mark.processes
def test_a_guard_in_its_process_says_what_it_says_beside_us_and_keeps_its_history(asked, capfd):
    beside, said = LevelGuard(), []

    def deeds(guard):
        assert (guard.name, guard.history) == ("mine", ())
        guard.restore([0.005])
        beside.restore([0.005])
        for largest in (0.01, 0.06, 0.07, 0.02):
            expected = beside.review(report(largest))
            said.append(guard.review(report(largest)))
            if said[-1] == Stable() != expected:  # late on a busy machine: with the next one
                until_heard(guard, said)
            assert (said[-1], guard.history[:4]) == (expected, beside.history[:4])

    asked("Mine", deeds)
    assert any(isinstance(verdict, SuppressGrowth) for verdict in said)
    out, err = capfd.readouterr()
    assert out == ""
    assert "a word of mine" in err


@pytest.mark.processes
@pytest.mark.parametrize("name", ["Endless", "Locked"])
def test_a_guard_that_never_answers_costs_an_instant_and_is_given_up(asked, name):
    clock = Clock()

    def deeds(guard):
        guard._clock = clock
        judge = Judge(guard, has_meta=False)
        told = []
        for clock.now in (0.0, 4.0, 9.9, 10.1, 20.0):
            told.append(judge.review(ODD, anchor=10, phase="stable"))
        assert {one.verdict for one in told} == {Stable()}
        assert [one.ends_guard for one in told] == [False, False, False, True, False]
        assert told[3].trouble == "it gave no answer in 10 s (ceiling 10 s)"
        assert judge.failures == 1
        assert judge.name == "mine"

    guard = asked(name, deeds)
    assert guard._child.status.signal == "SIGKILL"


@pytest.mark.processes
def test_a_late_answer_counts_at_a_later_average(asked):
    verdicts = []

    def deeds(guard):
        assert guard.review(ODD) == Stable()
        until_heard(guard, verdicts)

    asked("Slow", deeds)
    assert verdicts[-1] == NudgeDown(0.25, "thought about it")
    assert set(verdicts[:-1]) <= {Stable()}


@pytest.mark.processes
@pytest.mark.parametrize(
    ("name", "words", "is_final"),
    [
        ("Leaves", "its process ended", True),
        ("Raises", "it raised ValueError: no idea", False),
        ("Odd", "it returned 'stable'", False),
    ],
)
def test_a_guard_that_fails_is_named_and_only_one_that_is_gone_ends(asked, name, words, is_final):
    def ask_often(guard):
        for _ in range(500):
            guard.review(ODD)
            threading.Event().wait(0.01)

    def deeds(guard):
        with pytest.raises(GuardTroubleError) as caught:
            ask_often(guard)
        assert caught.value.words.startswith(words)
        assert caught.value.is_final is is_final

    asked(name, deeds)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "load_s", "words"),
    [
        ("1 / 0", 50.0, r"cannot be had \(ZeroDivisionError"),
        ("import os; os._exit(4)", 50.0, "ended its process while it was loaded"),
        ("while True: pass", 0.5, "was not loaded in 0.5 s"),
    ],
)
def test_a_guard_that_cannot_be_loaded_is_refused_and_nothing_stays(tmp_path, text, load_s, words):
    path = tmp_path / "own_bad_guard.py"
    path.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        anyio.run(partial(started, path, "Mine", load_s=load_s))
    assert (caught.value.field, caught.value.source) == ("guard", "--guard")


PARENT = """
import anyio, sys
from flodl_core.elche.guards import DivergenceReport
from flodl_core.net.children import own_environment
from flodl_core.roles.asked_guard import start_guard

async def live():
    guard = await start_guard(
        sys.argv[1], source="", env=own_environment(), load_s=50.0, ceiling_s=10.0
    )
    guard.review(DivergenceReport(divergences={7: 0.5}, n_batches={7: 1}))
    print(guard._child.pid, flush=True)
    await anyio.sleep_forever()

anyio.run(live)
"""


def is_running(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.processes
@pytest.mark.chaos
def test_nothing_is_left_of_an_endless_guard_whose_launcher_is_killed(tmp_path):
    path = tmp_path / "own_left_guard.py"
    path.write_text(OWN)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, f"{path}:Locked"], stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert is_running(pid)
        parent.kill()
        parent.wait()
    for _ in range(500):
        if not is_running(pid):
            return
        threading.Event().wait(0.01)
    pytest.fail(f"process {pid} of the guard lives on")


def test_a_guard_of_ours_needs_no_process():
    start = partial(start_guard, "growth", source="default", env={}, load_s=1.0, ceiling_s=1.0)
    assert anyio.run(start) is None


verdicts = st.one_of(
    st.just(Stable()),
    st.builds(SuppressGrowth, st.text()),
    st.builds(NudgeDown, st.floats(0.1, 1.0), st.text()),
)


@given(verdicts, verdicts)
def test_of_two_verdicts_the_one_that_shortens_windows_more_counts(one, other):
    def weight(verdict):
        kinds = [Stable, SuppressGrowth, NudgeDown]
        factor = verdict.factor if isinstance(verdict, NudgeDown) else 1.0
        return (kinds.index(type(verdict)), -factor)

    assert weight(harder(one, other)) == max(weight(one), weight(other))
    assert weight(harder(one, other)) == weight(harder(other, one))


numbers = st.floats(allow_nan=False, allow_infinity=False)
histories = st.lists(numbers, max_size=5).map(tuple)
ranks = st.integers(0, 2000).map(Rank)
words = st.one_of(
    st.builds(Restore, history=histories),
    st.builds(
        Review,
        report=st.builds(
            DivergenceReport,
            divergences=st.dictionaries(ranks, numbers, max_size=4),
            n_batches=st.dictionaries(ranks, st.integers(0, 10**6), max_size=4),
        ),
    ),
    st.builds(GuardReady, name=st.text(), history=histories),
    st.builds(GuardRefused, reason=st.text(), fix=st.text()),
    st.builds(Opinion, verdict=verdicts, trouble=st.text(), history=histories),
)


@given(st.lists(words, max_size=5), st.integers(1, 50))
def test_words_come_through_in_pieces_of_any_size(spoken, size):
    lines, heard = Lines(), []
    line = b"".join(map(line_of, spoken))
    for start in range(0, len(line), size):
        lines.add(line[start : start + size])
        while (word := lines.next()) is not None:
            heard.append(word)
    assert heard == spoken


@given(st.binary(max_size=200))
def test_any_bytes_are_words_or_refused(junk):
    lines = Lines()
    lines.add(junk + b"\n")
    with contextlib.suppress(BadFrameError):
        while lines.next() is not None:
            pass


def test_a_line_without_an_end_is_refused_in_time():
    lines = Lines()
    for _ in range(MAX_LINE_BYTES // 2**20):
        lines.add(b"a" * 2**20)
    with pytest.raises(BadFrameError, match="a line of more than"):
        lines.add(b"a")


def test_the_wait_for_an_answer_is_shorter_than_a_late_tick():
    assert PATIENCE_S <= 0.02
