"""Cycle, cadence and plots: where the averaging stands and how it went."""

import math

import pytest
from console_documents import document, rank, training, view_of, window

from flodl_console.view.cycle import cycle_panel
from flodl_console.view.elche import elche_panel
from flodl_console.view.model import initial
from flodl_console.view.plots import MAX_SERIES, PlotKind, PlotZoom, plot, thin, zoomed
from flodl_console.view.tones import Glyph, Tone, text_of
from flodl_core.ids import RankPhase
from flodl_core.telemetry.state import ElcheState, ReduceState


def reducing(**fields):
    usual = {
        "state": "pending",
        "backend": "cpu",
        "cycle": 41,
        "version": 40,
        "pending_s": 12.1,
        "stall_ceiling_s": 300.0,
        "last_sync_ms": 42.04,
        "last_outcome": "committed",
        "bytes": 12_900_000,
    }
    return ReduceState.model_validate(usual | fields)


def cadence(**fields):
    usual = {
        "phase": "stable",
        "anchor": 10,
        "anchor_rank": 2,
        "batch_counts": (60, 60, 10, 10),
        "overhead": 0.031,
        "overhead_target": 0.05,
        "growth_enabled": True,
        "guard": "level",
        "last_verdict": "stable",
        "reason": "averaging takes 3.1% of a window, target 5%",
    }
    return ElcheState.model_validate(usual | fields)


@pytest.mark.parametrize("shown", [None, document()])
def test_before_the_world_has_formed_nothing_is_averaged(shown):
    panel = cycle_panel(view_of(shown))
    assert (panel.is_known, panel.gauge, panel.word) == (False, None, "–")
    assert text_of(panel.summary) == "no cycle yet: the world has not formed"


def test_an_idle_cycle_waits_for_nothing():
    panel = cycle_panel(view_of(training(reduce=reducing(state="idle"), elche=cadence())))
    assert (panel.word, panel.glyph, panel.tone) == ("Idle", Glyph.WAITING, Tone.OK)
    assert (panel.gauge, panel.pending, panel.outcome, panel.awaited) == (None, "–", "", "")
    assert (panel.last_sync, panel.last_outcome) == ("42.0 ms", "committed")
    assert panel.overhead == "3.1 % of the window, target 5.0 %"
    assert panel.volume == "12.3 MiB by cpu"
    assert text_of(panel.summary) == (
        "○ cycle 41 under way  last 42.0 ms, committed  overhead 3.1 %  version 40"
    )


def test_before_the_first_cycle_there_is_no_number():
    panel = cycle_panel(view_of(training(reduce=reducing(state="idle", cycle=-1))))
    assert panel.cycle == "no cycle yet"
    assert text_of(panel.summary).startswith("○ no cycle yet  ")


def test_before_the_first_average_its_line_says_nothing_of_a_last_one():
    first = reducing(state="idle", cycle=-1, last_outcome=None, last_sync_ms=None)
    panel = cycle_panel(view_of(training(reduce=first)))
    assert text_of(panel.summary) == "○ no cycle yet  version 40"


def test_a_pending_cycle_shows_its_time_against_the_ceiling_and_what_follows():
    panel = cycle_panel(view_of(training(reduce=reducing())))
    assert (panel.word, panel.pending, panel.tone) == ("Pending", "12.1 / 300 s", Tone.INFO)
    assert panel.gauge == pytest.approx(12.1 / 300)
    assert panel.outcome == "the last commit is saved and the run ends"
    assert dict(panel.lines)["state"].text == "Pending  12.1 / 300 s"
    assert text_of(panel.summary).startswith("◐ cycle 41 averages, 12.1 / 300 s  ")


def test_only_a_long_average_says_in_its_line_that_the_run_would_end():
    short = cycle_panel(view_of(training(reduce=reducing(pending_s=0.1))))
    assert "save and end" not in text_of(short.summary)
    long = cycle_panel(view_of(training(reduce=reducing(pending_s=31.0))))
    assert text_of(long.summary).startswith("◐ cycle 41 averages, 31.0 / 300 s → save and end")


@pytest.mark.parametrize(
    ("pending_s", "tone"),
    [(29.9, Tone.INFO), (30.0, Tone.WARN), (150.0, Tone.BAD), (None, Tone.INFO)],
)
def test_a_pending_cycle_grows_louder(pending_s, tone):
    assert cycle_panel(view_of(training(reduce=reducing(pending_s=pending_s)))).tone is tone


def test_a_pending_cycle_names_who_is_missing():
    ranks = (rank(0, state=RankPhase.HELD), rank(2, "blue", state=RankPhase.SNAPSHOT))
    panel = cycle_panel(view_of(training(*ranks, reduce=reducing())))
    assert panel.awaited == "waits for rank 2 on blue"
    assert panel.awaited in text_of(panel.summary)


