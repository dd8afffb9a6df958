"""Texts in cells, and numbers with their units in bounded widths."""

import math

import pytest

from flodl_console.view import formats, texts
from flodl_console.view.plain import ASCII_TWINS
from flodl_console.view.texts import cell_width, clean, fit, fit_line, joined, listed, pad
from flodl_console.view.tones import Glyph, Phrase, Tone, gravest, text_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("red", "red"),
        ("Zürich", "Zürich"),
        ("日本", "日本"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\nb", "a\\x0ab"),
        ("e\u0301", "é"),
        ("x\u0323\u0301y", "x??y"),
        ("🙂", "?"),
        ("\u3164", "?"),
        ("\u202e", "\\u202e"),
    ],
)
def test_a_peers_text_is_cleaned(text, shown):
    assert clean(text) == shown


def test_a_long_text_of_a_peer_is_cut():
    assert len(clean("x" * 5_000)) == texts.MAX_CLEAN_CHARS


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("red", 3, "red"),
        ("reduce", 4, "red…"),
        ("rank 12 345", 9, "rank…"),
        ("rank 12345", 8, "rank…"),
        ("took 12.5 s", 8, "took…"),
        ("took 12.5 s", 10, "took…"),
        ("12345", 3, "…"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),
        ("red", 1, "…"),
        ("red", 0, ""),
    ],
)
def test_a_text_is_cut_with_an_ellipsis_and_never_shows_a_number_at_the_cut(text, width, shown):
    assert fit(text, width) == shown


def test_padding_gives_the_exact_width_at_either_end():
    assert pad("ab", 4) == "ab  "
    assert pad("ab", 4, is_right=True) == "  ab"
    assert pad("日本", 5) == "日本 "
    assert pad("abcdef", 4) == "abc…"


@pytest.mark.parametrize(
    ("names", "width", "shown"),
    [
        (["a", "b"], 10, "a, b"),
        ([], 5, ""),
        (["red", "blue", "green"], 9, "red, +2"),
        (["red", "blue", "green"], 12, "red, +2"),
        (["red", "blue", "green"], 14, "red, blue, +1"),
        (["a-long-name", "b"], 8, "2 of th…"),
        (["a-long-name", "b", "c"], 12, "3 of them"),
    ],
)
def test_a_list_that_is_too_long_says_how_many_more_there_are(names, width, shown):
    assert listed(names, width) == shown


def test_a_line_is_cut_at_its_edge_and_keeps_its_tones():
    line = (Phrase("abc", Tone.OK), Phrase("defgh", Tone.BAD), Phrase("i"))
    assert fit_line(line, 20) == line
    assert fit_line(line, 5) == (Phrase("abc", Tone.OK), Phrase("d…", Tone.BAD))
    assert fit_line(line, 3) == (Phrase("abc", Tone.OK),)


def test_parts_that_do_not_fit_are_left_out_by_their_priority():
    parts = [(1, Phrase("first")), (3, Phrase("third")), (2, Phrase("")), (2, Phrase("second"))]
    assert text_of(joined(parts, 40)) == "first  third  second"
    assert text_of(joined(parts, 15)) == "first  second"
    assert text_of(joined(parts, 4)) == "fir…"
    assert joined([], 4) == ()


def test_every_glyph_is_one_cell_and_has_an_ascii_twin():
    for glyph in Glyph:
        assert cell_width(glyph.value) == 1
        assert glyph.isascii() or glyph.value in ASCII_TWINS
    assert all(len(twin) == 1 and twin.isascii() for twin in ASCII_TWINS.values())


def test_the_gravest_of_some_tones_is_found():
    assert gravest(Tone.OK, Tone.BAD, Tone.WARN) is Tone.BAD
    assert gravest(Tone.INFO, Tone.OK) is Tone.OK
    assert gravest() is Tone.DIM


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (None, "–"),
        (math.nan, "–"),
        (math.inf, "–"),
        (-3.0, "0.0 s"),
        (0.44, "0.4 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (59.6, "1 m 00 s"),
        (252.0, "4 m 12 s"),
        (7620.0, "2 h 07 m"),
        (86_400 * 3 + 4 * 3600, "3 d 04 h"),
        (86_400 * 123.0, "123 d"),
        (1e300, ">9999 d"),
    ],
)
def test_durations_read_as_people_say_them(seconds, shown):
    assert formats.duration(seconds) == shown


@pytest.mark.parametrize(
    ("age", "ceiling", "shown", "tight"),
    [
        (None, 30.0, "–", "–"),
        (3.14, 30.0, "3.1 / 30 s", "3.1/30 s"),
        (3.14, None, "3.1 s", "3.1 s"),
        (299.9, 300.0, "300 / 300 s", "300/300 s"),
        (-1.0, -5.0, "0.0 / 0 s", "0.0/0 s"),
        (12.0, 1800.0, "12 s / 30 m", "12s/30m"),
        (7200.0, 36_000.0, "2 h / 10 h", "2h/10h"),
        (5 * 86_400.0, 200 * 86_400.0, "5 d / >99 d", "5d/>99d"),
    ],
)
def test_an_age_stands_beside_its_ceiling(age, ceiling, shown, tight):
    assert formats.age_of(age, ceiling) == shown
    assert formats.age_of(age, ceiling, is_tight=True) == tight


