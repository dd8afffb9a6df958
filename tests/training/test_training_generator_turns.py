"""The generators have one user at a time, and the training thread goes first."""

import threading

from flodl_core.training.generator_turns import GeneratorTurns

CEILING_S = 10.0


class Reader:
    """Borrows on a thread of its own; each step waits to be told."""

    def __init__(self, turns):
        self.turns = turns
        self.got = threading.Event()
        self.may_go_on = threading.Event()
        self.answers = []
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while True:
            self.answers.append(self.turns.borrow())
            if not self.answers[-1]:
                return
            self.got.set()
            assert self.may_go_on.wait(CEILING_S)
            self.may_go_on.clear()
            self.turns.give_back()

    def end(self):
        self.may_go_on.set()
        self.turns.close()
        self.thread.join(CEILING_S)
        assert not self.thread.is_alive()


def test_a_reader_has_no_turn_before_it_is_lent_one():
    turns = GeneratorTurns()
    reader = Reader(turns)
    assert not reader.got.wait(0.05)
    with turns.lent():
        assert reader.got.wait(CEILING_S)
        reader.may_go_on.set()
    reader.end()
    assert reader.answers[-1] is False


def test_the_end_of_lending_waits_for_the_reader_and_recalls_it():
    turns = GeneratorTurns()
    reader = Reader(turns)
    seen = []

    def give_up_later():
        while not turns.is_recalled:
            pause.wait(0.001)
        seen.append("recalled")
        reader.may_go_on.set()

    pause = threading.Event()
    helper = threading.Thread(target=give_up_later, daemon=True)
    with turns.lent():
        assert reader.got.wait(CEILING_S)
        reader.got.clear()
        assert not turns.is_recalled
        helper.start()
    assert seen == ["recalled"]
    assert not turns.is_recalled
    assert not reader.got.wait(0.05), "a reader must not come back after lending ended"
    helper.join(CEILING_S)
    reader.end()


def test_lending_again_gives_the_reader_another_turn():
    turns = GeneratorTurns()
    reader = Reader(turns)
    for _ in range(3):
        with turns.lent():
            assert reader.got.wait(CEILING_S)
            reader.got.clear()
            reader.may_go_on.set()
    reader.end()
    assert reader.answers.count(True) >= 3


def test_two_threads_never_have_them_at_one_time():
    turns = GeneratorTurns()
    using = []

    def use(who):
        using.append(who)
        assert using == [who], using
        assert using.pop() == who

    def read():
        while turns.borrow():
            use("reader")
            turns.give_back()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    for _ in range(500):
        with turns.lent():
            pass
        use("training")
    turns.close()
    thread.join(CEILING_S)
    assert not thread.is_alive()


def test_an_error_while_lent_brings_them_back():
    turns = GeneratorTurns()
    reader = Reader(turns)
    try:
        with turns.lent():
            raise KeyError
    except KeyError:
        pass
    reader.got.clear()
    assert not reader.got.wait(0.05)
    reader.end()


def test_what_is_lent_stays_lent_until_it_is_taken_back():
    turns = GeneratorTurns()
    reader = Reader(turns)
    turns.lend()
    turns.lend()
    assert reader.got.wait(CEILING_S)
    assert not turns.take_back(0.02)
    turns.lend()
    reader.may_go_on.set()
    assert turns.take_back(CEILING_S)
    assert turns.take_back()
    reader.end()


def test_after_a_reader_that_was_not_waited_for_the_training_thread_comes_first():
    turns = GeneratorTurns()
    reader = Reader(turns)
    turns.lend()
    assert reader.got.wait(CEILING_S)
    assert not turns.take_back(0.0)
    assert not turns.is_recalled
    reader.end()
    assert turns.take_back()