@pytest.mark.parametrize(
    ("outcome", "shown", "tone"),
    [
        (None, "–", Tone.DIM),
        ("failed", "failed", Tone.BAD),
        ("unrealized", "unrealized", Tone.WARN),
    ],
)
def test_the_last_outcome_has_its_tone(outcome, shown, tone):
    panel = cycle_panel(view_of(training(reduce=reducing(last_outcome=outcome))))
    assert (panel.last_outcome, panel.last_tone) == (shown, tone)


@pytest.mark.parametrize(
    ("fields", "text", "tone"),
    [
        ({"overhead": None}, "–", Tone.DIM),
        ({"overhead_target": None}, "3.1 % of the window", Tone.INFO),
        ({"overhead": 0.08}, "8.0 % of the window, target 5.0 %", Tone.WARN),
    ],
)
def test_overhead_stands_against_its_target(fields, text, tone):
    panel = cycle_panel(view_of(training(elche=cadence(**fields))))
    assert (panel.overhead, panel.overhead_tone) == (text, tone)


@pytest.mark.parametrize("shown", [None, document()])
def test_before_the_world_has_formed_there_is_no_cadence(shown):
    panel = elche_panel(view_of(shown))
    assert not panel.is_known
    assert text_of(panel.summary) == "no cadence yet: the world has not formed"


def test_the_cadence_tells_who_does_how_many_batches_and_why():
    panel = elche_panel(view_of(training(elche=cadence())))
    assert (panel.is_known, panel.is_applicable) == (True, True)
    assert panel.phase == "stable: counts follow the speeds"
    assert panel.anchor == "10 batches of rank 2 on blue"
    assert (panel.counts_text, panel.window_batches) == ("60 60 10 10", 140)
    assert (panel.guard, panel.guard_tone) == ("level: stable", Tone.OK)
    assert panel.growth == "on: the window may grow"
    assert [(row.rank, row.host, row.count, row.is_anchor) for row in panel.counts] == [
        (0, "red", 60, False),
        (1, "red", 60, False),
        (2, "blue", 10, True),
        (3, "blue", 10, False),
    ]
    assert panel.counts[2].fraction == pytest.approx(1 / 6)
    assert text_of(panel.summary) == (
        "ElChe stable  counts 60 60 10 10  anchor 10 of rank 2  overhead 3.1 %"
    )


def test_in_sync_there_is_nothing_to_tell():
    shown = cadence(phase="inapplicable", anchor_rank=None, last_verdict=None, guard="none")
    panel = elche_panel(view_of(training(elche=shown)))
    assert not panel.is_applicable
    assert panel.anchor == "every rank does 1 batch"
    assert panel.growth == "windows do not grow in Sync"
    assert (panel.guard, panel.guard_tone) == ("none", Tone.DIM)
    assert text_of(panel.summary) == "sync: every rank does 1 batch between two averages"


def test_a_guard_that_speaks_is_shown_without_its_sentence():
    verdict = "suppress growth: divergence rises 0.04, 0.05, 0.06"
    shown = cadence(last_verdict=verdict, growth_enabled=False, anchor_rank=None, anchor=1)
    panel = elche_panel(view_of(training(elche=shown)))
    assert (panel.guard, panel.guard_tone) == ("level: suppress growth", Tone.WARN)
    assert panel.growth == "off: the window keeps its length"
    assert panel.anchor == "1 batch"
    assert "guard suppress growth" in text_of(panel.summary)


def test_a_binding_cap_and_unknown_words_are_shown():
    shown = cadence(window_cap_binding=True, phase="later", batch_counts=(), last_verdict=None)
    panel = elche_panel(view_of(training(elche=shown)))
    assert panel.growth == "off: the window has all batches of the epoch"
    assert (panel.phase, panel.counts_text, panel.counts) == ("later", "–", ())


def history(count=20, **fields):
    return tuple(window(seq, **fields) for seq in range(1, count + 1))


def test_a_plot_has_its_series_axes_and_newest_value():
    windows = (window(1, loss=2.0), window(2, loss=None), window(3, loss=0.5))
    shown = plot(view_of(training(), windows=windows), PlotKind.LOSS, width=40)
    (curve,) = shown.series
    assert (curve.name, curve.xs, curve.ys, curve.last) == (
        "loss",
        (1.0, 2.0, 3.0),
        (2.0, None, 0.5),
        "0.5",
    )
    assert (shown.x_low_s, shown.x_high_s, shown.y_low, shown.y_high) == (1.0, 3.0, 0.5, 2.0)
    assert (shown.title, shown.x_text) == ("loss", "1.0 s – 3.0 s of the run")
    assert (shown.empty_text, shown.left_out) == ("", "")


def test_windows_and_speed_have_two_curves_from_zero():
    windows = history(window_ms=900.0, sync_ms=42.0, throughput=1_000.0, ideal_throughput=1_250.0)
    view = view_of(training(), windows=windows)
    lengths = plot(view, PlotKind.WINDOW, width=40)
    assert [(one.name, one.last) for one in lengths.series] == [
        ("window", "900 ms"),
        ("averaging", "42.0 ms"),
    ]
    assert (lengths.y_low, lengths.y_high) == (0.0, 900.0)
    speeds = plot(view, PlotKind.SPEED, width=40)
    assert [(one.name, one.last) for one in speeds.series] == [
        ("reached", "1,000/s"),
        ("ideal", "1,250/s"),
    ]


