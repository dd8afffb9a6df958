"""What a job is called: the text of the command line, turned into a JobRef.

    charlm                 a packaged recipe
    package.module:job     an attribute of an importable module
    path/to/file.py:job    an attribute of a file; the path stays on this host

Pure of torch and of the job itself, so that the launcher and the agent can read a
name without loading either. `load_job` finds what is named.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from flodl_core.errors import JobError
from flodl_core.messages.job import JobRef, Scalar

RECIPE, MODULE, FILE = "recipe", "module", "file"

_RECIPE_NAME = re.compile(r"[a-z][a-z0-9_]*")
_MODULE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_FORMS = "name a recipe, package.module:attribute, or path/to/file.py:attribute"


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedJob:
    """A job's name, and where this host keeps its file."""

    ref: JobRef
    path: Path | None
    """Of the file, where the kind is file."""


def name_job(text: str, args: Mapping[str, Scalar | tuple[Scalar, ...]]) -> NamedJob:
    """Read a job's name as given on the command line.

    Args:
        text: one of the three forms above; the attribute is `job` if none is given.
        args: options of the job.

    Raises:
        JobError: the text is none of the forms, or the file is not there.
    """
    before, _, attribute = text.rpartition(":") if ":" in text else (text, "", "job")
    if not attribute.isidentifier():
        raise JobError(f"job {text!r}: {attribute!r} is not the name of an attribute", fix=_FORMS)
    if before.endswith(".py"):
        return _name_file(Path(before), attribute, args)
    if ":" in text or "." in text:
        if not _MODULE_NAME.fullmatch(before):
            raise JobError(f"job {text!r} names no module", fix=_FORMS)
        ref = JobRef(kind=MODULE, name=f"{before}:{attribute}", args=dict(args))
        return NamedJob(ref=ref, path=None)
    if not _RECIPE_NAME.fullmatch(text):
        raise JobError(f"job {text!r} names no recipe", fix=_FORMS)
    return NamedJob(ref=JobRef(kind=RECIPE, name=text, args=dict(args)), path=None)


def _name_file(
    path: Path, attribute: str, args: Mapping[str, Scalar | tuple[Scalar, ...]]
) -> NamedJob:
    if not path.is_file():
        raise JobError(f"job file {str(path)!r} is not there", fix="check the path")
    if not path.stem.isidentifier():
        raise JobError(
            f"job file {path.name!r} cannot be imported: {path.stem!r} is not a Python name",
            fix="rename the file to letters, digits and underscores",
        )
    ref = JobRef(
        kind=FILE,
        name=f"{path.stem}:{attribute}",
        args=dict(args),
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    return NamedJob(ref=ref, path=path.resolve())
