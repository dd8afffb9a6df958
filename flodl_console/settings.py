"""What the console was asked to show, and how it is to look.

What it is: one frozen record, made by the command line.
What it is not: settings of a run; the words for those are passed on as they were typed.
Who drives it: `flodl console` builds it, `run_console` reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

MIN_WIDTH_CELLS: Final = 60
MIN_HEIGHT_CELLS: Final = 16
"""Below either, the console says how much it needs and draws nothing else."""


class ThemeName(StrEnum):
    """The four ways in which the console may look."""

    DARK = "dark"
    LIGHT = "light"
    CONTRAST = "contrast"
    SAFE = "safe"
    """Colours that every kind of colour vision tells apart (Okabe and Ito)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """The command line of `flodl console`, in one value.

    At most one of `attach`, `replay` and `demo` is set. None of them means: with a job
    the form for a new run; without one the newest live run of `run_dir`, else the form.
    """

    job: str | None = None
    """Put into the form; nothing is started before the form is sent."""
    launch_flags: Mapping[str, object] = field(default_factory=dict, repr=False)
    """Options of a run by the names that `load_run` takes, each as it was typed; None is
    not given."""
    config_file: Path | None = None
    """Settings file instead of `flodl.toml` in the current directory."""
    run_dir: Path | None = None
    """Where runs are looked for; as configured if not set."""
    attach: str | None = None
    """`HOST:PORT` of a run."""
    token_file: Path | None = field(default=None, repr=False)
    """File with the run's join token, where the run directory is elsewhere."""
    is_read_only: bool = False
    """Whether nothing may be asked of the run, also of one that the form starts."""
    replay: Path | None = None
    """Directory of a run that is played again."""
    demo: str | None = None
    """Name of a scenario."""
    demo_ranks: int | None = None
    """Ranks of the scenario; its own number if not set."""
    seed: int = 0
    """Of the scenario."""
    theme: ThemeName = ThemeName.DARK
    is_ascii: bool = False
    """Whether only ASCII characters are drawn."""
    is_colourless: bool = False
    """Whether no colour is drawn; NO_COLOR in the environment says the same."""
