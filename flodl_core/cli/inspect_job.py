"""`flodl inspect-job JOB`: build a job once and print its facts as JSON.

What it is: the same child process that launcher and agent ask, alone.
What it is not: a load of torch into this process.
Who drives it: `index`.
"""

import functools

from flodl_core.cli.options import (
    ConfigFile,
    Flags,
    JobName,
    StepMs,
    Verbose,
    setting_keys,
    with_settings,
    with_step_ms,
)
from flodl_core.config.keys import KEYS

_KEYS = tuple(
    key
    for key in setting_keys(("run",))
    if key.dotted in {"run.job_args", "run.data", "run.inspect_timeout_s"}
)


@with_settings((*_KEYS, KEYS["net.timeout_scale"]))
def command(
    flags: Flags,
    job: JobName = None,
    step_ms: StepMs = None,
    config_file: ConfigFile = None,
    is_verbose: Verbose = False,
) -> int:
    """Build JOB once in a process of its own and print what it is, as JSON.

    The facts are those by which a host is admitted: samples, signatures of data,
    model and layout, sizes, devices, versions.
    """
    import json
    from dataclasses import asdict

    import anyio

    from flodl_core.cli.job_check import check_job
    from flodl_core.cli.lines import write_json
    from flodl_core.config.load import load_run
    from flodl_core.net.children import job_environment
    from flodl_core.roles.inspection import ask_inspector

    loaded = load_run(
        {**with_step_ms(flags, step_ms), "job": job},
        config_file=config_file,
        needs_job=True,
    )
    named = check_job(loaded.run)
    ask = functools.partial(
        ask_inspector,
        named.ref,
        named.path,
        env=job_environment(loaded.run.data),
        timeout_s=loaded.run.inspect_timeout_s,
        alone="import the job in `python` to see where it ends",
    )
    facts = anyio.run(ask, backend="asyncio")
    write_json(json.dumps({"job": asdict(named.ref), **asdict(facts)}, indent=2))
    return 0
