"""The name of a job, checked before anything is started.

What it is: a look at the word alone, so that a typing error costs no second.
What it is not: loading the job; a child process does that, with torch.
Who drives it: `headless` and `inspect-job`.
"""

from flodl_core.config.rules import review_encoding
from flodl_core.config.schema import RunConfig
from flodl_core.recipes import find_recipe
from flodl_core.training.job_name import RECIPE, NamedJob, name_job


def check_job(config: RunConfig) -> NamedJob:
    """Return the job that was named.

    Raises:
        JobError: it has none of the three forms, its file is not there, or no
            recipe has that name.
        ConfigError: no process could be told where its file lies.
    """
    assert config.job is not None
    named = name_job(config.job, config.job_args)
    if named.ref.kind == RECIPE:
        find_recipe(named.ref.name)
    if named.path is not None:
        review_encoding("job", named.path)
    return named
