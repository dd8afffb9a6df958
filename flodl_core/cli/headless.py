"""`flodl headless JOB`: launch a run and stay until it has ended.

What it is: settings in, the launcher's documents out as lines or a live view,
the summary at the end, the run's exit code.
What it is not: the launcher, which is a role.
Who drives it: `index`.
"""

import functools
from collections.abc import Awaitable, Callable
from typing import Protocol

from flodl_core.cli.display import Display, detaching_on_hangup, open_display
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
from flodl_core.cli.patient_streams import patient_streams
from flodl_core.config.load import LoadedRun
from flodl_core.errors import FlodlError
from flodl_core.ids import ExitCode
from flodl_core.telemetry.state import StateDocument
from flodl_core.telemetry.summary import RunSummary


class InterruptedEarlyError(FlodlError):
    """Ctrl-C before the run takes signals itself, or after its end."""

    exit_code = ExitCode.INTERRUPTED_SAVED


class Launched(Protocol):
    """What a launcher returns."""

    @property
    def exit_code(self) -> int:
        """What the command ends with."""

    @property
    def summary(self) -> RunSummary | None:
        """What the run came to, if it came to anything."""


class Launch(Protocol):
    """A launcher, as this command calls it."""

    def __call__(
        self,
        loaded: LoadedRun,
        *,
        show: Callable[[StateDocument], None],
        say: Callable[[str], None],
        is_verbose: bool = False,
    ) -> Awaitable[Launched]:
        """Run until the end."""


@with_settings(setting_keys(RUN_TABLES))
def command(
    flags: Flags,
    job: JobName = None,
    step_ms: StepMs = None,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
    is_verbose: Verbose = False,
) -> int:
    """Launch a run and train JOB.

    Progress goes to standard output: a live view on a terminal, plain lines
    otherwise, one JSON object a line with --json. The first Ctrl-C or SIGTERM
    finishes the window and saves, the second ends at once.
    """
    from flodl_core.cli.job_check import check_job
    from flodl_core.config.load import load_run

    loaded = load_run(
        {**with_step_ms(flags, step_ms), "job": job},
        config_file=config_file,
        needs_job=True,
    )
    check_job(loaded.run)
    with (
        patient_streams() as is_behind,
        open_display(as_json=as_json) as display,
        detaching_on_hangup(),
    ):
        display.is_behind = is_behind
        return _run(loaded, display, is_verbose=is_verbose)


def _run(loaded: LoadedRun, display: Display, *, is_verbose: bool) -> int:
    """Run the launcher to its end; return the exit code.

    Raises:
        InterruptedEarlyError: SIGINT came where the run does not take it itself.
    """
    try:
        import anyio

        from flodl_core.roles.launcher import launch

        return anyio.run(
            functools.partial(conduct, launch, loaded, display=display, is_verbose=is_verbose),
            backend="asyncio",
        )
    except KeyboardInterrupt:
        said = "interrupted" if display.has_begun else "interrupted; nothing was started"
        raise InterruptedEarlyError(said) from None


async def conduct(launch: Launch, loaded: LoadedRun, *, display: Display, is_verbose: bool) -> int:
    """Run a launcher under a display; return its exit code.

    Raises:
        FlodlError: what ended it before or at its window.
    """
    launched = await launch(loaded, show=display.show, say=display.say, is_verbose=is_verbose)
    if launched.summary is not None:
        display.finish(launched.summary)
    return int(launched.exit_code)
