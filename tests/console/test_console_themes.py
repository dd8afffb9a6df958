"""Themes: every tone can be read on every surface; tones differ without colour too."""

import itertools

import pytest
from rich.segment import Segment
from rich.style import Style
from textual.color import Color

from flodl_console.line_filters import AsciiLines, ColourlessLines, ascii_text
from flodl_console.settings import ThemeName
from flodl_console.themes import PALETTES, themes, tone_style
from flodl_console.view.tones import Glyph, Tone

BLACK = Color(0, 0, 0)


def luminance(colour: str) -> float:
    """Relative luminance as WCAG 2 defines it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", list(ThemeName))
@pytest.mark.parametrize("tone", ["foreground", "dim", "ok", "warn", "bad", "accent"])
def test_every_tone_can_be_read(name: ThemeName, tone: str) -> None:
    palette = PALETTES[name]
    least = 7.0 if name is ThemeName.CONTRAST else 4.5
    for surface in (palette.background, palette.surface):
        assert contrast(getattr(palette, tone), surface) >= least
    assert contrast(getattr(palette, tone), palette.cursor) >= 3.5


@pytest.mark.parametrize("name", list(ThemeName))
def test_tones_of_a_theme_differ(name: ThemeName) -> None:
    styles = [str(tone_style(name, tone)) for tone in Tone]
    assert len(set(styles)) == len(styles)


def seen_without_red_cones(colour: str) -> tuple[float, ...]:
    """A colour as protanopia sees it (Viénot, Brettel and Mollon 1999), linear RGB."""
    parts = [(int(colour[place : place + 2], 16) / 255) ** 2.2 for place in (1, 3, 5)]
    red, green, blue = parts
    mixed = 0.11238 * red + 0.88762 * green
    return (mixed, mixed, 0.00401 * red - 0.00401 * green + blue)


def test_in_the_safe_theme_ok_warn_and_bad_differ_without_red_cones() -> None:
    palette = PALETTES[ThemeName.SAFE]
    seen = [seen_without_red_cones(tone) for tone in (palette.ok, palette.warn, palette.bad)]
    for one, other in itertools.combinations(seen, 2):
        assert sum(abs(a - b) for a, b in zip(one, other, strict=True)) > 0.3


def test_every_theme_is_registered_under_its_name() -> None:
    assert [theme.name for theme in themes()] == [name.value for name in ThemeName]
    assert [theme.dark for theme in themes()] == [True, False, True, True]


def test_an_unknown_theme_is_drawn_like_the_dark_one() -> None:
    assert tone_style("textual-dark", Tone.OK) == tone_style("dark", Tone.OK)


@pytest.mark.parametrize("glyph", [glyph for glyph in Glyph if glyph.strip()])
def test_every_glyph_has_an_ascii_twin_of_one_cell(glyph: Glyph) -> None:
    assert ascii_text(glyph).isascii()
    assert len(ascii_text(glyph)) == 1
    assert ascii_text(glyph) != "?"


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("plain", "plain"),
        ("╭──╮", "+--+"),
        ("█▆▁░", "#=_."),
        ("⡇⠁", ".."),
        ("é", "e"),
        ("日", "??"),
        ("–", "-"),
        ("e\u0301", "e"),
    ],
)
def test_ascii_keeps_the_width(text: str, drawn: str) -> None:
    assert ascii_text(text) == drawn


def test_the_filters_keep_what_they_need_not_change() -> None:
    bold = Style(bold=True, color="red", bgcolor="blue")
    line = [Segment("a✓", bold), Segment("b")]
    (first, second) = AsciiLines().apply(line, BLACK)
    assert (first.text, first.style, second) == ("a+", bold, line[1])
    (first, second) = ColourlessLines().apply(line, BLACK)
    assert first.text == "a✓"
    assert first.style is not None
    assert first.style.bold
    assert first.style.color is not None
    assert first.style.color.is_default
    assert first.style.bgcolor is not None
    assert first.style.bgcolor.is_default
    assert second.style is None
