"""Finding and importing a job by its name.

Whatever goes wrong in the user's code comes out as one JobError of one line, with
the original exception as its cause. Nobody fetches code: a file is read from this
host's own disk. Inspection, launcher-local ranks and agents' ranks call it.
"""

import importlib
import importlib.machinery
import importlib.util
import inspect
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from flodl_core.errors import FlodlError, JobError, kind_of
from flodl_core.messages.job import JobRef
from flodl_core.training.callbacks import notes_of
from flodl_core.training.job import TrainJob
from flodl_core.training.job_name import FILE, MODULE, RECIPE
from flodl_core.training.sayable import sayable, text_of

_RECIPES = "flodl_core.recipes"

_NOT_THE_JOBS = ("importlib", "/torch/", "flodl_core/training/")
"""Parts of the file names of frames that say nothing about a job's own code."""


@dataclass(frozen=True, slots=True)
class JobSource:
    """How another process of this host finds the job.

    Attributes:
        ref: recipe, module or file, with its options.
        path: this host's copy of the file, where the kind is file.
    """

    ref: JobRef
    path: Path | None = None


def load_job(ref: JobRef, *, path: Path | None = None) -> TrainJob:
    """Import the job that `ref` names and return it.

    Args:
        ref: recipe, module or file; its args are passed to the attribute if that is
            a function.
        path: this host's copy of the file, where the kind is file.

    Raises:
        JobError: it cannot be found, imported or made; one line says why.
    """
    module_name, _, attribute = ref.name.partition(":")
    if ref.kind == RECIPE:
        module, attribute = _import_recipe(ref.name)
    elif ref.kind == MODULE:
        _search_here()
        module = _import(module_name, what=f"job module {module_name!r}")
    elif ref.kind == FILE:
        module = _import_file(module_name, path)
    else:
        raise JobError(f"a job of kind {ref.kind!r} is unknown", fix="update flodl on this host")
    found = getattr(module, attribute, None)
    if found is None:
        raise JobError(
            f"{ref.kind} {ref.name!r} has no attribute {attribute!r}",
            fix=f"define {attribute} in {module.__name__}, or name another after the colon",
        )
    return _make(ref, found)


def describe_error(error: BaseException) -> str:
    """Return one line: class, text and place of an error; one of ours says it all in its text.

    Any text can be sent: what is no UTF-8 is escaped, and the middle of a long one left out.
    """
    noted = "".join(f", {note}" for note in notes_of(error))
    if isinstance(error, FlodlError):
        said = "; ".join(filter(None, (error.happened, error.fix)))
        return sayable(f"{' '.join(said.split())}{noted}")
    text = " ".join(text_of(error).split())
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(part in frame.filename for part in _NOT_THE_JOBS)
    ]
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    said = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return sayable(f"{said}{place}{noted}")


def _make(ref: JobRef, found: object) -> TrainJob:
    if isinstance(found, TrainJob):
        if ref.args:
            raise JobError(
                f"job {ref.name!r} takes no options, and was given {', '.join(sorted(ref.args))}",
                fix="leave them out, or let the attribute be a function that returns a TrainJob",
            )
        return found
    if not callable(found):
        raise JobError(
            f"job {ref.name!r} is {kind_of(found)}, not a TrainJob",
            fix="name a TrainJob, or a function that returns one",
        )
    _require_options(ref, found)
    try:
        made = found(**ref.args)
    except FlodlError:
        raise
    except BaseException as error:
        raise JobError(f"job {ref.name!r} could not be made: {describe_error(error)}") from error
    if not isinstance(made, TrainJob):
        raise JobError(
            f"job {ref.name!r} returned {kind_of(made)}, not a TrainJob",
            fix="return flodl_core.TrainJob(...)",
        )
    return made


def _require_options(ref: JobRef, function: object) -> None:
    assert callable(function)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**ref.args)
    except TypeError as error:
        known = ", ".join(signature.parameters) or "none"
        raise JobError(
            f"job {ref.name!r} cannot take its options: {error}", fix=f"its options are: {known}"
        ) from error


def _import(name: str, *, what: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise JobError(f"{what} is not installed here", fix="check its name") from error
        raise JobError(
            f"{what} needs {error.name!r}, which is not installed here",
            fix="install it into this environment",
        ) from error
    except FlodlError:
        raise
    except BaseException as error:
        raise JobError(f"{what} could not be imported: {describe_error(error)}") from error


def _search_here() -> None:
    """Let modules of the working directory be found, after the installed ones."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)


def _import_recipe(name: str) -> tuple[ModuleType, str]:
    """Return the recipe's module and attribute; the package lies above this one, so by name."""
    recipe = _import(_RECIPES, what="the package of recipes").find_recipe(name)
    return _import(recipe.module, what=f"recipe {name!r}"), recipe.attribute


def _import_file(stem: str, path: Path | None) -> ModuleType:
    if path is None or not path.is_file():
        raise JobError(
            f"job file {stem}.py is not on this host",
            fix="pass --job PATH with this host's copy of it",
        )
    if path.stem != stem:
        raise JobError(
            f"the run's job is {stem}.py, and --job names {path.name}",
            fix=f"pass the path of {stem}.py",
        )
    resolved = path.resolve()
    loaded = sys.modules.get(stem)
    if loaded is not None and _origin(loaded) == resolved:
        return loaded
    _refuse_shadow(stem, resolved)
    directory = str(resolved.parent)
    if directory not in sys.path[:1]:
        sys.path.insert(0, directory)
    importlib.invalidate_caches()
    return _import(stem, what=f"job file {path.name!r}")


def _refuse_shadow(stem: str, path: Path) -> None:
    standard = stem in sys.stdlib_module_names or stem in sys.builtin_module_names
    elsewhere = stem in sys.modules
    if not standard and not elsewhere:
        spec = importlib.machinery.PathFinder.find_spec(stem)
        elsewhere = spec is not None and (
            spec.origin is None or Path(spec.origin).resolve() != path
        )
    if standard or elsewhere:
        kind = "a standard" if standard else "an installed"
        raise JobError(
            f"job file {path.name!r} has the name of {kind} module, {stem!r}",
            fix="rename the file",
        )


def _origin(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file).resolve() if file else None
