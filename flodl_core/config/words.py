"""Settings as words of a command line that reads the same values from them again.

    LoadedRun ─▶ setting_words ─▶ flodl headless …   of a launcher somewhere else
              └▶ agent_words   ─▶ flodl join …       of every host that a launcher starts

What it is: the way back from values to options, for those that were given.
What it is not: the choice of what a command says itself; whoever starts it knows that.
Who drives it: the launcher for its hosts, `flodl manifests` for its pods.
"""

from typing import Final

from flodl_core.config.job_args import job_value_text
from flodl_core.config.keys import KEYS
from flodl_core.config.load import LoadedRun
from flodl_core.config.sources import SourceKind

HANDED_ON: Final = ("run.inspect_timeout_s", "net.timeout_scale")
"""Settings of a run that hold for each of its hosts; their options have the same names there."""


def agent_words(loaded: LoadedRun, *, is_verbose: bool) -> tuple[str, ...]:
    """Return the words of `flodl join` by which a host does as its launcher does.

    Args:
        loaded: the launcher's settings.
        is_verbose: whether its processes log at debug level.
    """
    words = [word for dotted in HANDED_ON for word in setting_words(loaded, dotted)]
    return (*words, "--verbose") if is_verbose else tuple(words)


def setting_words(loaded: LoadedRun, dotted: str) -> list[str]:
    """Return the words of one setting; none if it was not given.

    A ceiling is told as it was given: the command that reads it multiplies it again.
    """
    key, given = KEYS[dotted], loaded.resolved[dotted]
    value = loaded.unscaled.get(dotted, given.value)
    if given.source.kind in (SourceKind.DEFAULT, SourceKind.DERIVED) or value is None:
        return []
    if isinstance(value, bool):
        return [key.flag if value else f"--no-{key.flag[2:]}"]
    if isinstance(value, dict):
        return [
            word
            for name, part in value.items()
            for word in (key.flag, f"{name}={job_value_text(part)}")
        ]
    return [key.flag, _text(value)]


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)
