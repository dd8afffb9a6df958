"""Colours that tell curves apart: as many as a theme can, taken in turn.

What it is: a palette a theme; the one of the safe theme is Okabe and Ito's.
What it is not: a meaning; a curve's name and newest value stand beside it.
Who drives it: plot widgets.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from rich.style import Style

from flodl_console.settings import ThemeName

PALETTES_OF_HUES: Final[Mapping[ThemeName, tuple[str, ...]]] = {
    ThemeName.DARK: (
        "#6fbff9",
        "#f0c050",
        "#63d297",
        "#ff8fb8",
        "#b79cff",
        "#ff9d66",
        "#8fe3e3",
        "#c9d36a",
    ),
    ThemeName.LIGHT: (
        "#0a4f9c",
        "#9a5b00",
        "#14703a",
        "#a3195b",
        "#5b3fb5",
        "#b3421a",
        "#0b6b6b",
        "#5f6b00",
    ),
    ThemeName.CONTRAST: (
        "#7fdcff",
        "#ffe74a",
        "#5cff8f",
        "#ff9dcf",
        "#cdb8ff",
        "#ffb080",
        "#a0ffff",
        "#dcdcdc",
    ),
    ThemeName.SAFE: (
        "#56b4e9",
        "#e69f00",
        "#009e73",
        "#cc79a7",
        "#f0e442",
        "#d55e00",
        "#bbbbbb",
        "#0072b2",
    ),
}


@cache
def hue_style(theme: str, hue: int) -> Style:
    """Return how a curve is drawn in a theme.

    Args:
        theme: one of `ThemeName`; of any other name the dark one is taken.
        hue: any number from 0; curves that are as many apart as there are colours share one.
    """
    palette = PALETTES_OF_HUES[ThemeName(theme) if theme in set(ThemeName) else ThemeName.DARK]
    return Style(color=palette[hue % len(palette)])
