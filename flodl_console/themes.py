"""Four themes: dark, light, high contrast, and safe for every colour vision.

What it is: the colours of surfaces and of the six tones, one palette a theme.
What it is not: the only carrier of a meaning; a glyph or a word always says it too.
Who drives it: the app registers them; widgets and renderables ask for a tone's style.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from rich.style import Style
from textual.theme import Theme

from flodl_console.settings import ThemeName
from flodl_console.view.tones import Tone


@dataclass(frozen=True, slots=True, kw_only=True)
class ThemeColours:
    """The colours of one theme, as `#rrggbb`."""

    background: str
    surface: str
    """Behind dialogs and bars."""
    cursor: str
    """Behind the chosen row."""
    rule: str
    """Borders and separators."""
    foreground: str
    dim: str
    ok: str
    warn: str
    bad: str
    accent: str
    is_dark: bool


PALETTES: Final[Mapping[ThemeName, ThemeColours]] = {
    ThemeName.DARK: ThemeColours(
        background="#10151a",
        surface="#1a2129",
        cursor="#2c3b4b",
        rule="#4a5866",
        foreground="#dde4eb",
        dim="#93a0ad",
        ok="#63d297",
        warn="#f0c050",
        bad="#ff8580",
        accent="#6fbff9",
        is_dark=True,
    ),
    ThemeName.LIGHT: ThemeColours(
        background="#fbfaf7",
        surface="#efeee8",
        cursor="#d5e4f3",
        rule="#9aa3ab",
        foreground="#1c2228",
        dim="#59636d",
        ok="#14632f",
        warn="#7a4a00",
        bad="#ad1f17",
        accent="#0a4f9c",
        is_dark=False,
    ),
    ThemeName.CONTRAST: ThemeColours(
        background="#000000",
        surface="#000000",
        cursor="#003a75",
        rule="#ffffff",
        foreground="#ffffff",
        dim="#d6d6d6",
        ok="#5cff8f",
        warn="#ffe74a",
        bad="#ff9d94",
        accent="#7fdcff",
        is_dark=True,
    ),
    ThemeName.SAFE: ThemeColours(
        background="#000000",
        surface="#101216",
        cursor="#222833",
        rule="#5a6070",
        foreground="#e4e6ea",
        dim="#9da3ad",
        ok="#56b4e9",
        warn="#f0e442",
        bad="#d55e00",
        accent="#cc79a7",
        is_dark=True,
    ),
}


def themes() -> tuple[Theme, ...]:
    """Return the themes for `App.register_theme`, in the order in which a key walks them."""
    return tuple(_theme(name, palette) for name, palette in PALETTES.items())


@cache
def tone_style(theme: str, tone: Tone) -> Style:
    """Return how a tone is drawn in a theme.

    Warnings and worse are bold and what is absent is dim, so that they differ without
    colours too.

    Args:
        theme: one of `ThemeName`; of any other name the dark one is taken.
        tone: of the text.
    """
    palette = _palette(theme)
    colours = {
        Tone.OK: palette.ok,
        Tone.INFO: palette.foreground,
        Tone.WARN: palette.warn,
        Tone.BAD: palette.bad,
        Tone.DIM: palette.dim,
        Tone.ACCENT: palette.accent,
    }
    return Style(color=colours[tone], bold=tone in {Tone.WARN, Tone.BAD, Tone.ACCENT})


@cache
def cursor_style(theme: str) -> Style:
    """Return what stands behind the chosen line of a list in a theme.

    Args:
        theme: one of `ThemeName`; of any other name the dark one is taken.
    """
    return Style(bgcolor=_palette(theme).cursor)


def _palette(theme: str) -> ThemeColours:
    return PALETTES[ThemeName(theme) if theme in set(ThemeName) else ThemeName.DARK]


def _theme(name: ThemeName, palette: ThemeColours) -> Theme:
    return Theme(
        name=name.value,
        primary=palette.accent,
        secondary=palette.accent,
        accent=palette.accent,
        success=palette.ok,
        warning=palette.warn,
        error=palette.bad,
        foreground=palette.foreground,
        background=palette.background,
        surface=palette.surface,
        panel=palette.surface,
        dark=palette.is_dark,
        text_alpha=1.0,
        variables={
            "rule": palette.rule,
            "cursor": palette.cursor,
            "dim": palette.dim,
            "ok": palette.ok,
            "warn": palette.warn,
            "bad": palette.bad,
            "border": palette.rule,
            "border-blurred": palette.rule,
            "block-cursor-background": palette.cursor,
            "block-cursor-foreground": palette.foreground,
            "block-cursor-text-style": "bold",
            "block-cursor-blurred-background": palette.cursor,
            "block-cursor-blurred-foreground": palette.foreground,
            "input-cursor-background": palette.foreground,
            "input-cursor-foreground": palette.background,
            "input-selection-background": palette.cursor,
            "scrollbar": palette.rule,
            "scrollbar-hover": palette.rule,
            "scrollbar-active": palette.accent,
            "scrollbar-background": palette.background,
            "scrollbar-background-hover": palette.background,
            "scrollbar-background-active": palette.background,
            "scrollbar-corner-color": palette.background,
        },
    )
