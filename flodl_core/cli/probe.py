"""`flodl probe [JOB]`: what this machine has, what it reaches, and what a job would gain here.

What it is: facts from child processes, rules on them, and a table or one JSON document.
What it is not: a run; nothing is trained for good and nobody joins anything.
Who drives it: `index`.
"""

from typing import Annotated

import typer

from flodl_core.cli.options import (
    AsJson,
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
from flodl_core.ids import ExitCode

_WANTED = {
    "run.job_args",
    "run.ranks",
    "run.devices",
    "run.data",
    "run.overhead_target",
    "run.anchor",
    "run.max_anchor",
    "run.batch_size",
    "run.micro_batch",
    "run.inspect_timeout_s",
    "run.run_dir",
    "join.bind",
    "join.port",
}
_KEYS = (
    *(key for key in setting_keys(("run", "join")) if key.dotted in _WANTED),
    KEYS["net.timeout_scale"],
)
_MEASURE_S = 3.0


@with_settings(_KEYS)
def command(
    flags: Flags,
    job: JobName = None,
    job_option: Annotated[
        str | None,
        typer.Option("--job", metavar="JOB", help="The same as the argument.", show_default=False),
    ] = None,
    controller: Annotated[
        str | None,
        typer.Option(
            "--controller",
            metavar="HOST:PORT",
            help="A run that this machine is to join: whether it can be reached from here.",
            show_default=False,
        ),
    ] = None,
    token_file: Annotated[
        str | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="File with that run's join token; FLODL_TOKEN does the same.",
            show_default=False,
        ),
    ] = None,
    measure_s: Annotated[
        float,
        typer.Option(
            "--measure-s",
            metavar="SECONDS",
            min=0.0,
            max=600.0,
            help="How long JOB is measured on each device. [default: 3]",
            show_default=False,
        ),
    ] = _MEASURE_S,
    step_ms: StepMs = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
    is_verbose: Verbose = False,
) -> int:
    """Look at this machine, and with JOB at what its devices would gain together.

    Devices are used once; with JOB each trains a few batches alone, one after another, and
    what each mode would do is reckoned from that, beside DDP and the fastest device alone.
    The exit code is 1 if anything keeps this machine from training.
    """
    import anyio

    from flodl_core.cli.job_check import check_job
    from flodl_core.cli.lines import write_json, write_line
    from flodl_core.cli.probe_text import probe_json, probe_lines
    from flodl_core.config.load import load_agent, load_run
    from flodl_core.roles.machine_probe import probe_machine

    loaded = load_run(
        {**with_step_ms(flags, step_ms), "job": job_option or job}, config_file=config_file
    )
    agent = load_agent(
        {"controller": controller, "token_file": token_file}, config_file=config_file
    )
    named = check_job(loaded.run) if loaded.run.job is not None else None
    probed = anyio.run(probe_machine, loaded, agent, named, measure_s, backend="asyncio")
    if as_json:
        write_json(probe_json(probed))
    else:
        for line in probe_lines(probed):
            write_line(line)
    return ExitCode.FAILED if probed.has_errors else ExitCode.DONE
