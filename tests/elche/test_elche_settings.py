"""The knobs: defaults, bounds, and refusals that say what to do."""

import math

import pytest

from flodl_core.elche.settings import ElcheSettings, TimingScale
from flodl_core.errors import ConfigError


def test_defaults_are_those_of_the_design():
    settings = ElcheSettings()
    assert settings.overhead_target == 0.05
    assert (settings.first_anchor, settings.lowest_anchor, settings.max_anchor) == (10, 10, 1000)
    assert settings.growth
    assert settings.scale is TimingScale.DELIVERED


@pytest.mark.parametrize(("given", "used"), [(0.0, 0.01), (-1, 0.01), (0.02, 0.02), (0.9, 0.5)])
def test_the_overhead_target_is_clamped(given, used):
    assert ElcheSettings(overhead_target=given).overhead_target == used


@pytest.mark.parametrize(
    ("knobs", "first", "lowest"),
    [
        ({"initial_anchor": 1}, 1, 1),
        ({"initial_anchor": 4}, 4, 4),
        ({"min_anchor": 2}, 10, 2),
        ({"min_anchor": 20}, 20, 20),  # the start is lifted to the bound
        ({"max_anchor": 5}, 5, 5),
        ({"initial_anchor": 50, "min_anchor": 2, "max_anchor": 20}, 20, 2),
    ],
)
def test_the_first_anchor_keeps_the_bounds(knobs, first, lowest):
    settings = ElcheSettings(**knobs)
    assert (settings.first_anchor, settings.lowest_anchor) == (first, lowest)


@pytest.mark.parametrize(
    ("field", "knobs"),
    [
        ("overhead_target", {"overhead_target": math.nan}),
        ("overhead_target", {"overhead_target": math.inf}),
        ("initial_anchor", {"initial_anchor": 0}),
        ("min_anchor", {"min_anchor": 0}),
        ("max_anchor", {"max_anchor": -3}),
        ("min_anchor", {"min_anchor": 9, "max_anchor": 8}),
        ("max_batch_diff", {"max_batch_diff": -1}),
        ("pinned_counts", {"pinned_counts": ()}),
        ("pinned_counts", {"pinned_counts": (3, 0)}),
    ],
)
def test_what_cannot_be_used_is_refused_by_name_with_a_fix(field, knobs):
    with pytest.raises(ConfigError) as refused:
        ElcheSettings(**knobs)
    assert refused.value.field == field
    assert refused.value.fix
