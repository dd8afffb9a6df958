"""Reading ahead in the rank's own process changes when samples are read, and nothing else."""

import random
import threading

import numpy as np
import pytest
import torch
from chancy_job import SAMPLES, Chancy, collate
from hypothesis import given
from hypothesis import strategies as st
from test_training_batch_codec import same
from training_cohort import MemoryLog

from flodl_core.training.generator_turns import GeneratorTurns
from flodl_core.training.loader import SampleLoader
from flodl_core.training.read_ahead import DEPTH, OwnReader
from flodl_core.training.samples import BatchPlace, PassOrder, SampleReader

CPU = torch.device("cpu")
CEILING_S = 10.0
PLACES = [BatchPlace(p, offset, 8) for p in (0, 1) for offset in range(0, SAMPLES, 8)]


class Counting(Chancy):
    """Notes which thread read which sample."""

    def __init__(self, **options):
        super().__init__(**options)
        self.reads = []

    def __getitem__(self, index):
        self.reads.append((index, threading.current_thread().name))
        return super().__getitem__(index)

    def read_ahead(self):
        return [index for index, thread in self.reads if thread == "read ahead"]


class Bench:
    """A loader without workers, on data that count."""

    def __init__(self, dataset=None):
        self.dataset = dataset or Counting()
        self.order = PassOrder(SAMPLES, 3)
        self.turns = GeneratorTurns()
        self.log = MemoryLog()
        self.own = OwnReader(
            SampleReader(self.dataset, collate, seed=3, n_samples=SAMPLES),
            self.order,
            turns=self.turns,
            device=CPU,
            log=self.log,
        )
        self.loader = SampleLoader(self.own, seed=3, turns=self.turns)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.loader.close()
        assert not self.own._thread.is_alive()

    def idle_until(self, look):
        """Wait as the training thread does, with the generators lent."""
        pause = threading.Event()
        with self.loader.lent():
            for _ in range(int(CEILING_S / 0.002)):
                if look():
                    return
                pause.wait(0.002)
        raise AssertionError("it did not come")

    def idle_until_read(self, *places):
        self.idle_until(lambda: all(place in self.own._ready for place in places))

    def ids(self, *places):
        return [i for place in places for i in self.order.ids(place)]


def read_at_once(place):
    order = PassOrder(SAMPLES, 3)
    return SampleReader(Chancy(), collate, seed=3, n_samples=SAMPLES).read(
        place.pass_index, order.ids(place)
    )


def test_a_batch_read_ahead_is_the_batch_read_at_once():
    with Bench() as bench:
        bench.loader.expect(PLACES[:2])
        bench.idle_until_read(*PLACES[:2])
        for number, place in enumerate(PLACES[:4]):
            same(bench.loader.fetch(place, PLACES[number + 1 : number + 3]), read_at_once(place))


@pytest.mark.slow
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["fetch", "expect", "idle"]),
            st.lists(st.sampled_from(PLACES), max_size=3, unique=True),
        ),
        max_size=8,
    )
)
def test_however_plans_change_each_batch_is_the_one_that_was_asked_for(deeds):
    with Bench() as bench:
        for deed, places in deeds:
            if deed == "expect":
                bench.loader.expect(places)
            elif deed == "idle":
                with bench.loader.lent():
                    threading.Event().wait(0.001)
            elif places:
                same(bench.loader.fetch(places[0], places[1:]), read_at_once(places[0]))


def test_while_nothing_is_lent_nothing_is_read_ahead():
    with Bench() as bench:
        bench.loader.expect(PLACES[:2])
        assert not threading.Event().wait(0.05)
        assert bench.dataset.reads == []
        bench.loader.fetch(PLACES[0], PLACES[1:3])
        assert bench.dataset.read_ahead() == []


def test_a_batch_that_is_half_read_when_the_wait_ends_is_finished_and_not_read_again():
    halfway = threading.Event()

    class Slow(Counting):
        def __getitem__(self, index):
            if len(self.reads) == 3:
                halfway.set()
            return super().__getitem__(index)

    with Bench(Slow()) as bench:
        bench.loader.expect(PLACES[:1])
        with bench.loader.lent():
            assert halfway.wait(CEILING_S)
        same(bench.loader.fetch(PLACES[0]), read_at_once(PLACES[0]))
        assert [index for index, _ in bench.dataset.reads] == bench.ids(PLACES[0])


def test_the_draws_of_the_training_thread_are_the_same_with_and_without_reading_ahead():
    def draws(*, is_lent):
        torch.manual_seed(9)
        found = []
        with Bench() as bench:
            for number, place in enumerate(PLACES[:4]):
                bench.loader.fetch(place, PLACES[number + 1 : number + 3])
                found.append((float(torch.rand(())), random.random(), np.random.rand()))
                if is_lent:
                    bench.idle_until_read(PLACES[number + 1])
            assert bool(bench.dataset.read_ahead()) == is_lent
        return found

    assert draws(is_lent=True) == draws(is_lent=False)


def test_catching_up_reads_what_is_expected_on_the_other_thread_and_no_more():
    with Bench() as bench:
        first, *ahead = PLACES[:3]
        bench.loader.fetch(first, ahead)
        assert bench.loader.catch_up(CEILING_S)
        assert bench.dataset.read_ahead() == bench.ids(*ahead)
        assert bench.loader.catch_up(0.0)
        for number, place in enumerate(ahead):
            same(bench.loader.fetch(place, ahead[number + 1 :]), read_at_once(place))
        assert [index for index, _ in bench.dataset.reads] == bench.ids(first, *ahead)
        assert bench.loader.catch_up(0.0)


