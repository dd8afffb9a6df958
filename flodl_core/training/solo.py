"""One device alone with a job: a few batches, timed as a rank would do them.

What it is: model, optimizer and data as the job makes them, its own step on its own
batches, without any averaging. Nothing is written and the model is thrown away.
What it is not: a run, or a forecast; `flodl_core.probe.estimate` makes that of the rates.
Who drives it: the prober's process (`roles.prober`), one process a device.
"""

import statistics

import numpy as np
import torch

from flodl_core.errors import JobError
from flodl_core.net import clock
from flodl_core.probe.facts import SoloRate
from flodl_core.training.batches import move_batch
from flodl_core.training.callbacks import module_of
from flodl_core.training.geometry import build_geometry
from flodl_core.training.inspection import build_dataset, build_model, build_optimizer
from flodl_core.training.job import MapDataset, TrainJob
from flodl_core.training.load import describe_error
from flodl_core.training.signatures import seed_generators
from flodl_core.training.step_context import Placement, StepContext
from flodl_core.training.survey import survey_model
from flodl_core.units import MIB, Seconds

WARM_BATCHES = 2
"""Not counted: the first compiles, the second still fills caches."""
LEAST_BATCHES = 3
_COPY_BYTES = 16 * MIB
_PAIR = 2


def measure_solo(
    job: TrainJob,
    device: str,
    *,
    rank: int,
    batch_size: int,
    micro_batch: int | None,
    budget_s: Seconds,
) -> SoloRate:
    """Train a few batches on one device and return how long they took.

    Args:
        job: loaded.
        device: cpu:0, cuda:1, mps …; this process should see no other work on it.
        rank: that the device would have, as the job's step is told.
        batch_size: samples of a batch.
        micro_batch: largest piece that goes through the model at once; None is the batch.
        budget_s: how long to measure; at least three batches are, whatever they take.

    Raises:
        JobError: a function of the job failed; the device is named.
    """
    place = torch.device("cpu" if device.startswith("cpu") else device)
    seed_generators(0)
    model = build_model(job, name="job")
    geometry = build_geometry(survey_model(model))
    try:
        model = model.to(place) if job.on_device is None else job.on_device(model, place)
        if job.memory_format is not None:
            # torch's overload for a format alone is not in its annotations
            model = model.to(memory_format=job.memory_format)  # type: ignore[call-overload]
        optimizer = build_optimizer(job, model, name="job")
        model.train()
        compiled = module_of("compile", job.compile(model)) if job.compile else model
        context = StepContext(
            compiled,
            optimizer,
            placement=Placement(
                rank=rank,
                device=place,
                batch_size=batch_size,
                micro_batch=micro_batch,
                precision=job.precision,
            ),
        )
        dataset = build_dataset(job, name="job")
        times = _time_batches(job, context, dataset, budget_s=budget_s)
    except JobError:
        raise
    except Exception as error:
        raise JobError(
            f"the job fails on {device}: {describe_error(error)}",
            fix="run it on this device alone to see where, or leave the device out",
        ) from error
    model_bytes = 4 * (geometry.params_numel + geometry.buffers_numel)
    kept = times[WARM_BATCHES:]
    return SoloRate(
        device=device,
        batch_samples=min(batch_size, len(dataset)),
        batch_ms=statistics.median(whole for whole, _ in kept),
        data_ms=statistics.median(data for _, data in kept),
        first_ms=times[0][0],
        batches=len(kept),
        model_bytes=model_bytes,
        copy_bytes_per_s=copy_rate(),
        peer_bytes_per_s=_peer_rate(place),
        memory_bytes_per_s=_memory_rate(place),
        samples=len(dataset),
    )


def copy_rate() -> float:
    """Return how many bytes a second this machine copies from memory to memory."""
    source = np.ones(_COPY_BYTES // 4, dtype=np.float32)
    target = np.empty_like(source)
    taken = []
    for _ in range(6):
        began = clock.now()
        np.copyto(target, source)
        taken.append(clock.now() - began)
    return _COPY_BYTES / max(statistics.median(taken[1:]), 1e-9)


def _peer_rate(device: torch.device) -> float | None:
    """Return how many bytes a second a GPU copies to the next one; None without two."""
    if device.type != "cuda" or torch.cuda.device_count() < _PAIR:
        return None
    index = device.index or 0
    other = torch.device("cuda", (index + 1) % torch.cuda.device_count())
    source = torch.ones(_COPY_BYTES // 4, device=device)
    return _device_rate(source, torch.empty_like(source, device=other))


def _memory_rate(device: torch.device) -> float | None:
    """Return how many bytes a second a GPU reads and writes in its memory; None for no GPU."""
    if device.type != "cuda":
        return None
    source = torch.ones(_COPY_BYTES // 4, device=device)
    return 2 * _device_rate(source, torch.empty_like(source))


def _device_rate(source: torch.Tensor, target: torch.Tensor) -> float:
    taken = []
    for _ in range(6):
        torch.cuda.synchronize(source.device)
        began = clock.now()
        target.copy_(source)
        torch.cuda.synchronize(source.device)
        torch.cuda.synchronize(target.device)
        taken.append(clock.now() - began)
    return _COPY_BYTES / max(statistics.median(taken[1:]), 1e-9)


def _time_batches(
    job: TrainJob, context: StepContext, dataset: MapDataset, *, budget_s: Seconds
) -> list[tuple[float, float]]:
    """Return milliseconds of each batch: of the whole, and of its data."""
    collate = job.collate or torch.utils.data.default_collate
    size = min(context.placement.batch_size, len(dataset))
    batches = max(1, len(dataset) // size)
    device = context.placement.device
    times: list[tuple[float, float]] = []
    measured_since = clock.now()
    while True:
        number = len(times)
        began = clock.now()
        first = (number % batches) * size
        batch = move_batch(collate([dataset[i] for i in range(first, first + size)]), device)
        has_data = clock.now()
        context.begin_batch(epoch=0, global_step=number, lr_factor=None)
        job.step(context, batch)
        context.finish_batch()
        _synchronize(device)
        ended = clock.now()
        times.append(((ended - began) * 1e3, (has_data - began) * 1e3))
        if number + 1 == WARM_BATCHES:
            measured_since = ended
        if number + 1 >= WARM_BATCHES + LEAST_BATCHES and ended - measured_since >= budget_s:
            return times


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
