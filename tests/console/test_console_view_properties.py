"""Whatever a run says, every panel builds, within its room, without "nan" and "None"."""

import dataclasses
from collections.abc import Iterator
from enum import Enum

import pytest
from console_documents import view_of, wild_document, wild_events, wild_windows
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from flodl_console.view.actions import ActionOffer, ConfirmBasis, ConfirmText, offers
from flodl_console.view.cycle import CyclePanel, cycle_panel
from flodl_console.view.elche import CountRow, ElchePanel, elche_panel
from flodl_console.view.ending import EndPanel, end_panel
from flodl_console.view.events import EventQuery, EventRow, EventsPanel, events_panel
from flodl_console.view.fold import fold
from flodl_console.view.header import HeaderField, HeaderPanel, header_lines, header_panel
from flodl_console.view.link import LinkBanner, link_banner
from flodl_console.view.marks import mark_ranks
from flodl_console.view.model import ConsoleView
from flodl_console.view.plots import Plot, PlotKind, Series, plot
from flodl_console.view.rank_detail import (
    DetailRow,
    RankDetail,
    RankTrend,
    SignalGauge,
    rank_detail,
)
from flodl_console.view.ranks import COLUMNS, RankChoice, RankTable, rank_table
from flodl_console.view.records import LinkChanged, LinkState, PagesChanged, SourceKind
from flodl_console.view.texts import cell_width, clean, fit
from flodl_console.view.tones import Phrase, text_of
from flodl_console.view.topology import TopologyPanel, TreeLine, topology_panel
from flodl_console.view.waits import RunVerdict, WaitRow, run_verdict
from flodl_console.view.window import (
    Countdown,
    HostRow,
    QuorumGauge,
    RefusalRow,
    WindowPanel,
    window_panel,
)

ROOM = {
    ActionOffer: {"reason": 76, "what_follows": 76},
    ConfirmText: {"title": 60, "yes": 24},
    LinkBanner: {"word": 12, "text": 160, "short": 56},
    HeaderPanel: {"name": 40, "mode": 16, "mode_reason": 160, "progress_text": 48, "title": 76},
    HeaderField: {"text": 36},
    WindowPanel: {
        "headline": 156,
        "expected_text": 78,
        "refusals_text": 60,
        "join_hint": 120,
        "summary": 78,
        "start_mode": 60,
    },
    Countdown: {"text": 32, "outcome": 120},
    QuorumGauge: {"text": 60},
    HostRow: {
        "host": 24,
        "address": 45,
        "ranks": 16,
        "devices": 32,
        "gpus": 48,
        "torch": 24,
        "nccl": 12,
        "joined": 16,
    },
    RefusalRow: {"host": 24, "address": 45, "when": 10, "reason": 240, "fix": 240},
    RankTable: {"summary": 78},
    CyclePanel: {
        "cycle": 20,
        "version": 20,
        "pending": 20,
        "outcome": 100,
        "awaited": 60,
        "last_sync": 12,
        "last_outcome": 16,
        "overhead": 40,
        "volume": 24,
        "summary": 78,
    },
    ElchePanel: {
        "phase": 40,
        "anchor": 48,
        "counts_text": 60,
        "overhead": 40,
        "growth": 60,
        "guard": 40,
        "reason": 240,
        "summary": 78,
    },
    CountRow: {"host": 24},
    EndPanel: {"title": 60, "reason": 240, "cause": 240},
    EventsPanel: {"summary": 78, "lost_text": 78},
    EventRow: {
        "time": 8,
        "age": 10,
        "where": 32,
        "text": 400,
        "fix": 240,
        "who": 48,
        "fold_text": 20,
    },
    Plot: {"title": 40, "left_out": 40, "x_text": 48, "empty_text": 60},
    Series: {"name": 24, "last": 16},
    RankDetail: {"title": 76, "state": 12, "meaning": 60, "note": 120},
    SignalGauge: {"text": 20, "outcome": 60},
    DetailRow: {"label": 16, "text": 60},
    RankTrend: {"label": 16, "last": 16, "span": 32},
    TreeLine: {"text": 120},
    TopologyPanel: {"summary": 78},
    RunVerdict: {"text": 160, "short": 76, "line": 78},
    WaitRow: {"who": 40, "phase": 100, "age": 20, "outcome": 80},
}
"""What each docstring promises, in cells."""


KEYS = {
    (TreeLine, "host"),
    (TreeLine, "key"),
    (EventRow, "host"),
    (ConfirmBasis, "members"),
    (ConfirmBasis, "run_id"),
}
"""Fields that are never drawn: they name things as the run does."""


