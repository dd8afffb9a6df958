"""The silence of a controller, counted by a process that may have slept itself."""

from hypothesis import given
from hypothesis import strategies as st

from flodl_core.roles.silence import LOOK_S, SilenceWatch


def looks(watch: SilenceWatch, begin: float, times: int) -> list[bool]:
    """Look so often, a look's length apart."""
    return [watch.look(begin + number * LOOK_S) for number in range(times)]


def test_a_controller_that_never_spoke_is_not_silent() -> None:
    assert not any(looks(SilenceWatch(1.0), 0.0, 100))


def test_a_controller_that_owes_its_first_word_has_as_long_for_it() -> None:
    watch = SilenceWatch(1.0)
    assert not any(looks(watch, 0.0, 100))
    watch.expect()
    assert looks(watch, 100 * LOOK_S, 5) == [False, False, False, False, True]


def test_owing_a_word_again_is_no_word() -> None:
    watch = SilenceWatch(1.0)
    watch.look(0.0)
    watch.heard()
    assert not any(looks(watch, LOOK_S, 4))
    watch.expect()
    assert watch.look(5 * LOOK_S)


def test_the_ceiling_is_passed_one_look_after_it() -> None:
    watch = SilenceWatch(1.0)
    watch.look(0.0)
    watch.heard()
    assert looks(watch, LOOK_S, 5) == [False, False, False, False, True]


def test_a_word_begins_the_count_anew() -> None:
    watch = SilenceWatch(1.0)
    watch.heard()
    assert not any(looks(watch, 0.0, 5))
    watch.heard()
    assert not any(looks(watch, 5 * LOOK_S, 4))


@given(st.floats(min_value=1.0, max_value=1e6))
def test_time_in_which_this_process_did_not_run_is_not_the_controllers_silence(gap: float) -> None:
    watch = SilenceWatch(1.0)
    watch.heard()
    watch.look(0.0)
    assert not watch.look(gap)
    watch.heard()
    assert not watch.look(gap + LOOK_S)
