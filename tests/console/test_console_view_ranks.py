"""The rank table: cells, order, filter, and the columns that fit."""

import pytest
from console_documents import document, rank, training, view_of, window

from flodl_console.view.marks import RankMark
from flodl_console.view.model import initial
from flodl_console.view.ranks import COLUMNS, ColumnKey, RankChoice, rank_table
from flodl_console.view.ranks_layout import GAP_CELLS, place_columns
from flodl_console.view.tones import Glyph, Tone
from flodl_core.ids import RankPhase
from flodl_core.telemetry.state import ElcheState, ResourceState

PLACES = {column.key: place for place, column in enumerate(COLUMNS)}


def row_of(shown, *, windows=(), choice=None, place=0):
    view = view_of(shown, windows=windows)
    return rank_table(view, choice or RankChoice()).rows[place]


def texts(row):
    return {key: row.cells[place].text for key, place in PLACES.items()}


def order(choice, *ranks):
    return rank_table(view_of(training(*ranks)), choice).ranks


def test_a_row_shows_everything_that_is_known_of_a_rank():
    resources = ResourceState(
        cpu_percent=12.0,
        ram_used_bytes=2**31,
        gpu_percent=97.4,
        vram_used_bytes=3 * 2**30,
        vram_total_bytes=16 * 2**30,
    )
    shown = rank(
        2,
        "blue",
        planned_batches=60,
        steps_in_window=12,
        ms_per_batch=5.014,
        share=0.412,
        weight=0.25,
        divergence=0.01234,
        heartbeat_age_s=3.14,
        progress_age_s=0.2,
        progress_ceiling_s=300.0,
        throughput=1234.0,
        loss=0.43124,
        resources=resources,
    )
    assert texts(row_of(training(shown))) == {
        ColumnKey.MARK: "●",
        ColumnKey.RANK: "2",
        ColumnKey.HOST: "blue",
        ColumnKey.DEVICE: "cuda:2",
        ColumnKey.STATE: "training",
        ColumnKey.BATCHES: "12/60",
        ColumnKey.MS_PER_BATCH: "5.01",
        ColumnKey.SHARE: "41.2 %",
        ColumnKey.WEIGHT: "25.0 %",
        ColumnKey.DIVERGENCE: "0.0123",
        ColumnKey.HEARTBEAT: "3.1/30 s",
        ColumnKey.PROGRESS: "0.2/300 s",
        ColumnKey.THROUGHPUT: "1,234",
        ColumnKey.LOSS: "0.431",
        ColumnKey.THROTTLED: "no",
        ColumnKey.USE: "97 %",
        ColumnKey.MEMORY: "3/16 GiB",
        ColumnKey.NOTE: "",
    }


def test_what_is_not_known_is_a_dash():
    shown = rank(0, ms_per_batch=None, heartbeat_age_s=None, resources=None)
    cells = texts(row_of(training(shown)))
    for key in (
        ColumnKey.MS_PER_BATCH,
        ColumnKey.SHARE,
        ColumnKey.WEIGHT,
        ColumnKey.HEARTBEAT,
        ColumnKey.USE,
        ColumnKey.MEMORY,
        ColumnKey.LOSS,
    ):
        assert cells[key] == "–"
    assert cells[ColumnKey.BATCHES] == "0"


def test_where_no_device_tells_its_process_stands_in():
    resources = ResourceState(cpu_percent=812.0, ram_used_bytes=2**31)
    cells = texts(row_of(training(rank(0, resources=resources))))
    assert (cells[ColumnKey.USE], cells[ColumnKey.MEMORY]) == ("812 %", "2 GiB")


def test_long_counts_of_batches_are_shortened():
    shown = rank(0, planned_batches=64_000, steps_in_window=9_999)
    assert texts(row_of(training(shown)))[ColumnKey.BATCHES] == "9999/64k"


@pytest.mark.parametrize(
    ("age_s", "tone"), [(7.4, Tone.INFO), (7.5, Tone.WARN), (14.9, Tone.WARN), (15.0, Tone.BAD)]
)
def test_an_age_grows_louder_toward_its_ceiling(age_s, tone):
    row = row_of(training(rank(0, heartbeat_age_s=age_s)))
    assert row.cells[PLACES[ColumnKey.HEARTBEAT]].tone is tone


def test_a_lost_rank_is_bad_and_the_rest_of_its_row_dim():
    row = row_of(training(rank(0, state=RankPhase.LOST, cause="SIGKILL")))
    assert (row.glyph, row.tone, row.mark) == (Glyph.BAD, Tone.BAD, RankMark.MISSING)
    assert texts(row)[ColumnKey.NOTE] == "lost: SIGKILL"
    assert row.cells[PLACES[ColumnKey.SHARE]].tone is Tone.DIM


def test_the_anchor_and_a_slow_rank_are_noted():
    history = tuple(window(seq, ms_per_batch=(5.0,)) for seq in range(1, 21))
    elche = ElcheState(phase="stable", anchor=10, anchor_rank=0)
    shown = training(rank(0, ms_per_batch=50.0), rank(1), elche=elche)
    row = row_of(shown, windows=history)
    assert texts(row)[ColumnKey.NOTE] == "slow ×10 the usual 5.00 ms, anchor"
    assert row.cells[PLACES[ColumnKey.MS_PER_BATCH]].tone is Tone.WARN
    assert texts(row_of(training(rank(0), elche=elche)))[ColumnKey.NOTE] == "anchor"