def values(shown: object) -> Iterator[object]:
    """Every value in a panel that may be drawn, the panel itself first."""
    yield shown
    if dataclasses.is_dataclass(shown):
        for field in dataclasses.fields(shown):
            if (type(shown), field.name) not in KEYS:
                yield from values(getattr(shown, field.name))
    elif isinstance(shown, tuple | list | frozenset):
        for one in shown:
            yield from values(one)


def check_room(shown: object) -> None:
    for value in values(shown):
        if isinstance(value, ConfirmText):
            assert all(cell_len(line) <= 66 for line in value.lines)
            assert len(value.lines) <= 5
        for name, cells in ROOM.get(type(value), {}).items():
            text = getattr(value, name)
            text = text if isinstance(text, str) else text_of(text)
            assert cell_len(text) <= cells, f"{type(value).__name__}.{name}: {text!r}"


def check_words(shown: object) -> None:
    """No text says nan or None, and none steers a terminal."""
    for value in values(shown):
        if isinstance(value, str) and not isinstance(value, Enum):
            assert value.isprintable(), repr(value)
            words = {word.strip("(),;:").casefold() for word in value.split()}
            assert not {"nan", "inf", "-inf"} & words, value
            assert "None" not in value


def panels_of(view: ConsoleView) -> list[object]:
    ranks = (0, 3, 99)
    header = header_panel(view)
    found: list[object] = [
        link_banner(view),
        link_banner(view, held=view),
        run_verdict(view),
        header,
        window_panel(view),
        rank_table(view, RankChoice()),
        cycle_panel(view),
        elche_panel(view),
        end_panel(view),
        events_panel(view, EventQuery(is_all_unfolded=True)),
        events_panel(view, EventQuery()),
        topology_panel(view),
        *(plot(view, kind, width=3) for kind in PlotKind),
        *(rank_detail(view, one) for one in ranks),
        *offers(view, rank=0, host="red").values(),
        tuple(mark_ranks(view).values()),
    ]
    return found


SEEDS = st.integers(0, 2**32)


@settings(max_examples=150, deadline=None)
@given(seed=SEEDS, kind=st.sampled_from(SourceKind))
@pytest.mark.slow
def test_every_panel_of_any_document_builds_within_its_room(seed, kind):
    events = wild_events(seed)
    view = view_of(wild_document(seed), windows=wild_windows(seed), events=events, kind=kind)
    for panel in panels_of(view):
        check_room(panel)
        check_words(panel)


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, width=st.integers(0, 90))
@pytest.mark.slow
def test_any_documents_cells_fit_their_columns_and_lines_their_width(seed, width):
    view = view_of(wild_document(seed), windows=wild_windows(seed))
    for row in rank_table(view, RankChoice()).rows:
        for column, cell in zip(COLUMNS, row.cells, strict=True):
            assert column.is_flexible or cell_len(cell.text) <= column.width, (column.key, cell)
    panel = header_panel(view)
    assert panel is not None
    for line in header_lines(panel, width):
        assert cell_len(text_of(line)) <= width


@pytest.mark.parametrize("ranks", [0, 1, 64, 512])
@pytest.mark.slow
def test_any_number_of_ranks_builds_every_panel(ranks):
    for panel in panels_of(view_of(wild_document(ranks, ranks=ranks))):
        check_room(panel)
        check_words(panel)


@given(detail=st.text(max_size=200), retry=st.one_of(st.none(), st.floats(0, 1e9)))
@pytest.mark.slow
def test_a_banner_fits_whatever_a_feed_says(detail, retry):
    for state in LinkState:
        change = LinkChanged(state=state, detail=detail, at_s=5.0, retry_in_s=retry)
        for view in (view_of(None), fold(view_of(None), change)):
            check_room(link_banner(view))
            check_room(link_banner(fold(view, PagesChanged(detail=detail, at_s=5.0)), held=view))
            check_room(run_verdict(view))


@given(st.text(max_size=80))
def test_cleaned_text_is_as_wide_for_us_as_for_the_terminal_library(text):
    shown = clean(text)
    assert shown.isprintable()
    assert cell_width(shown) == cell_len(shown)


@given(st.text(max_size=60).map(clean), st.integers(0, 40))
def test_a_fitted_text_is_never_wider_than_its_room(text, width):
    assert cell_width(fit(text, width)) <= width


@pytest.mark.slow
def test_every_sure_character_is_as_wide_as_the_terminal_library_says():
    wrong = [
        code
        for code in range(0x20, 0x30000)
        if chr(code).isprintable() and cell_width(clean(chr(code))) != cell_len(clean(chr(code)))
    ]
    assert not wrong


def test_an_empty_phrase_takes_no_room():
    assert text_of((Phrase(""), Phrase("a"))) == "a"
