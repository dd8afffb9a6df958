"""Drawings are exactly as wide as asked, say what they were given, and cut no number."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.style import Style

from flodl_console.hues import PALETTES_OF_HUES, hue_style
from flodl_console.renderables.phrase_strip import CHOSEN, phrase_strip
from flodl_console.renderables.plot_drawing import PlotLine, PlotTicks, draw_plot
from flodl_console.renderables.plot_picture import plot_strips
from flodl_console.renderables.rank_strips import changed_span, head_strip, row_strip
from flodl_console.renderables.verdict_lines import verdict_lines
from flodl_console.settings import ThemeName
from flodl_console.view.marks import RankMark
from flodl_console.view.model import ConsoleView
from flodl_console.view.plots import HUES, Plot, PlotKind, Series, plot
from flodl_console.view.rank_detail import RankTrend
from flodl_console.view.ranks import COLUMNS, ColumnKey, RankChoice, RankRow
from flodl_console.view.ranks_layout import place_columns
from flodl_console.view.texts import cell_width
from flodl_console.view.tones import Glyph, Phrase, Tone, text_of
from flodl_console.view.trend_plots import trend_plot
from flodl_console.view.waits import RunVerdict
from flodl_core.telemetry.records import WindowRecord

PLAIN = Style()
BOLD = Style(bold=True)


def styled(tone: Tone) -> Style:
    return BOLD if tone is Tone.BAD else Style(color=f"color({list(Tone).index(tone) + 1})")


def hued(hue: int) -> Style:
    return Style(color=f"color({hue + 20})")


def row(rank: int = 3, **texts: str) -> RankRow:
    return RankRow(
        rank=rank,
        host="red",
        state="training",
        tone=Tone.OK,
        glyph=Glyph.RUNNING,
        mark=RankMark.NONE,
        is_pinned=False,
        cells=tuple(Phrase(texts.get(column.key.value, "x"), Tone.INFO) for column in COLUMNS),
    )


def a_plot(*series: Series, empty: str = "", left_out: str = "") -> Plot:
    return Plot(
        kind=PlotKind.LOSS,
        title="loss",
        series=series,
        left_out=left_out,
        x_low_s=0.0,
        x_high_s=10.0,
        x_text="0 s – 10 s of the run",
        y_low=0.0,
        y_high=2.0,
        empty_text=empty,
    )


def a_curve(name: str = "loss", hue: int = 0, last: str = "1.5") -> Series:
    return Series(name=name, xs=(0.0, 5.0, 10.0), ys=(2.0, None, 1.0), hue=hue, last=last)


phrases = st.builds(Phrase, st.text("ab 12,日", max_size=12), st.sampled_from(list(Tone)))


@given(line=st.lists(phrases, max_size=6).map(tuple), width=st.integers(0, 40))
def test_a_line_is_exactly_as_wide_as_asked(line, width):
    strip = phrase_strip(line, width=width, style_of=styled)
    assert strip.cell_length == width
    assert cell_width(strip.text) == width
    if cell_width(text_of(line).rstrip()) <= width:
        assert strip.text.rstrip() == text_of(line).rstrip()


def test_neighbours_of_one_tone_are_one_segment():
    line = (Phrase("a"), Phrase(" b"), Phrase("c", Tone.BAD), Phrase("  "), Phrase("d", Tone.BAD))
    strip = phrase_strip(line, width=12, style_of=styled)
    assert [(segment.text, segment.style) for segment in strip] == [
        ("a b", styled(Tone.INFO)),
        ("c  d     ", BOLD),
    ]


def test_an_empty_line_is_blank():
    assert phrase_strip((), width=3, style_of=styled).text == "   "


@given(width=st.integers(30, 220))
def test_head_and_rows_stand_in_the_same_columns(width):
    columns = place_columns(width - 1)
    head = head_strip(columns, RankChoice(), width=width, style_of=styled)
    line = row_strip(row(), columns, width=width, is_chosen=False, style_of=styled)
    assert head.cell_length == line.cell_length == width
    for placed in columns:
        if placed.column.key is not ColumnKey.MARK:
            at = 1 + placed.x
            title = head.text[at : at + placed.width]
            assert placed.column.title[:-1] in title.replace("↑", "")


def test_the_sorted_column_has_an_arrow_and_the_chosen_row_a_mark():
    columns = place_columns(80)
    up = RankChoice(sort=ColumnKey.HOST)
    down = RankChoice(sort=ColumnKey.HOST, is_descending=True)
    assert "host↑" in head_strip(columns, up, width=81, style_of=styled).text
    assert "host↓" in head_strip(columns, down, width=81, style_of=styled).text
    chosen = row_strip(row(), columns, width=81, is_chosen=True, style_of=styled)
    assert chosen.text.startswith(CHOSEN)


def test_only_the_cells_that_differ_are_drawn_anew():
    columns = place_columns(80)
    at = {placed.column.key: placed for placed in columns}
    batches, beat = at[ColumnKey.BATCHES], at[ColumnKey.HEARTBEAT]
    assert changed_span(row(), row(), columns) is None
    assert changed_span(row(), row(batches="5/9"), columns) == (1 + batches.x, batches.width)
    both = changed_span(row(), row(batches="5/9", heartbeat="1/30 s"), columns)
    assert both == (1 + batches.x, beat.x + beat.width - batches.x)


def test_a_change_in_a_hidden_column_draws_nothing():
    columns = place_columns(40)
    assert changed_span(row(), row(memory="3/4 GiB"), columns) is None


values = st.one_of(st.none(), st.floats(-1e9, 1e9))


@settings(deadline=None)
@given(
    ys=st.lists(values, min_size=1, max_size=60),
    width=st.integers(8, 120),
    height=st.integers(4, 40),
)
def test_curves_fill_exactly_their_room_whatever_they_hold(ys, width, height):
    line = PlotLine(xs=tuple(map(float, range(len(ys)))), ys=tuple(ys), colour=2)
    known = [y for y in ys if y is not None]
    low = min(known, default=0.0)
    runs = draw_plot(
        [line],
        x_axis=PlotTicks(low=0.0, high=float(len(ys)), at=(), words=()),
        y_axis=PlotTicks(
            low=low, high=max(known, default=0.0) + abs(low) + 1.0, at=(low,), words=("low",)
        ),
        width=width,
        height=height,
    )
    assert len(runs) == height
    assert {sum(cell_width(run.text) for run in line) for line in runs} == {width}


def drawn_cells(ys: tuple[float | None, ...], width: int = 40) -> str:
    line = PlotLine(xs=tuple(map(float, range(len(ys)))), ys=ys, colour=7)
    runs = draw_plot(
        [line],
        x_axis=PlotTicks(low=0.0, high=float(len(ys) - 1), at=(), words=()),
        y_axis=PlotTicks(low=0.0, high=1.0, at=(0.0, 1.0), words=("0", "1")),
        width=width,
        height=8,
    )
    return "\n".join("".join(run.text for run in line if run.colour == 7) for line in runs)


def test_a_gap_is_not_drawn_over():
    whole = drawn_cells((0.5,) * 20)
    broken = drawn_cells((*(0.5,) * 8, *(None,) * 4, *(0.5,) * 8))
    assert len(broken.replace("\n", "")) < len(whole.replace("\n", ""))


def test_a_lone_point_is_drawn():
    assert drawn_cells((None, 0.5, None)).strip()


def test_nothing_known_is_an_empty_frame():
    assert not drawn_cells((None, None)).strip()


def test_a_plot_names_its_newest_value_and_the_time_it_shows():
    head = plot_strips(a_plot(a_curve()), width=60, height=8, style_of=styled, hue_of=hued)[0].text
    assert head.startswith("loss  1.5")
    assert head.endswith("0 s – 10 s of the run")


def test_several_curves_are_named_on_a_line_of_their_own_in_their_colours():
    picture = plot_strips(
        a_plot(a_curve("rank 0", 0), a_curve("rank 1", 1)),
        width=60,
        height=9,
        style_of=styled,
        hue_of=hued,
    )
    assert picture[1].text.split() == ["rank", "0", "1.5", "rank", "1", "1.5"]
    colours = {segment.text.strip(): segment.style for segment in picture[1]}
    assert colours["rank 0 1.5"] == hued(0)
    assert colours["rank 1 1.5"] == hued(1)


def test_names_that_do_not_fit_are_counted():
    many = [a_curve(f"rank {number}", number) for number in range(8)]
    picture = plot_strips(a_plot(*many), width=40, height=9, style_of=styled, hue_of=hued)
    assert picture[1].text.rstrip().endswith("+5")


@pytest.mark.parametrize(("width", "height"), [(1, 1), (10, 3), (23, 20), (60, 4), (60, 5)])
def test_a_small_plot_is_as_large_as_its_room(width, height):
    picture = plot_strips(
        a_plot(a_curve(), a_curve("more", 1)),
        width=width,
        height=height,
        style_of=styled,
        hue_of=hued,
    )
    assert [strip.cell_length for strip in picture] == [width] * height


def test_an_empty_plot_says_why():
    picture = plot_strips(
        a_plot(empty="no window has ended yet"), width=60, height=9, style_of=styled, hue_of=hued
    )
    assert any("no window has ended yet" in strip.text for strip in picture)
    assert "of the run" not in picture[0].text


def test_ranks_that_are_left_out_are_counted_beside_the_title():
    picture = plot_strips(
        a_plot(a_curve(), left_out="56 more ranks not drawn"),
        width=60,
        height=9,
        style_of=styled,
        hue_of=hued,
    )
    assert "56 more ranks not drawn" in picture[0].text


def test_ticks_tell_the_ends_of_a_flat_curve_apart():
    flat = Plot(
        kind=PlotKind.LOSS,
        title="weight",
        series=(a_curve(),),
        left_out="",
        x_low_s=0.0,
        x_high_s=10.0,
        x_text="",
        y_low=0.41701,
        y_high=0.41709,
        empty_text="",
    )
    picture = plot_strips(flat, width=60, height=10, style_of=styled, hue_of=hued)
    ticks = {strip.text.split("┤")[0].strip() for strip in picture if "┤" in strip.text}
    assert len(ticks) == 3


def verdict(text: str, short: str) -> RunVerdict:
    return RunVerdict(
        tone=Tone.BAD,
        glyph=Glyph.BAD,
        text=text,
        short=short,
        line=(Phrase(f"{Glyph.BAD} {short}", Tone.BAD),),
        rank=None,
        waits=(),
        missing=(),
        slow=(),
    )


def test_a_verdict_is_long_where_there_is_room_short_elsewhere_and_never_cut():
    said = verdict("one two three four five six seven", "one two three four")
    assert [text_of(line) for line in verdict_lines(said, width=40)] == [
        "✗ one two three four five six seven"
    ]
    assert [text_of(line) for line in verdict_lines(said, width=22)] == ["✗ one two three four"]
    assert [text_of(line) for line in verdict_lines(said, width=12)] == [
        "✗ one two",
        "  three four",
    ]


def window(seq: int) -> WindowRecord:
    return WindowRecord(
        seq=seq,
        at="2026-01-01T00:00:00Z",
        uptime_s=10.0 * seq,
        cycle=seq,
        version=seq,
        epoch=0,
        global_step=seq,
        outcome="committed",
        samples_done=seq,
        samples_total=100,
    )


def trend(*values: float | None) -> RankTrend:
    return RankTrend(label="ms/batch", values=values, last="5", span="4 to 5")


def test_a_trend_belongs_to_the_newest_windows():
    drawn = trend_plot(trend(4.0, None, 5.0), [window(seq) for seq in range(1, 6)], hue=2)
    assert drawn.series[0].xs == (30.0, 40.0, 50.0)
    assert drawn.series[0].ys == (4.0, None, 5.0)
    assert (drawn.x_low_s, drawn.x_high_s, drawn.y_low, drawn.y_high) == (30.0, 50.0, 4.0, 5.0)
    assert not drawn.empty_text


def test_a_trend_of_one_value_still_has_a_range():
    drawn = trend_plot(trend(4.0), [window(1)], hue=0)
    assert drawn.x_high_s > drawn.x_low_s
    assert drawn.y_low < 4.0 < drawn.y_high


def test_a_trend_that_stands_at_nought_still_has_a_range():
    drawn = trend_plot(trend(0.0, 0.0), [window(1), window(2)], hue=0)
    assert (drawn.y_low, drawn.y_high) == (-1.0, 1.0)


@pytest.mark.parametrize("values", [(), (None,)])
def test_a_trend_without_values_says_so(values):
    drawn = trend_plot(trend(*values), [window(1)], hue=0)
    assert drawn.series == ()
    assert drawn.empty_text
    assert math.isfinite(drawn.x_high_s)


def test_a_window_of_no_time_is_left_out_of_a_trend():
    rows = [window(1), window(2).model_copy(update={"uptime_s": math.inf}), window(3)]
    drawn = trend_plot(trend(4.0, 9.0, 5.0), rows, hue=0)
    assert drawn.series[0].xs == (10.0, 30.0)
    assert (drawn.y_low, drawn.y_high) == (4.0, 5.0)
    assert plot_strips(drawn, width=60, height=9, style_of=styled, hue_of=hued)


@pytest.mark.parametrize("value", [1e300, 1e307, 1.7e308, -1e308])
def test_a_value_that_cannot_be_drawn_beside_a_small_one_is_a_gap(value):
    drawn = trend_plot(trend(4.0, value, 5.0), [window(seq) for seq in (1, 2, 3)], hue=0)
    assert plot_strips(drawn, width=60, height=9, style_of=styled, hue_of=hued)
    rows = tuple(
        window(seq).model_copy(update={"loss": value if seq % 2 else 1.0}) for seq in (1, 2, 3)
    )
    losses = plot(ConsoleView(windows=rows), PlotKind.LOSS, width=60)
    assert losses.series[0].ys[1] == 1.0
    assert (losses.series[0].ys[0] is None) == (abs(value) > 1e300)
    assert plot_strips(losses, width=60, height=9, style_of=styled, hue_of=hued)


@pytest.mark.parametrize("theme", list(ThemeName))
def test_every_theme_tells_as_many_curves_apart_as_a_plot_numbers(theme):
    palette = PALETTES_OF_HUES[theme]
    assert len(palette) == len(set(palette)) == HUES
    assert hue_style(theme, 0) != hue_style(theme, 1)
    assert hue_style(theme, HUES) == hue_style(theme, 0)


def test_an_unknown_theme_has_the_dark_curves():
    assert hue_style("nobody", 1) == hue_style(ThemeName.DARK, 1)
