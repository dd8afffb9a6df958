"""`flodl console`: the terminal console, on a run, a record or a demo.

What it is: the words of the command line turned into the console's settings, and the
refusal of a terminal that it cannot draw on.
What it is not: the console; that is imported once a terminal is there.
Who drives it: `index`.
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flodl_core.cli.lines import write_error_line
from flodl_core.cli.options import (
    RUN_TABLES,
    ConfigFile,
    Flags,
    StepMs,
    Verbose,
    setting_keys,
    with_settings,
    with_step_ms,
)
from flodl_core.cli.run_options import TokenFile
from flodl_core.errors import ConfigError
from flodl_core.ids import ExitCode

if TYPE_CHECKING:
    from flodl_console.settings import ConsoleSettings, ThemeName

SECTION = "Console"
DUMB_TERMINALS = ("", "dumb", "unknown")

JobOrScenario = Annotated[
    str | None,
    typer.Argument(
        metavar="JOB",
        help="A job as `flodl headless` takes it, put into the form for a new run; with "
        "--demo the scenario.",
        show_default=False,
    ),
]
Attach = Annotated[
    str | None,
    typer.Option(
        "--attach",
        metavar="HOST:PORT",
        help="Show a run that is on. Without a job and without this: the newest live run of "
        "--run-dir, or the form where none is on.",
        rich_help_panel=SECTION,
        show_default=False,
    ),
]
ReadOnly = Annotated[
    bool,
    typer.Option(
        "--read-only",
        help="Ask nothing of the run: its operator's keys are off.",
        rich_help_panel=SECTION,
        show_default=False,
    ),
]
Replay = Annotated[
    Path | None,
    typer.Option(
        "--replay",
        metavar="DIR",
        help="Play the record of a run, given its directory: pause, step, seek, speed.",
        rich_help_panel=SECTION,
        show_default=False,
    ),
]
Demo = Annotated[
    bool,
    typer.Option(
        "--demo",
        help="Play a made-up cluster; JOB is the scenario [default: night], --seed varies it.",
        rich_help_panel=SECTION,
        show_default=False,
    ),
]
DemoRanks = Annotated[
    int | None,
    typer.Option(
        "--demo-ranks",
        metavar="N",
        help="Ranks of the made-up cluster.  [default: 4]",
        rich_help_panel=SECTION,
        show_default=False,
    ),
]
Theme = Annotated[
    str,
    typer.Option(
        "--theme",
        metavar="NAME",
        help="dark, light, contrast, or safe for every kind of colour vision; NO_COLOR turns "
        "colours off.  [default: dark]",
        rich_help_panel=SECTION,
        show_default=False,
    ),
]
Ascii = Annotated[
    bool,
    typer.Option(
        "--ascii",
        help="Draw with ASCII characters only.",
        rich_help_panel=SECTION,
        show_default=False,
    ),
]


@with_settings(setting_keys(RUN_TABLES))
def command(
    flags: Flags,
    job: JobOrScenario = None,
    attach: Attach = None,
    token_file: TokenFile = None,
    is_read_only: ReadOnly = False,
    replay: Replay = None,
    is_demo: Demo = False,
    demo_ranks: DemoRanks = None,
    theme: Theme = "dark",
    is_ascii: Ascii = False,
    step_ms: StepMs = None,
    config_file: ConfigFile = None,
    is_verbose: Verbose = False,
) -> int:
    """Watch a run in the terminal, close its window, act on it, or play its record.

    A run that is launched here is a `flodl headless` of its own: it goes on when the
    console is closed, and whatever becomes of the console.
    """
    if (trouble := _terminal_trouble()) is not None:
        write_error_line(
            f"error: {trouble}: run `flodl headless {job or 'JOB'}` instead, or "
            "`flodl status --watch` for a run that is on"
        )
        return ExitCode.USAGE
    from flodl_console.running import run_console

    return run_console(
        resolve_settings(
            with_step_ms(flags, step_ms),
            job=job,
            attach=attach,
            token_file=token_file,
            is_read_only=is_read_only,
            replay=replay,
            is_demo=is_demo,
            demo_ranks=demo_ranks,
            theme=theme,
            is_ascii=is_ascii,
            config_file=config_file,
        )
    )


def resolve_settings(
    flags: Flags,
    *,
    job: str | None = None,
    attach: str | None = None,
    token_file: str | None = None,
    is_read_only: bool = False,
    replay: Path | None = None,
    is_demo: bool = False,
    demo_ranks: int | None = None,
    theme: str = "dark",
    is_ascii: bool = False,
    config_file: Path | None = None,
) -> "ConsoleSettings":
    """Return the console's settings of a command line; the parameters are its options.

    Raises:
        ConfigError: a value cannot be used, or two sources are given.
    """
    from flodl_console.settings import ConsoleSettings

    _refuse_two_sources(attach=attach, replay=replay, is_demo=is_demo, job=job)
    run_dir = flags.get("run_dir")
    return ConsoleSettings(
        job=None if is_demo else job,
        launch_flags=flags,
        config_file=config_file,
        run_dir=None if run_dir is None else Path(str(run_dir)),
        attach=attach,
        token_file=None if token_file is None else Path(token_file),
        is_read_only=is_read_only,
        replay=_recorded(replay),
        demo=_scenario(job, demo_ranks) if is_demo else None,
        demo_ranks=demo_ranks,
        seed=_seed(flags, config_file) if is_demo else 0,
        theme=_look(theme),
        is_ascii=is_ascii,
    )


def _terminal_trouble() -> str | None:
    """Return why nothing can be drawn here, or None."""
    from flodl_core.config.load import terminal_type

    kind = terminal_type()
    if kind in DUMB_TERMINALS:
        return f"the console needs a terminal that can draw, and TERM is {kind or 'not set'}"
    for stream, name in ((sys.stdin, "standard input"), (sys.stdout, "standard output")):
        if stream is None or not stream.isatty():
            return f"the console needs a terminal, and {name} is none"
    return None


def _refuse_two_sources(
    *, attach: str | None, replay: Path | None, is_demo: bool, job: str | None
) -> None:
    given = [
        name
        for name, is_given in (
            ("--attach", attach is not None),
            ("--replay", replay is not None),
            ("--demo", is_demo),
            ("JOB", job is not None and not is_demo),
        )
        if is_given
    ]
    if len(given) > 1:
        raise ConfigError(
            "console",
            " and ".join(given),
            "these exclude each other",
            source="command line",
            fix="give one of them",
        )


def _look(theme: str) -> "ThemeName":
    from flodl_console.settings import ThemeName

    if theme not in {name.value for name in ThemeName}:
        raise ConfigError(
            "theme",
            theme,
            "there is no such theme",
            source="command line",
            fix=f"give one of {', '.join(name.value for name in ThemeName)}",
        )
    return ThemeName(theme)


def _recorded(replay: Path | None) -> Path | None:
    if replay is not None and not replay.is_dir():
        raise ConfigError(
            "replay",
            str(replay),
            "there is no such directory",
            source="command line",
            fix="give a run's directory, such as runs/night-0123456789abcdef",
        )
    return replay


def _scenario(job: str | None, ranks: int | None) -> str:
    from flodl_console.demo.scenarios import DEFAULT_RANKS, DEFAULT_SCENARIO, check_scenario

    name = job or DEFAULT_SCENARIO
    check_scenario(name, DEFAULT_RANKS if ranks is None else ranks)
    return name


def _seed(flags: Mapping[str, object], config_file: Path | None) -> int:
    from flodl_core.config.load import load_run

    return load_run({"seed": flags.get("seed")}, config_file=config_file).run.seed
