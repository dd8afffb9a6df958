"""`flodl config`: every setting with its value and the place it comes from.

What it is: a table, or one JSON document.
What it is not: a reader of settings; it shows what `config.load` resolved.
Who drives it: `index`.
"""

from flodl_core.cli.options import (
    RUN_TABLES,
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


@with_settings(setting_keys(RUN_TABLES))
def command(
    flags: Flags,
    job: JobName = None,
    step_ms: StepMs = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
    is_verbose: Verbose = False,
) -> int:
    """Print every setting with its value and the place it comes from.

    Takes the options of `flodl headless`, so that a command can be looked at
    before it is run. The table agent is that of `flodl join`.
    """
    import json

    from flodl_core.cli.lines import write_json, write_line
    from flodl_core.config.explain import (
        config_document,
        explain,
        explain_workers,
        workers_document,
    )
    from flodl_core.config.load import load_agent, load_run
    from flodl_core.config.workers import WORKERS
    from flodl_core.telemetry.line_file import show_untrusted
    from flodl_core.telemetry.summary import align_columns

    run = load_run({**with_step_ms(flags, step_ms), "job": job}, config_file=config_file)
    agent = load_agent({}, config_file=config_file)
    resolved = {
        **run.resolved,
        **{k: v for k, v in agent.resolved.items() if k not in run.resolved},
    }
    if as_json:
        document = config_document(resolved)
        if run.workers:
            document[WORKERS] = workers_document(run.workers)
        write_json(json.dumps(document, indent=2, ensure_ascii=False))
        return 0
    told = (*explain(resolved), *explain_workers(run.workers))
    rows = [(row.name, show_untrusted(row.value), row.source) for row in told]
    for line in align_columns([("setting", "value", "source"), *rows], left=(0, 1, 2)):
        write_line(line)
    return 0
