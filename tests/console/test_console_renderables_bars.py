"""Bars and sparklines are exactly as wide as they are asked to be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_console.renderables.bars import bar, quorum_bar, sparkline
from flodl_console.view.plain import ASCII_TWINS
from flodl_console.view.texts import cell_width
from flodl_console.view.tones import Tone, text_of
from flodl_console.view.window import QuorumGauge


def gauge(joined, quorum, scale):
    return QuorumGauge(
        joined_ranks=joined,
        quorum_ranks=quorum,
        target_ranks=None,
        scale_ranks=scale,
        is_met=joined >= quorum,
        text="",
        tone=Tone.OK,
    )


@pytest.mark.parametrize(
    ("fraction", "cells", "text"),
    [
        (0.0, 4, "░░░░"),
        (0.001, 4, "█░░░"),
        (0.5, 4, "██░░"),
        (0.999, 4, "███░"),
        (1.0, 4, "████"),
        (7.0, 4, "████"),
        (-1.0, 4, "░░░░"),
        (0.6, 1, "█"),
        (0.5, 0, ""),
    ],
)
def test_a_bar_is_full_only_with_the_whole(fraction, cells, text):
    assert bar(fraction, cells) == text


@pytest.mark.parametrize(
    ("joined", "quorum", "scale", "text"),
    [
        (0, 2, 4, "░░░░│░░░░"),
        (1, 2, 4, "██░░│░░░░"),
        (3, 2, 4, "████│██░░"),
        (4, 4, 4, "████████│"),
        (1, 0, 4, "│██░░░░░░"),
    ],
)
def test_a_quorum_is_marked_behind_its_last_rank(joined, quorum, scale, text):
    assert text_of(quorum_bar(gauge(joined, quorum, scale), 9)) == text


@given(st.integers(0, 2_000), st.integers(0, 2_000), st.integers(1, 2_000), st.integers(0, 60))
def test_a_quorum_bar_is_as_wide_as_it_is_asked_to_be(joined, quorum, scale, cells):
    assert cell_width(text_of(quorum_bar(gauge(joined, quorum, scale), cells))) == cells


@pytest.mark.parametrize(
    ("values", "cells", "text"),
    [
        ([0.0, 1.0, 2.0, 3.0], 4, "▁▃▆█"),
        ([0.0, None, 7.0], 5, "  ▁ █"),
        ([5.0, 5.0], 2, "▄▄"),
        ([], 3, "   "),
        ([None], 2, "  "),
        ([0.0, 9.0, 1.0, None, None, None], 3, "█▁ "),
        ([1.0, 2.0], 0, ""),
        ([-1e308, 1e308], 2, "▁█"),
    ],
)
def test_a_sparkline_shows_heights_with_the_newest_at_the_right(values, cells, text):
    assert sparkline(values, cells) == text


@given(
    st.lists(st.one_of(st.none(), st.floats(allow_nan=False, allow_infinity=False)), max_size=80),
    st.integers(0, 60),
)
@pytest.mark.slow
def test_a_sparkline_is_as_wide_as_it_is_asked_to_be(values, cells):
    assert cell_width(sparkline(values, cells)) == cells


@given(st.floats(0, 1), st.integers(0, 60))
def test_a_bar_is_as_wide_as_it_is_asked_to_be_and_has_ascii_twins(fraction, cells):
    drawn = bar(fraction, cells)
    assert len(drawn) == cells
    assert all(char in ASCII_TWINS for char in drawn)
