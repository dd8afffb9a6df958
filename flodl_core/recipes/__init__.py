"""Packaged jobs: what `flodl headless NAME` can train without any file of the user's.

What it is: the list of recipes by name. Listing them loads no torch; each recipe
is a module of its own with a function `job(**options) -> TrainJob`.
What it is not: the loader of jobs (`training`), which imports the module named here.
Who drives it: the job loader, and whoever lists the recipes.
"""

import difflib
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from flodl_core.errors import JobError


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """One packaged job."""

    name: str
    module: str
    """Where its function lies."""
    attribute: str = "job"
    summary: str
    """One line for a list of recipes."""
    extra: str | None = None
    """The extra of the package that it needs beyond the plain install."""


RECIPES: Final = MappingProxyType(
    {
        recipe.name: recipe
        for recipe in (
            Recipe(
                name="charlm",
                module="flodl_core.recipes.charlm",
                summary="a small GPT on the text of Python's language reference",
            ),
            Recipe(
                name="digits",
                module="flodl_core.recipes.digits",
                summary="a convolutional net on scikit-learn's handwritten digits",
                extra="demo",
            ),
            Recipe(
                name="synthetic",
                module="flodl_core.recipes.synthetic",
                summary="made-up data and a model of any size, with extra milliseconds a rank",
            ),
        )
    }
)
"""Every recipe by name."""


def find_recipe(name: str) -> Recipe:
    """Return the recipe of that name.

    Raises:
        JobError: there is none; the closest ones are named.
    """
    if name in RECIPES:
        return RECIPES[name]
    close = difflib.get_close_matches(name, RECIPES, n=1)
    hint = f"; did you mean {close[0]}?" if close else ""
    raise JobError(
        f"no recipe is named {name!r}{hint}",
        fix=f"use one of {', '.join(RECIPES)}, package.module:attribute or path/file.py:attribute",
    )
