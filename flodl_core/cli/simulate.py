"""`flodl simulate cadence`: play a cohort of given speeds under the real scheduler.

What it is: options in, windows out as lines or JSON, a summary and a plot at the end.
What it is not: a training run: no process is started and no job is loaded. The settings of
the cadence are those of a run, with the same names, files and variables.
Who drives it: `index`.
"""

from typing import Annotated, Final, TypeAlias

import typer

from flodl_core.cli.options import (
    AsJson,
    ConfigFile,
    Flags,
    Verbose,
    setting_keys,
    with_settings,
)
from flodl_core.errors import ConfigError
from flodl_core.ids import Mode

_SETTINGS: Final = frozenset(
    f"run.{name}"
    for name in (
        "mode",
        "overhead_target",
        "anchor",
        "min_anchor",
        "max_anchor",
        "pin_counts",
        "max_batch_diff",
        "late_factor",
        "overshoot",
        "guard",
        "meta",
        "relax_up",
        "speed_ratio",
        "seed",
    )
)
_KEYS: Final = tuple(key for key in setting_keys(("run",)) if key.dotted in _SETTINGS)
CADENCE: Final = "cadence"
_PLAYED: Final = (Mode.CPU_CADENCE, Mode.CPU_ASYNC)
_SECTION: Final = "What is played"


def _option(flag: str, form: str, text: str) -> object:
    return typer.Option(flag, metavar=form, help=text, rich_help_panel=_SECTION, show_default=False)


What: TypeAlias = Annotated[
    str, typer.Argument(metavar="WHAT", help="What to play: cadence.", show_default=False)
]


@with_settings(_KEYS)
def command(
    flags: Flags,
    what: What = CADENCE,
    speeds: Annotated[
        str, _option("--speeds", "MS,MS,...", "Cost of a batch of each rank. [default: 5,5,60]")
    ] = "5,5,60",
    jitter: Annotated[
        float,
        _option("--jitter", "X", "Each batch takes up to this part more or less. [default: 0]"),
    ] = 0.0,
    sync_ms: Annotated[
        float, _option("--sync-ms", "MS", "What an average takes. [default: 15]")
    ] = 15.0,
    fill_ms: Annotated[
        float,
        _option("--fill-ms", "MS", "What a window's first batch costs beyond others. [default: 2]"),
    ] = 2.0,
    step_at: Annotated[
        list[str] | None,
        _option(
            "--step-at",
            "WINDOW:RANK:FACTOR",
            "From that window on the rank's batches take FACTOR times as long; repeatable.",
        ),
    ] = None,
    death: Annotated[
        list[str] | None,
        _option("--death", "WINDOW:RANK", "The rank is killed in that window; repeatable."),
    ] = None,
    hiccup: Annotated[
        list[str] | None,
        _option("--hiccup", "WINDOW:MS", "One average takes so much longer; repeatable."),
    ] = None,
    divergence: Annotated[
        str,
        _option(
            "--divergence",
            "D,D,...",
            "The largest divergence by window; the last one holds. [default: 0.01]",
        ),
    ] = "0.01",
    epoch_batches: Annotated[
        int, _option("--epoch-batches", "N", "Batches of an epoch. [default: 1000000]")
    ] = 1_000_000,
    eval_ms: Annotated[
        float | None,
        _option("--eval-ms", "MS", "What an evaluation after each epoch takes; none if not given."),
    ] = None,
    windows: Annotated[int, _option("--windows", "N", "Windows to play. [default: 40]")] = 40,
    has_plot: Annotated[
        bool,
        typer.Option(
            "--plot/--no-plot",
            help="Draw counts and the share of the ideal below the lines. [default: on]",
            rich_help_panel=_SECTION,
            show_default=False,
        ),
    ] = True,
    config_file: ConfigFile = None,
    as_json: AsJson = False,
    is_verbose: Verbose = False,
) -> int:
    """Play a cohort of given speeds and print what the cadence makes of it, window by window.

    The scheduler, the guards, the pool of samples and the ranks' pacers are those of a run, on a
    clock that jumps. The ideal is what the ranks do if averaging costs nothing and
    nobody waits.
    """
    from flodl_core.cli.lines import write_json, write_line
    from flodl_core.cli.simulate_text import (
        draw_plot,
        head_line,
        summary_json,
        summary_lines,
        window_json,
        window_lines,
    )
    from flodl_core.config.load import load_run
    from flodl_core.config.mode import resolve_mode
    from flodl_core.roles.formation import compose_settings
    from flodl_core.roles.guard_loading import load_guard
    from flodl_core.simulation.pace_profile import (
        MOST_WINDOWS,
        PaceProfile,
        read_death,
        read_hiccup,
        read_numbers,
        read_step,
    )
    from flodl_core.simulation.pace_world import PaceWorld, pace_envelope

    _require(what == CADENCE, "WHAT", what, "is not cadence", "give flodl simulate cadence")
    in_range = 1 <= windows <= MOST_WINDOWS
    _require(in_range, "windows", windows, f"is not 1 to {MOST_WINDOWS}", "give --windows 40")
    loaded = load_run(flags, config_file=config_file)
    run = loaded.run
    mode = resolve_mode(run.mode).mode
    names = " and ".join(_PLAYED)
    _require(
        mode in _PLAYED, "mode", mode.value, f"is not played, only {names}", "leave --mode out"
    )
    profile = PaceProfile(
        batch_ms=read_numbers(speeds, field="speeds"),
        jitter=jitter,
        sync_ms=sync_ms,
        fill_ms=fill_ms,
        divergences=read_numbers(divergence, field="divergence"),
        epoch_batches=epoch_batches,
        eval_ms=eval_ms,
        steps=tuple(map(read_step, step_at or ())),
        deaths=tuple(map(read_death, death or ())),
        hiccups=tuple(map(read_hiccup, hiccup or ())),
    )
    guard = load_guard(run.guard, source=str(loaded.resolved["run.guard"].source))
    envelope = pace_envelope(profile, seed=run.seed, mode=mode)
    world = PaceWorld(profile, compose_settings(run, envelope, (), guard=guard), envelope)
    if not as_json:
        write_line(head_line(profile))
    played = []
    for window in world.play(windows):
        played.append(window)
        if as_json:
            write_json(window_json(window))
        else:
            for line in window_lines(window):
                write_line(line)
    if as_json:
        write_json(summary_json(profile, played))
        return 0
    for line in summary_lines(profile, played, asked=windows, alive=len(world.alive)):
        write_line(line)
    if has_plot and len(played) > 1:
        write_line(draw_plot(played))
    return 0


def _require(holds: object, field: str, value: object, reason: str, fix: str) -> None:
    if not holds:
        raise ConfigError(field, value, reason, source="the command line", fix=fix)
