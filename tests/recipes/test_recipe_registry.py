import importlib
import subprocess
import sys

import pytest

from flodl_core.errors import JobError
from flodl_core.recipes import RECIPES, find_recipe
from flodl_core.training.job import TrainJob


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_makes_a_job_with_an_evaluation(name):
    recipe = find_recipe(name)
    job = getattr(importlib.import_module(recipe.module), recipe.attribute)()
    assert isinstance(job, TrainJob)
    assert job.has_eval
    assert len(job.dataset()) >= 4 * job.batch_size
    assert recipe.summary


def test_an_unknown_recipe_is_refused_with_the_closest_name():
    with pytest.raises(JobError, match=r"no recipe is named 'charml'; did you mean charlm\?"):
        find_recipe("charml")
    with pytest.raises(JobError, match="use one of charlm, digits, synthetic") as caught:
        find_recipe("zzz")
    assert "did you mean" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.processes
def test_listing_the_recipes_loads_no_torch():
    code = "import sys, flodl_core.recipes; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "False"