def test_rows_are_sorted_by_any_column_with_the_unknown_last():
    ranks = (
        rank(0, ms_per_batch=7.0),
        rank(1, ms_per_batch=None),
        rank(2, ms_per_batch=5.0),
        rank(3, ms_per_batch=7.0),
    )
    by_speed = RankChoice(sort=ColumnKey.MS_PER_BATCH)
    assert order(by_speed, *ranks) == (2, 0, 3, 1)
    falling = RankChoice(sort=ColumnKey.MS_PER_BATCH, is_descending=True)
    assert order(falling, *ranks) == (0, 3, 2, 1)


@pytest.mark.parametrize("key", list(ColumnKey))
def test_every_column_sorts_alike_ranks_by_their_number(key):
    same = [rank(number, device="cuda:0") for number in range(3)]
    expected = (2, 1, 0) if key is ColumnKey.RANK else (0, 1, 2)
    assert order(RankChoice(sort=key, is_descending=True), *same) == expected


def test_words_sort_as_words_and_marks_by_their_gravity():
    ranks = (rank(0, "red"), rank(1, "blue"), rank(2, "red", state=RankPhase.LOST))
    assert order(RankChoice(sort=ColumnKey.HOST), *ranks) == (1, 0, 2)
    assert order(RankChoice(sort=ColumnKey.MARK), *ranks) == (2, 0, 1)
    assert order(RankChoice(sort=ColumnKey.STATE), *ranks) == (2, 0, 1)


def test_pins_stand_on_top_in_the_order_that_is_wanted():
    ranks = [rank(number, ms_per_batch=float(9 - number)) for number in range(4)]
    choice = RankChoice(sort=ColumnKey.MS_PER_BATCH, pins=frozenset({0, 1}))
    assert order(choice, *ranks) == (1, 0, 3, 2)
    row = row_of(training(*ranks), choice=choice)
    assert row.is_pinned


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", (0, 1, 13)),
        ("blue", (1,)),
        ("RED train", (0,)),
        ("1", (1,)),
        ("rank 13", (13,)),
        ("missing", (13,)),
        ("h200", (1,)),
        ("green", ()),
    ],
)
def test_a_filter_wants_all_words_and_takes_numbers_for_ranks(text, found):
    ranks = (
        rank(0, "red"),
        rank(1, "blue", gpu="H200"),
        rank(13, "red", state=RankPhase.LOST),
    )
    assert order(RankChoice(filter_text=text), *ranks) == found


def test_only_the_wanted_part_of_the_rows_is_made():
    view = view_of(training(*(rank(number) for number in range(6))))
    table = rank_table(view, RankChoice(), first_row=2, max_rows=3)
    assert (table.ranks, table.first_row) == ((0, 1, 2, 3, 4, 5), 2)
    assert [row.rank for row in table.rows] == [2, 3, 4]
    past_end = rank_table(view, RankChoice(), first_row=99, max_rows=3)
    assert (past_end.rows, past_end.first_row) == ((), 6)


def test_the_summary_counts_what_is_wrong_before_what_is_right():
    ranks = (
        rank(0),
        rank(1, state=RankPhase.LOST),
        rank(2, state=RankPhase.HELD),
        rank(3, heartbeat_age_s=9.0),
    )
    table = rank_table(view_of(training(*ranks)), RankChoice())
    assert table.summary == "4 ranks · 1 lost · 1 late · 2 training · 1 held"
    assert (table.tone, table.total_ranks, table.empty_text) == (Tone.BAD, 4, "")


def test_an_empty_table_says_why():
    assert rank_table(initial(), RankChoice()).empty_text == "no document has come yet"
    none_yet = rank_table(view_of(document()), RankChoice())
    assert none_yet.empty_text == "no ranks yet: they are numbered when the window closes"
    assert (none_yet.summary, none_yet.tone) == ("", Tone.DIM)
    filtered = rank_table(view_of(training()), RankChoice(filter_text="green"))
    assert filtered.empty_text == "no rank matches 'green'"
    assert filtered.total_ranks == 4


def shown_at(width, **parts):
    return [placed.column.key for placed in place_columns(width, **parts)]


def test_at_eighty_columns_the_essentials_fit():
    assert shown_at(78) == [
        ColumnKey.MARK,
        ColumnKey.RANK,
        ColumnKey.HOST,
        ColumnKey.DEVICE,
        ColumnKey.STATE,
        ColumnKey.BATCHES,
        ColumnKey.MS_PER_BATCH,
        ColumnKey.HEARTBEAT,
        ColumnKey.NOTE,
    ]


def test_with_enough_room_every_column_stands():
    assert shown_at(200) == [column.key for column in COLUMNS]


@pytest.mark.parametrize("width", range(241))
def test_columns_never_overlap_nor_reach_over_the_edge(width):
    placed = place_columns(width)
    ends = [-GAP_CELLS, *(one.x + one.width for one in placed)]
    for one, end in zip(placed, ends, strict=False):
        assert one.x == end + GAP_CELLS
        assert one.width >= one.column.width
    assert ends[-1] <= width
    assert COLUMNS[placed[0].index].key is ColumnKey.MARK if placed else width == 0


def test_a_wider_table_never_loses_a_column():
    for width in range(240):
        assert set(shown_at(width)) <= set(shown_at(width + 1))


def test_hidden_columns_make_room_for_others():
    hidden = frozenset({ColumnKey.NOTE})
    assert ColumnKey.SHARE in shown_at(78, hidden=hidden)
    assert ColumnKey.NOTE not in shown_at(200, hidden=hidden)


def test_what_is_left_over_goes_to_host_and_note():
    placed = {one.column.key: one.width for one in place_columns(240)}
    assert placed[ColumnKey.HOST] == 24
    assert placed[ColumnKey.NOTE] > 40
    without = {
        one.column.key: one.width for one in place_columns(240, hidden=frozenset({ColumnKey.NOTE}))
    }
    assert without[ColumnKey.HOST] == 24