@pytest.mark.parametrize(
    ("age", "ceiling", "part"),
    [(None, 1.0, None), (1.0, None, None), (1.0, 0.0, None), (3.0, 12.0, 0.25), (9.0, 3.0, 1.0)],
)
def test_an_age_is_a_part_of_its_ceiling(age, ceiling, part):
    assert formats.part_of(age, ceiling) == part


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0"),
        (999, "999"),
        (1_000, "1.0k"),
        (12_345, "12k"),
        (-2_500_000, "-2.5M"),
        (10**24, ">1Z"),
        (10**400, "–"),
    ],
)
def test_large_counts_are_shortened(value, shown):
    assert formats.compact(value) == shown


def test_counts_have_separators_while_there_is_room():
    assert formats.count(12_288) == "12,288"
    assert formats.count(12_288, width=5) == "12k"
    assert formats.count(None) == "–"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.43124, "0.4312"),
        (123_456.0, "123456"),
        (1e9, "1e+09"),
        (1.23456e-5, "1.235e-05"),
        (-1.23456e-105, "-1.23e-105"),
    ],
)
def test_numbers_have_four_digits(value, shown):
    assert formats.number(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0.0001, "0"),
        (0.0123, "0.012"),
        (5.0149, "5.01"),
        (60.24, "60.2"),
        (1234.4, "1,234"),
        (123_456.0, "123k"),
    ],
)
def test_milliseconds_have_three_digits(value, shown):
    assert formats.milliseconds(value) == shown


def test_a_span_in_milliseconds_becomes_seconds_where_it_is_long():
    assert formats.span_ms(42.04) == "42.0 ms"
    assert formats.span_ms(3_200.0) == "3.2 s"
    assert formats.span_ms(None) == "–"


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (-2.0, "0"), (0.25, "0.25"), (1234.4, "1,234"), (1.2e6, "1.2M")],
)
def test_rates_stay_short(value, shown):
    assert formats.rate(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [(None, "–"), (0.0, "0.0 %"), (0.0001, "<0.1 %"), (0.412, "41.2 %"), (50.0, ">999 %")],
)
def test_parts_of_one_are_percentages(value, shown):
    assert formats.percent(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"), [(None, "–"), (41.4, "41 %"), (800.0, "800 %"), (1e9, ">9k %")]
)
def test_percentages_stay_percentages(value, shown):
    assert formats.share_of_100(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (-1, "0 B"),
        (512, "512 B"),
        (1536, "1.5 KiB"),
        (12 * 2**20, "12 MiB"),
        (2**80, ">1k PiB"),
    ],
)
def test_sizes_are_binary(value, shown):
    assert formats.size(value) == shown


@pytest.mark.parametrize(
    ("used", "total", "shown"),
    [
        (None, 2**34, "–"),
        (2**31, None, "2 GiB"),
        (2**31, 0, "2 GiB"),
        (3.1 * 2**30, 16 * 2**30, "3.1/16 GiB"),
    ],
)
def test_used_memory_stands_beside_the_whole(used, total, shown):
    assert formats.size_of(used, total) == shown


def test_nouns_follow_their_count():
    assert formats.plural(1, "rank") == "1 rank"
    assert formats.plural(1_200, "rank") == "1,200 ranks"
    assert formats.plural(2, "batch", many="batches") == "2 batches"


def test_numbers_in_a_row_are_a_range():
    assert formats.number_ranges([3, 0, 1, 2, 7, 9, 8, 8]) == "0–3, 7–9"
    assert formats.number_ranges([5]) == "5"
    assert formats.number_ranges([]) == ""


def test_a_time_of_day_is_read_from_an_instant():
    assert formats.clock_time("2026-01-01T14:03:07.25Z") == "14:03:07"
    assert formats.clock_time("yesterday") == "–"


def test_an_age_goes_by_the_runs_own_clock_and_is_none_where_that_says_nothing():
    assert formats.age_at(600.0, 537.5) == 62.5
    assert formats.age_at(600.0, 600.0) == 0.0
    for uptime_s, then_s in ((600.0, None), (600.0, 600.5), (math.inf, 1.0), (600.0, math.nan)):
        assert formats.age_at(uptime_s, then_s) is None


def test_a_ratio_survives_numbers_that_are_too_large_for_a_float():
    assert formats.ratio(3, 4) == 0.75
    for part, whole in ((10**400, 4), (4, 10**400), (1, 0), (1e308, 1e-308), (math.nan, 1.0)):
        assert formats.ratio(part, whole) is None


def test_what_is_far_too_large_is_not_drawn():
    assert formats.plottable(-1e300) == -1e300
    for value in (1e301, -1e307, 10**400, math.inf, math.nan, None):
        assert formats.plottable(value) is None
