"""A user's own guard: found by its name, imported, and checked.

    package.module:attribute     of an importable module
    path/to/guard.py:attribute   of a file

The attribute is a guard (`flodl_core.elche.guards.ConvergenceGuard`), or a class or
function that returns one when it is called without arguments. What the guard says later is
checked by `elche.judge`.

Who drives it: the guard's own process in a run (`guard_process`), and `flodl simulate`, which
nobody waits for.
"""

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Final, cast

from flodl_core.elche.guards import ConvergenceGuard
from flodl_core.errors import ConfigError
from flodl_core.ids import GuardKind

_PARTS: Final = ("name", "history", "review", "restore")


def load_guard(text: str, *, source: str) -> ConvergenceGuard | None:
    """Return the guard that a setting names; None if it is one of ours.

    Args:
        text: of `run.guard`, already of a form that can name one.
        source: where the setting came from.

    Raises:
        ConfigError: it cannot be found, imported or made, or is no guard.
    """
    if text in set(GuardKind):
        return None
    before, _, attribute = text.rpartition(":")
    try:
        found = getattr(_import(before), attribute)
        is_maker = isinstance(found, type) or not hasattr(found, "review")
        guard = found() if is_maker else found
    except (Exception, SystemExit) as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise _refusal(text, f"cannot be had ({said})", source) from error
    missing = [part for part in _PARTS if not hasattr(guard, part)]
    if missing:
        raise _refusal(
            text,
            f"is no guard: it has no {', '.join(missing)}",
            source,
            fix="write a class with the parts of flodl_core.elche.guards.ConvergenceGuard",
        )
    return cast("ConvergenceGuard", guard)


def _import(name: str) -> ModuleType:
    path = Path(name)
    directory, module = str(Path.cwd()), name
    if path.suffix == ".py":
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {name}")
        directory, module = str(path.resolve().parent), path.stem
    if directory not in sys.path:
        sys.path.append(directory)
    importlib.invalidate_caches()
    imported = importlib.import_module(module)
    origin = Path(imported.__file__ or "").resolve()
    if path.suffix == ".py" and origin != path.resolve():
        raise ImportError(f"{path.name} has the name of another module; rename the file")
    return imported


def _refusal(text: str, reason: str, source: str, fix: str = "") -> ConfigError:
    usual = "check the name: package.module:attribute or path/file.py:attribute"
    return ConfigError("guard", text, reason, source=source, fix=fix or usual)
