"""Everything that a rank trains with, built in the one order that works.

Model → device → memory format → flat layout → optimizer → compile: the layout must
see the final tensors, and the optimizer must own the parameters that lie in it.
"""

from dataclasses import dataclass

import torch
from torch import nn

from flodl_core.ids import Mode
from flodl_core.planes.slot import Slot
from flodl_core.training.callbacks import module_of
from flodl_core.training.evaluation import Evaluator
from flodl_core.training.flat import FlatLayout
from flodl_core.training.inspection import build_model, build_optimizer
from flodl_core.training.job import TrainJob
from flodl_core.training.placement import F32
from flodl_core.training.seat import Seat
from flodl_core.training.signatures import seed_generators
from flodl_core.training.step_context import StepContext


@dataclass(frozen=True, slots=True)
class Trainee:
    """A rank's model with all that belongs to it."""

    model: nn.Module
    """As the job built it, on its device and in the layout."""
    layout: FlatLayout
    context: StepContext
    evaluator: Evaluator


def build_trainee(job: TrainJob, seat: Seat, slot: Slot) -> Trainee:
    """Build what the rank trains with.

    Args:
        job: loaded.
        seat: which rank of which world.
        slot: its parameter region becomes the model's memory where it can.

    Raises:
        JobError: the job's functions fail.
        LayoutError: a tensor cannot be reduced; it is named.
        SchemaDriftError: the model is not the one that the run agreed on.
    """
    name = seat.envelope.spec.job.name
    seed_generators(seat.seed("model"))
    model = build_model(job, name=name)
    if job.on_device is None:
        model = model.to(seat.device)
    else:
        model = module_of("on_device", job.on_device(model, seat.device))
    if job.memory_format is not None:
        # torch's overload for a format alone is not in its annotations
        model = model.to(memory_format=job.memory_format)  # type: ignore[call-overload]
    layout = FlatLayout(model, seat.envelope.geometry, params_memory=_params_memory(seat, slot))
    optimizer = build_optimizer(job, model, name=name)
    model.train()
    compiled = module_of("compile", job.compile(model)) if job.compile else model
    evaluator = Evaluator(
        job,
        batch_size=seat.envelope.spec.batch_size,
        device=seat.device,
        seed=seat.seed("eval"),
    )
    context = StepContext(compiled, optimizer, placement=seat.placement(job))
    return Trainee(model, layout, context, evaluator)


def _params_memory(seat: Seat, slot: Slot) -> F32 | torch.Tensor:
    """Return where the parameters live.

    In the slot, unless training goes on while it is read; on a GPU, or where ranks average
    among themselves, in a region of the rank's own on its device.
    """
    mode = seat.envelope.spec.mode
    if mode is Mode.CPU_ASYNC:
        return torch.zeros(slot.params.size, dtype=torch.float32, device="cpu")
    if mode.uses_nccl or seat.device.type == "cuda":
        return torch.zeros(slot.params.size, dtype=torch.float32, device=seat.device)
    return slot.params


def seed_compute(seat: Seat, pass_index: int) -> None:
    """Seed the generators of this rank's compute for a pass, on every device."""
    torch.manual_seed(seat.seed("compute", pass_index, seat.rank))
