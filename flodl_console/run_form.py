"""What the form for a new run asks, and what is wrong with the answers.

What it is: eight fields, judged by the same code and in the same words as the command
line, and the words for `flodl headless` that they come to.
What it is not: the form on screen; and the job is not loaded, the child does that.
Who drives it: the form screen at each key.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from flodl_core.config.keys import JOB_ARGS, KEYS, Key
from flodl_core.config.load import LoadedRun, load_run
from flodl_core.config.values import AUTO
from flodl_core.errors import ConfigError
from flodl_core.ids import Mode, StartMode


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One question of the form."""

    name: str
    """As `load_run` takes it."""
    label: str
    dotted: str
    """The setting, as errors name it."""
    choices: tuple[str, ...] = ()
    """The words that it takes, where they are few."""
    short: str = ""
    """What it is where `choices` do not say it or are too many, at most 35 cells."""

    @property
    def meaning(self) -> str:
        """What stands beside the field while nothing is wrong."""
        return self.short or ", ".join(self.choices)


FORM_FIELDS: Final = (
    FormField(name="job", label="job", dotted="run.job", short="charlm, train.py:job, module:name"),
    FormField(
        name="mode",
        label="mode",
        dotted="run.mode",
        choices=(AUTO, *(mode.value for mode in Mode)),
        short="auto, cpu_ or nccl_ and its pace",
    ),
    FormField(
        name="hosts", label="hosts", dotted="run.hosts", short="hosts started on this machine"
    ),
    FormField(
        name="ranks_per_host",
        label="ranks",
        dotted="run.ranks_per_host",
        short="on each host; one a GPU, else one",
    ),
    FormField(
        name="min_rank_start",
        label="quorum",
        dotted="join.min_rank_start",
        short="fewest ranks that it starts with",
    ),
    FormField(
        name="start_mode",
        label="start",
        dotted="join.start_mode",
        choices=tuple(mode.value for mode in StartMode),
    ),
    FormField(
        name="join_timeout_s",
        label="window, s",
        dotted="join.join_timeout_s",
        short="how long it waits for more hosts",
    ),
    FormField(
        name="max_join_timeout_s",
        label="cap, s",
        dotted="join.max_join_timeout_s",
        short="after this it gives up waiting",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormReview:
    """What the answers come to."""

    complaints: Mapping[str, str] = field(default_factory=dict)
    """By the field's name: what is wrong with it; at most one is found at a time."""
    elsewhere: str = ""
    """What is wrong with a setting that the form does not ask for."""
    fix: str = ""
    """What to do about it."""
    words: tuple[str, ...] = ()
    """For `flodl`, from `headless` on; empty while something is wrong."""
    run_dir: Path = Path("runs")
    """Where the run will lie."""
    placeholders: Mapping[str, str] = field(default_factory=dict)
    """By the field's name: what it is where nothing is typed."""

    @property
    def is_good(self) -> bool:
        """Whether a run can be launched."""
        return bool(self.words)


def review_form(
    typed: Mapping[str, str],
    *,
    flags: Mapping[str, object],
    config_file: Path | None = None,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> FormReview:
    """Judge the answers as the command line would.

    Args:
        typed: text by the field's name; empty is not given.
        flags: options of the command line that the form does not ask for, and those that
            it does ask for where nothing is typed.
        config_file: `--config`.
        environ: instead of the process's own.
        directory: where `flodl.toml` is looked for; the current one if None.
    """
    given = dict(flags)
    given.update({name: text.strip() or None for name, text in typed.items()})

    def load(*, needs_job: bool) -> LoadedRun:
        return load_run(
            given,
            environ=environ,
            config_file=config_file,
            directory=directory,
            needs_job=needs_job,
        )

    placeholders: Mapping[str, str] = {}
    try:
        placeholders = _placeholders(load(needs_job=False))
        loaded = load(needs_job=True)
    except ConfigError as error:
        return _refused(error, placeholders)
    return FormReview(
        words=("headless", *words_of(given), *_config_words(config_file)),
        run_dir=loaded.run.run_dir,
        placeholders=placeholders,
    )


def words_of(flags: Mapping[str, object]) -> tuple[str, ...]:
    """Return options as words of the command line; what is None is left out."""
    names = {_flag_name(key): key for key in KEYS.values() if key.table in {"run", "join", "net"}}
    words: list[str] = []
    for name, value in flags.items():
        key = names.get(name)
        if key is None or value is None:
            continue
        words += _words(key, value)
    return tuple(words)


def _words(key: Key, value: object) -> list[str]:
    if key.dotted == "run.job":
        return [str(value)]
    if isinstance(value, bool):
        return [key.flag if value else f"--no-{key.flag[2:]}"]
    if key.dotted == JOB_ARGS and isinstance(value, list | tuple):
        return [f"{key.flag}={text}" for text in value]
    return [f"{key.flag}={value}"]


def _flag_name(key: Key) -> str:
    return f"net_{key.name}" if key.table == "net" else key.name


def _config_words(config_file: Path | None) -> tuple[str, ...]:
    return () if config_file is None else (f"--config={config_file}",)


def _refused(error: ConfigError, placeholders: Mapping[str, str]) -> FormReview:
    complaints = {asked.name: error.reason for asked in FORM_FIELDS if error.field == asked.dotted}
    return FormReview(
        complaints=complaints,
        elsewhere="" if complaints else error.happened,
        fix=error.fix,
        placeholders=placeholders,
    )


def _placeholders(loaded: LoadedRun) -> Mapping[str, str]:
    return {
        asked.name: _shown(loaded.resolved[asked.dotted].value)
        for asked in FORM_FIELDS
        if loaded.resolved[asked.dotted].value is not None
    }


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
