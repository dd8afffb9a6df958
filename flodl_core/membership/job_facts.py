"""What a job's facts say to membership: what a run expects, and how a host introduces itself.

What it is: the two translations of `JobFacts`, so that launcher and agent say
the same of the same job, and the digest of what is reduced.
What it is not: finding the facts; `flodl inspect-job` does.
Who drives it: the launcher before it opens the window, the agent before it joins.
"""

import hashlib
from dataclasses import replace

from flodl_core.ids import HostName, Mode, RunId
from flodl_core.membership.roster import Expected
from flodl_core.messages.job import Geometry, JobFacts
from flodl_core.messages.join import JoinHello


def expect_job(
    facts: JobFacts,
    *,
    run_id: RunId,
    mode: Mode | None,
    wire_dtype: str,
    needs_gpus: bool = False,
) -> Expected:
    """Return what every host of a run must agree with.

    Args:
        facts: of the launcher's own inspection.
        run_id: of this run.
        mode: None while it is decided at forming.
        needs_gpus: whether every rank must have one.
        wire_dtype: of the parameters between hosts.
    """
    return Expected(
        run_id=run_id,
        mode=mode,
        needs_gpus=needs_gpus,
        wire_dtype=wire_dtype,
        n_samples=facts.n_samples,
        dataset_sig=facts.dataset_sig,
        model_sig=facts.model_sig,
        model_entries=facts.model_entries,
        layout_sig=facts.layout_sig,
        geometry_sig=geometry_signature(facts.geometry),
    )


def introduce_host(
    facts: JobFacts,
    devices: tuple[str, ...],
    *,
    host: HostName,
    run_id: RunId | None = None,
    wire_dtype: str | None = None,
) -> JoinHello:
    """Return the hello of a host.

    Args:
        facts: of the host's own inspection.
        devices: one a rank.
        host: its label.
        run_id: as offered.
        wire_dtype: as offered, if this host can speak it.
    """
    return JoinHello(
        host=host,
        local_devices=devices,
        gpus=facts.gpus,
        torch_variant=facts.torch_variant,
        n_samples=facts.n_samples,
        dataset_sig=facts.dataset_sig,
        model_sig=facts.model_sig,
        layout_sig=facts.layout_sig,
        model_entries=facts.model_entries,
        run_id=run_id,
        nccl_version=facts.nccl_version,
        geometry_sig=geometry_signature(facts.geometry),
        wire_dtype=wire_dtype,
    )


def geometry_signature(geometry: Geometry) -> str:
    """Return a digest of what is reduced and where: names, ties, shapes, types and order.

    Strides, placement in memory and what is trainable are not in it, so hosts
    that differ in those alone have the same.
    """
    digest = hashlib.sha256()
    for segments in (geometry.params, geometry.buffers):
        for segment in segments:
            views = [(v.name, v.shape, v.strides, v.storage_offset) for v in segment.views]
            row = (segment.name, segment.dtype, segment.shape, segment.offset, segment.numel, views)
            digest.update(repr(row).encode())
        digest.update(b"|")
    digest.update(repr((geometry.params_numel, geometry.buffers_numel)).encode())
    digest.update(repr([(b.name, b.dtype, b.shape) for b in geometry.locals]).encode())
    return digest.hexdigest()


def without_entries(hello: JoinHello) -> JoinHello:
    """Return the hello without its list of tensors, which is needed only to admit it."""
    return replace(hello, model_entries=())
