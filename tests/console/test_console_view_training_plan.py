"""The room of the Training screen, the rank table's order and cursor: all of it pure."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_console.view.ranks import ColumnKey, RankChoice
from flodl_console.view.ranks_choice import next_sort, pinned, reversed_sort
from flodl_console.view.ranks_layout import place_columns
from flodl_console.view.row_cursor import clamped, first_in_sight, followed
from flodl_console.view.training_plan import (
    FACTS_LINES,
    HEAD_LINES,
    MIN_PLOT_LINES,
    SUMMARY_LINES,
    training_plan,
)

SMALL = (ColumnKey.MARK, ColumnKey.RANK, ColumnKey.STATE)


@given(
    width=st.integers(60, 300),
    height=st.integers(12, 100),
    ranks=st.integers(0, 600),
    is_over=st.booleans(),
)
def test_the_parts_never_need_more_lines_than_there_are(width, height, ranks, is_over):
    plan = training_plan(width, height, ranks=ranks, is_over=is_over)
    gap = 1 if plan.is_large else 0
    assert 1 + plan.header_lines + plan.table_lines + gap + plan.below_lines == height
    assert plan.table_lines > HEAD_LINES
    assert plan.table_lines <= max(HEAD_LINES + ranks, HEAD_LINES + 1) or plan.plots == 0


@given(width=st.integers(60, 300), height=st.integers(12, 100), ranks=st.integers(0, 600))
def test_a_plot_has_room_to_be_one(width, height, ranks):
    plan = training_plan(width, height, ranks=ranks)
    if plan.plots and not plan.is_large:
        assert plan.below_lines - SUMMARY_LINES >= MIN_PLOT_LINES
    if plan.is_large:
        assert plan.below_lines >= min(FACTS_LINES, height - 4 - HEAD_LINES - ranks)


def test_at_80_by_24_eight_ranks_a_summary_and_a_plot_fit():
    plan = training_plan(80, 22, ranks=8)
    assert plan.table_lines == 9
    assert plan.below_lines == 10
    assert plan.plots == 1


def test_at_80_by_24_many_ranks_share_the_room_with_a_plot():
    plan = training_plan(80, 22, ranks=64)
    assert (plan.table_lines, plan.below_lines, plan.plots) == (9, 10, 1)


def test_a_flat_terminal_shows_ranks_and_no_plot():
    plan = training_plan(80, 14, ranks=64)
    assert (plan.header_lines, plan.table_lines, plan.plots) == (1, 10, 0)


def test_a_run_that_ended_gives_its_room_to_the_diagnosis():
    plan = training_plan(80, 22, ranks=64, is_over=True)
    assert plan.plots == 0
    assert plan.table_lines == 8
    assert plan.below_lines == 11


def test_a_large_terminal_has_facts_beside_two_by_two_plots():
    plan = training_plan(200, 48, ranks=8)
    assert plan.is_large
    assert (plan.plot_columns, plan.plot_rows) == (2, 2)
    assert plan.table_lines == 9


def test_a_middle_sized_terminal_has_one_column_of_plots():
    plan = training_plan(120, 34, ranks=8)
    assert (plan.is_large, plan.plot_columns, plan.plot_rows) == (True, 1, 2)


def test_sorting_walks_the_columns_that_are_shown_and_begins_anew():
    choice = RankChoice()
    assert next_sort(choice, SMALL).sort is ColumnKey.STATE
    assert next_sort(replace(choice, sort=ColumnKey.STATE), SMALL).sort is ColumnKey.MARK


def test_a_column_that_is_hidden_gives_way_to_the_first_one():
    assert next_sort(RankChoice(sort=ColumnKey.LOSS), SMALL).sort is ColumnKey.MARK


def test_without_columns_the_order_stays():
    choice = RankChoice(sort=ColumnKey.LOSS)
    assert next_sort(choice, ()) is choice


@pytest.mark.parametrize(
    ("key", "is_descending"),
    [(ColumnKey.MS_PER_BATCH, True), (ColumnKey.HOST, False), (ColumnKey.NOTE, False)],
)
def test_numbers_are_sorted_from_the_largest_and_words_from_the_first(key, is_descending):
    assert next_sort(RankChoice(), (ColumnKey.RANK, key)).is_descending is is_descending


def test_turning_the_order_around_twice_changes_nothing():
    choice = RankChoice(sort=ColumnKey.LOSS)
    assert reversed_sort(choice).is_descending
    assert reversed_sort(reversed_sort(choice)) == choice


def test_a_pin_is_set_and_taken_away():
    once = pinned(RankChoice(), 3)
    assert once.pins == {3}
    assert pinned(pinned(once, 5), 3).pins == {5}


def test_the_cursor_stays_with_its_rank():
    assert followed((5, 2, 7), 7, 0) == (2, 7)


def test_the_cursor_takes_the_place_of_a_rank_that_is_gone():
    assert followed((5, 2, 7), 9, 1) == (1, 2)
    assert followed((5, 2, 7), 9, 8) == (2, 7)
    assert followed((5, 2), None, 0) == (0, 5)


def test_without_ranks_there_is_no_cursor():
    assert followed((), 4, 2) == (0, None)
    assert clamped(7, ()) == 0


@pytest.mark.parametrize(
    ("first", "row", "room", "expected"),
    [(0, 3, 5, 0), (0, 5, 5, 1), (4, 2, 5, 2), (4, 8, 5, 4), (0, 0, 1, 0), (9, 3, 1, 3)],
)
def test_rows_in_sight_move_as_little_as_possible(first, row, room, expected):
    assert first_in_sight(first, row, room) == expected


def test_a_short_host_leaves_its_room_to_the_note():
    short = {one.column.key: one.width for one in place_columns(120, host_cells=4)}
    long = {one.column.key: one.width for one in place_columns(120, host_cells=60)}
    assert short[ColumnKey.HOST] == 8
    assert long[ColumnKey.HOST] > 8
    assert short[ColumnKey.NOTE] > long[ColumnKey.NOTE]
    assert sum(short.values()) == sum(long.values())