def test_ranks_have_curves_of_their_own_and_keep_their_hue():
    windows = history(batch_counts=(60, 10), divergences=(0.01, None))
    view = view_of(training(rank(0), rank(1, "blue"), rank(2)), windows=windows)
    counts = plot(view, PlotKind.COUNTS, width=40)
    assert [(one.name, one.hue, one.last) for one in counts.series] == [
        ("rank 0 red", 0, "60"),
        ("rank 1 blue", 1, "10"),
    ]
    divergences = plot(view, PlotKind.DIVERGENCE, width=40)
    assert [one.name for one in divergences.series] == ["rank 0 red"]


def test_of_many_ranks_the_wanted_the_marked_and_the_anchor_are_drawn():
    ranks = [rank(number) for number in range(20)]
    ranks[17] = rank(17, heartbeat_age_s=9.0)
    counts = tuple(range(1, 21))
    shown = training(*ranks, elche=cadence(anchor_rank=15, batch_counts=counts))
    view = view_of(shown, windows=history(batch_counts=counts))
    drawn = plot(view, PlotKind.COUNTS, width=40, ranks=(19, 99))
    assert [one.name.split()[1] for one in drawn.series] == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "15",
        "17",
        "19",
    ]
    assert len(drawn.series) == MAX_SERIES
    assert drawn.left_out == "12 more ranks not drawn"


@pytest.mark.parametrize(
    ("zoom", "first"),
    [
        (PlotZoom.ALL, 0.0),
        (PlotZoom.HOURS, 9_200.0),
        (PlotZoom.HOUR, 16_400.0),
        (PlotZoom.MINUTES, 19_400.0),
        (PlotZoom.MINUTE, 20_000.0),
    ],
)
def test_a_zoom_shows_the_newest_part(zoom, first):
    windows = tuple(window(place + 1, uptime_s=place * 200.0, loss=1.0) for place in range(101))
    shown = plot(view_of(training(), windows=windows), PlotKind.LOSS, width=200, zoom=zoom)
    assert shown.series[0].xs[0] == first


def test_zooms_are_walked_and_end_at_both_ends():
    assert zoomed(PlotZoom.ALL, 1) is PlotZoom.HOURS
    assert zoomed(PlotZoom.MINUTE, 1) is PlotZoom.MINUTE
    assert zoomed(PlotZoom.HOUR, -9) is PlotZoom.ALL


def test_a_thinned_curve_keeps_the_lowest_and_highest_of_each_part():
    points = [(float(x), float(y)) for x, y in enumerate([5, 1, 9, 4, 3, 3, 8, 2])]
    assert thin(points, 2) == [(1.0, 1.0), (2.0, 9.0), (6.0, 8.0), (7.0, 2.0)]
    assert thin(points, 4) == points
    flat = [(float(x), 1.0) for x in range(6)]
    assert thin(flat, 2) == [(0.0, 1.0), (3.0, 1.0)]


def test_a_part_of_which_nothing_is_known_stays_a_gap():
    points = [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, None), (4.0, None), (5.0, None)]
    assert thin(points, 2) == [(0.0, 1.0), (2.0, 3.0), (3.0, None)]


def test_what_is_not_finite_is_a_gap():
    windows = (window(1, loss=math.inf), window(2, loss=1.0), window(3, uptime_s=math.nan))
    (curve,) = plot(view_of(training(), windows=windows), PlotKind.LOSS, width=9).series
    assert (curve.xs, curve.ys) == ((1.0, 2.0), (None, 1.0))


@pytest.mark.parametrize(("value", "low", "high"), [(2.0, 1.8, 2.2), (0.0, -1.0, 1.0)])
def test_a_flat_curve_has_room_above_and_below(value, low, high):
    shown = plot(view_of(training(), windows=history(1, loss=value)), PlotKind.LOSS, width=9)
    assert (shown.y_low, shown.y_high) == (pytest.approx(low), pytest.approx(high))
    assert (shown.x_low_s, shown.x_high_s) == (1.0, 2.0)


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (initial(), "no document has come yet"),
        (view_of(training()), "no window has ended yet"),
        (view_of(training(newest_window_seq=4)), "the run's history is being read"),
        (view_of(training(), windows=history(3)), "nothing was measured in this span"),
    ],
)
def test_an_empty_plot_says_why(view, text):
    shown = plot(view, PlotKind.LOSS, width=40)
    assert (shown.series, shown.empty_text) == ((), text)
    assert shown.x_high_s > shown.x_low_s
    assert shown.y_high > shown.y_low


def test_without_a_document_ranks_have_no_curves():
    view = view_of(None, windows=history(3, batch_counts=(1, 2)))
    assert plot(view, PlotKind.COUNTS, width=40).series == ()
