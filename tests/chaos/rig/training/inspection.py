"""Stands in for `flodl_core.training.inspection`: facts of a job that has no torch."""

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from flodl_core.messages.job import (
    Geometry,
    JobFacts,
    JobRef,
    LocalBuffer,
    Segment,
    View,
)
from flodl_core.training.load import load_job

ALIGN = 16


def inspect_job(ref: JobRef, *, path: Path | None = None) -> JobFacts:
    """Return the facts."""
    job = load_job(ref, path=path)
    geometry = geometry_of(job.params)
    entries = (f"param|weight|float32|{job.params}", "buffer|running|float32|16")
    digest = hashlib.sha256("".join(entries).encode()).hexdigest()
    return JobFacts(
        n_samples=job.samples,
        dataset_sig=hashlib.sha256(b"%d" % job.samples).hexdigest(),
        model_sig=digest,
        layout_sig=digest,
        model_entries=entries,
        model_bytes=4 * (geometry.params_numel + geometry.buffers_numel),
        geometry=geometry,
        devices=("cpu:0",),
        gpus=(),
        torch_variant="none",
        batch_size=job.batch_size,
        epochs=job.epochs,
        has_eval=True,
    )


def geometry_of(params: int) -> Geometry:
    """Return one parameter, one buffer of floats and one of integers."""
    return Geometry(
        params=(_segment("weight", params),),
        params_numel=-(-params // ALIGN) * ALIGN,
        buffers=(_segment("running", ALIGN),),
        buffers_numel=ALIGN,
        locals=(LocalBuffer(name="steps", dtype="int64", shape=(1,)),),
    )


def _segment(name: str, numel: int) -> Segment:
    return Segment(
        name=name,
        dtype="float32",
        shape=(numel,),
        offset=0,
        numel=numel,
        trainable=True,
        views=(View(name=name, shape=(numel,), strides=(1,), storage_offset=0),),
    )


def facts_json(facts: JobFacts) -> str:
    """Return the facts as one line."""
    return json.dumps(asdict(facts))
