"""`<stem>.meta.json`: what a bundle is, and the marker that it is complete.

What it is: frozen models of the file, their checks, and the coverage of samples
that a resume would continue from.
What it is not: a writer; `bundle` writes it last, after every file it names.
Who drives it: `bundle`, and whoever reads a bundle.
"""

from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flodl_core.errors import CheckpointError
from flodl_core.ids import SaveReason

SCHEMA_VERSION: Final = 1
WEIGHTS_SUFFIX: Final = ".safetensors"
META_SUFFIX: Final = ".meta.json"


class MetaPart(BaseModel):
    """One frozen part of the meta file."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class EpochCoverage(MetaPart):
    """Which samples of an epoch are not in the saved consensus yet."""

    epoch: int = Field(ge=0)
    total_samples: int = Field(ge=0)
    uncovered_ranges: tuple[tuple[int, int], ...]
    """[offset, size] in the pass's permutation, ascending and disjoint."""


class Coverage(MetaPart):
    """Where in the data the saved consensus stands; independent of the world."""

    seed: int
    batch_size: int = Field(ge=1)
    epoch_splits: int = Field(default=1, ge=1)
    n_samples: int = Field(ge=0)
    per_epoch: tuple[EpochCoverage, ...] = ()
    """Epochs that have begun and are not whole; empty between epochs."""


class BundleFacts(MetaPart):
    """What the coordinator knows of a save."""

    run_id: str
    run_name: str = ""
    host: str = ""
    """Where the files are written."""
    job: str = ""
    mode: str = ""
    model_sig: str = ""
    dataset_sig: str = ""
    epoch: int = Field(ge=0)
    """The first epoch that is not whole: where a resume goes on."""
    epochs: int = Field(default=0, ge=0)
    global_step: int = Field(ge=0)
    sync_round: int = Field(ge=0)
    """The committed version, that is the cycle that made this consensus."""
    world_size: int = Field(ge=1)
    reason: SaveReason
    coverage: Coverage | None = None
    loss: float | None = None
    metric: float | None = None
    metric_name: str | None = None
    created_at: str = ""
    """UTC, ISO 8601."""


class FileEntry(MetaPart):
    """One file of the bundle."""

    suffix: str
    """What follows the stem: the bundle's previous generation keeps its entries so."""
    sha256: str
    nbytes: int = Field(ge=0)
    host: str


class BundleMeta(BundleFacts):
    """The whole meta file."""

    schema_version: int = SCHEMA_VERSION
    bundle_id: str
    """Also stands in the weights file, so that files of two saves are never taken for one."""
    files: tuple[FileEntry, ...]

    def entry(self, suffix: str) -> FileEntry | None:
        """Return the entry of a file, or None if the bundle has none such."""
        return next((one for one in self.files if one.suffix == suffix), None)


def read_meta_untrusted(body: bytes, *, path: str) -> BundleMeta:
    """Read a meta file.

    Args:
        body: its bytes.
        path: where it lies, for the text of the error.

    Raises:
        CheckpointError: it is no meta file of ours, or of a newer schema. Nothing
            else escapes.
    """
    try:
        meta = BundleMeta.model_validate_json(body)
    except (ValidationError, RecursionError, UnicodeDecodeError) as error:
        raise CheckpointError(
            f"{path} is no meta file of a bundle ({_first_problem(error)})",
            fix="use another bundle; the weights file beside it may still be whole",
        ) from error
    if meta.schema_version > SCHEMA_VERSION:
        raise CheckpointError(
            f"{path} has schema {meta.schema_version}, newer than ours ({SCHEMA_VERSION})",
            fix="use the flodl version that wrote it",
        )
    return meta


def _first_problem(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else str(first["msg"])
    return type(error).__name__
