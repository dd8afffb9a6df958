"""What a job turns out to be: built once on the CPU, looked at, and thrown away.

The launcher and every agent run it in a child process before the join window
opens, so that neither loads torch, and so that what cannot be reduced is refused
by name before anybody waits.
"""

import importlib.util
import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Final

import torch
from torch import nn

from flodl_core.elche.election import DeviceFacts
from flodl_core.elche.hardware import describe_gpu
from flodl_core.errors import FlodlError, JobError, NonFiniteError, kind_of
from flodl_core.messages.job import JobFacts, JobRef
from flodl_core.training.geometry import build_geometry
from flodl_core.training.job import MapDataset, TrainJob
from flodl_core.training.load import describe_error, load_job
from flodl_core.training.signatures import (
    dataset_signature,
    layout_signature,
    model_entries,
    model_signature,
    seeded,
)
from flodl_core.training.snapshot import FIX_VALUES, largest_size
from flodl_core.training.survey import Survey, survey_model
from flodl_core.units import FLOAT32_MAX

_SEED = 0

MAX_ABS_VALUE: Final = FLOAT32_MAX / 512
"""Of a parameter or buffer before training: 512 ranks can be summed on the f32 wire."""


def inspect_job(ref: JobRef, *, path: Path | None = None) -> JobFacts:
    """Load a job, build its model and data once, and describe them.

    Args:
        ref: the job.
        path: this host's copy of the file, where the kind is file.

    Raises:
        JobError: the job cannot be loaded or built.
        LayoutError: a tensor of its model cannot be reduced; it is named.
        NonFiniteError: a tensor holds values that are not finite before training began, or
            too large to be averaged.
    """
    return describe_job(load_job(ref, path=path), name=ref.name)


def describe_job(job: TrainJob, *, name: str) -> JobFacts:
    """Describe a loaded job; see `inspect_job`."""
    with seeded(_SEED):
        model = build_model(job, name=name)
        survey = survey_model(model)
        build_optimizer(job, model, name=name)
    with seeded(_SEED):
        dataset = build_dataset(job, name=name)
    _refuse_unsendable(survey)
    entries = model_entries(model)
    geometry = build_geometry(survey)
    try:
        dataset_sig = dataset_signature(dataset, job.dataset_version)
    except BaseException as error:
        raise JobError(f"job {name!r}: reading the data failed: {describe_error(error)}") from error
    return JobFacts(
        n_samples=len(dataset),
        dataset_sig=dataset_sig,
        model_sig=model_signature(entries),
        layout_sig=layout_signature(survey, entries),
        model_entries=entries,
        model_bytes=4 * (geometry.params_numel + geometry.buffers_numel),
        geometry=geometry,
        devices=local_devices(),
        gpus=tuple(_gpu(index) for index in range(torch.cuda.device_count())),
        torch_variant=torch_variant(),
        nccl_version=nccl_version(),
        batch_size=job.batch_size,
        epochs=job.epochs,
        has_eval=job.has_eval,
    )


def facts_json(facts: JobFacts) -> str:
    """Return the facts as one line of JSON, tuples as lists."""
    return json.dumps(asdict(facts))


def build_model(job: TrainJob, *, name: str) -> nn.Module:
    """Build the job's model.

    Raises:
        JobError: its function raised or returned something else.
    """
    try:
        model = job.model()
    except FlodlError:
        raise
    except BaseException as error:
        raise JobError(
            f"job {name!r}: building the model failed: {describe_error(error)}"
        ) from error
    if not isinstance(model, nn.Module):
        raise JobError(
            f"job {name!r}: model() returned {kind_of(model)}", fix="return an nn.Module"
        )
    return model


def build_optimizer(job: TrainJob, model: nn.Module, *, name: str) -> torch.optim.Optimizer:
    """Build the job's optimizer for a model.

    Raises:
        JobError: its function raised or returned something else.
    """
    try:
        optimizer = job.optimizer(model)
    except FlodlError:
        raise
    except BaseException as error:
        raise JobError(
            f"job {name!r}: building the optimizer failed: {describe_error(error)}"
        ) from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise JobError(
            f"job {name!r}: optimizer() returned {kind_of(optimizer)}",
            fix="return a torch.optim.Optimizer",
        )
    return optimizer


def build_dataset(job: TrainJob, *, name: str) -> MapDataset:
    """Build the job's training data.

    Raises:
        JobError: its function raised, or the result has no length or no samples.
    """
    try:
        dataset = job.dataset()
        count = len(dataset)
    except FlodlError:
        raise
    except BaseException as error:
        raise JobError(
            f"job {name!r}: building the data failed: {describe_error(error)}"
        ) from error
    if count < 1 or not hasattr(dataset, "__getitem__"):
        raise JobError(
            f"job {name!r}: the dataset holds {count} samples to take by index",
            fix="return a map-style dataset with at least one sample",
        )
    return dataset


def local_devices() -> tuple[str, ...]:
    """Return the devices that ranks of this host may use: its GPUs, else one CPU."""
    if torch.cuda.is_available():
        return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))
    if torch.backends.mps.is_available():
        return ("mps",)
    return ("cpu:0",)


def _gpu(index: int) -> str:
    properties = torch.cuda.get_device_properties(index)
    facts = DeviceFacts(
        vendor="nvidia" if torch.version.hip is None else "amd",
        generation=properties.major,
        memory_gb=properties.total_memory / 2**30,
    )
    return describe_gpu(properties.name, facts)


def torch_variant() -> str:
    """Return which torch this is: its version with its kind, such as `2.6.0+cu124`."""
    version = str(torch.__version__)
    if "+" in version:
        return version
    if torch.version.cuda is not None:
        return f"{version}+cu{torch.version.cuda.replace('.', '')}"
    return f"{version}+cpu"


def nccl_version() -> str | None:
    """Return the version of the NCCL that torch ships; None without GPUs, or without nccl4py."""
    if not torch.cuda.is_available() or not torch.distributed.is_nccl_available():
        return None
    if importlib.util.find_spec("nccl") is None:
        return None
    number: tuple[int, ...] = torch.cuda.nccl.version()  # type: ignore[no-untyped-call] # torch's
    return ".".join(map(str, number))


def _refuse_unsendable(survey: Survey) -> None:
    """Refuse what a rank could not contribute, as the snapshot would find: as f32, summed."""
    for cluster in (*survey.params, *survey.buffers):
        largest = largest_size(cluster.primary.tensor)
        if largest <= MAX_ABS_VALUE:
            continue
        kind = "parameter" if cluster.is_param else "buffer"
        what = (
            f"a value of size {largest:.3g}, and the sum of an average has room for "
            f"{MAX_ABS_VALUE:.3g}"
            if math.isfinite(largest)
            else "values that are not finite"
        )
        raise NonFiniteError(
            f"{kind} {cluster.primary.name!r} holds {what} before training",
            fix=FIX_VALUES,
        )