def test_catching_up_ends_when_its_time_is_over_and_what_was_read_counts():
    third, go_on = threading.Event(), threading.Event()

    class Slow(Counting):
        def __getitem__(self, index):
            if len(self.reads) == 2:
                third.set()
                assert go_on.wait(CEILING_S)
            return super().__getitem__(index)

    with Bench(Slow()) as bench:
        bench.loader.expect(PLACES[:1])
        letting = threading.Thread(target=lambda: (third.wait(CEILING_S), go_on.set()))
        letting.start()
        is_all = bench.loader.catch_up(0.0)
        while not is_all and not third.is_set():
            is_all = bench.loader.catch_up(0.001)
        letting.join()
        same(bench.loader.fetch(PLACES[0]), read_at_once(PLACES[0]))
        assert [index for index, _ in bench.dataset.reads] == bench.ids(PLACES[0])


class Unspeakable(ValueError):
    def __str__(self):
        raise SystemExit("not even its words")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt, Unspeakable])
def test_catching_up_ends_whatever_a_sample_raises(error):
    class Torn(Counting):
        def __getitem__(self, index):
            if threading.current_thread().name == "read ahead":
                raise error("no sample")
            return super().__getitem__(index)

    with Bench(Torn()) as bench:
        bench.loader.expect(PLACES[:2])
        assert bench.loader.catch_up(CEILING_S)
        assert len(bench.log.named("reading_ahead_ended")) == (error is not Unspeakable)
        same(bench.loader.fetch(PLACES[0], PLACES[1:2]), read_at_once(PLACES[0]))


def test_no_more_is_kept_than_what_is_expected():
    with Bench() as bench:
        bench.loader.expect(PLACES[: bench.loader.depth])
        bench.idle_until_read(*PLACES[:DEPTH])
        bench.idle_until(lambda: bench.own._in_hand is None)
        assert sorted(bench.dataset.read_ahead()) == sorted(bench.ids(*PLACES[:DEPTH]))


def test_another_plan_makes_it_forget_and_nothing_is_lost_or_repeated():
    with Bench() as bench:
        bench.loader.expect(PLACES[:2])
        bench.idle_until_read(*PLACES[:2])
        bench.loader.expect(PLACES[4:6])
        bench.idle_until_read(*PLACES[4:6])
        assert set(bench.own._ready) == set(PLACES[4:6])
        same(bench.loader.fetch(PLACES[0], PLACES[4:6]), read_at_once(PLACES[0]))
        same(bench.loader.fetch(PLACES[4], PLACES[5:6]), read_at_once(PLACES[4]))


def test_a_plan_that_was_cut_and_given_again_finds_what_was_read():
    with Bench() as bench:
        bench.loader.expect(PLACES[:2])
        bench.idle_until_read(*PLACES[:2])
        bench.loader.expect(())
        bench.loader.fetch(PLACES[0], PLACES[1:2])
        bench.loader.fetch(PLACES[1])
        assert len(bench.dataset.reads) == 16


def test_a_batch_that_nobody_wants_any_more_is_abandoned():
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Counting):
        def __getitem__(self, index):
            begun.set()
            assert go_on.wait(CEILING_S)
            return super().__getitem__(index)

    with Bench(Slow()) as bench:
        bench.loader.expect(PLACES[:1])
        with bench.loader.lent():
            assert begun.wait(CEILING_S)
            bench.loader.expect(())
            go_on.set()
        bench.idle_until(lambda: bench.own._in_hand is None)
        assert len(bench.dataset.reads) == 1


class OneThread(Counting):
    """Data that may be read by the thread that opened them alone, as a database's are."""

    def __getitem__(self, index):
        if threading.current_thread().name == "read ahead":
            raise RuntimeError("read on another thread")
        return super().__getitem__(index)


def test_data_of_one_thread_are_read_on_the_training_thread_and_that_is_said_once():
    with Bench(OneThread()) as bench:
        bench.loader.expect(PLACES[:2])
        bench.idle_until(lambda: bench.log.records)
        for number, place in enumerate(PLACES[:3]):
            same(bench.loader.fetch(place, PLACES[number + 1 : number + 3]), read_at_once(place))
            with bench.loader.lent():
                pass
    assert len(bench.log.named("reading_ahead_ended")) == 1
    assert "read on another thread" in bench.log.records[0][1]["error"]


def test_a_torn_sample_fails_the_batch_that_holds_it_and_no_other():
    with Bench(Counting(fault="raises")) as bench:
        torn = next(place for place in PLACES[:8] if 40 in bench.ids(place))
        others = [place for place in PLACES[:8] if place != torn]
        bench.loader.expect([torn])
        bench.idle_until(lambda: bench.log.records)
        for place in others:
            same(bench.loader.fetch(place, [torn]), read_at_once(place))
        with pytest.raises(ValueError, match="sample 40 is torn"):
            bench.loader.fetch(torn)


def test_closing_ends_the_thread_whatever_it_does():
    for wanted in ((), PLACES[:2]):
        bench = Bench()
        bench.loader.expect(wanted)
        bench.loader.close()
        assert not bench.own._thread.is_alive()
