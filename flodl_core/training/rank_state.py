"""What only a rank has at a commit, and how a resumed rank goes on from it.

The consensus is the cohort's; the optimizer's state, the loss scaler, the generators and
the integer and bool buffers are a rank's own. With them and the consensus a rank
trains on as if it had never stopped. Nothing here is a file (`rank_files`).
"""

import copy
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.optim.optimizer import Optimizer

from flodl_core.errors import CheckpointError
from flodl_core.ids import Rank
from flodl_core.training.build import Trainee
from flodl_core.training.generators import put_back_generators, take_generators
from flodl_core.training.plain_state import Plain, to_plain

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProgress:
    """Where a rank stands, in numbers."""

    rank: Rank
    version: int
    """Of the consensus that the rank's state goes with."""
    global_step: int
    """Batches of the cohort as the rank last knew them; the bundle has the exact number."""
    pass_index: int | None
    """The pass for which its compute was seeded; None before the first batch."""
    batches: int
    """Batches of this rank since it began."""
    uncommitted_samples: int = 0
    """Drawn since the last snapshot; 0 at a commit."""


def take_state(trainee: Trainee, progress: RankProgress) -> dict[str, Plain]:
    """Return all that only this rank has; CPU tensors are the live ones, not copies.

    Raises:
        CheckpointError: the optimizer keeps what a file cannot hold; it is named.
        SchemaDriftError: an integer or bool buffer is gone, or has another shape or dtype.
    """
    context = trainee.context
    return {
        "schema_version": SCHEMA_VERSION,
        "rank": int(progress.rank),
        "version": progress.version,
        "global_step": progress.global_step,
        "pass_index": progress.pass_index,
        "batches": progress.batches,
        "uncommitted_samples": progress.uncommitted_samples,
        "device_type": context.device.type,
        "optimizer_class": _class_of(context.optimizer),
        "optimizer": to_plain(context.optimizer.state_dict(), "optimizer"),
        "scaler": to_plain(context.scaler_state(), "scaler"),
        "steps_applied": context.steps_applied,
        "generators": to_plain(take_generators(context.device), "generators"),
        "locals": to_plain(trainee.layout.local_tensors(), "locals"),
    }


def check_state(saved: dict[str, Plain], trainee: Trainee, *, version: int) -> None:
    """Refuse a state that this rank cannot go on from; nothing is changed.

    Args:
        saved: as read from a file of this host.
        trainee: as built.
        version: of the consensus that the run goes on from.

    Raises:
        CheckpointError: it is of another schema, version, optimizer, model or kind of device.
    """
    if saved.get("schema_version") != SCHEMA_VERSION:
        raise CheckpointError(
            f"it has schema {saved.get('schema_version')}, ours is {SCHEMA_VERSION}"
        )
    if saved["version"] != version:
        raise CheckpointError(f"it goes with version {saved['version']}, not {version}")
    context = trainee.context
    if saved["device_type"] != context.device.type:
        raise CheckpointError(f"it is of a {saved['device_type']}, not of a {context.device.type}")
    optimizer = context.optimizer
    if saved["optimizer_class"] != _class_of(optimizer):
        raise CheckpointError(
            f"it is of {saved['optimizer_class']}, and the job uses {_class_of(optimizer)}"
        )
    _check_optimizer(saved["optimizer"], optimizer)
    for name, tensor in trainee.layout.local_tensors().items():
        _check_like(f"buffer {name}", saved["locals"].get(name), tensor)


def put_back_state(saved: dict[str, Plain], trainee: Trainee) -> None:
    """Go on from a state that `check_state` let pass; after the consensus was adopted."""
    context = trainee.context
    _load_optimizer(saved["optimizer"], context.optimizer)
    context.load_scaler(saved["scaler"])
    context.steps_applied = saved["steps_applied"]
    with torch.no_grad():
        for name, tensor in trainee.layout.local_tensors().items():
            tensor.copy_(saved["locals"][name])
    put_back_generators(saved["generators"], context.device)


def _class_of(optimizer: Optimizer) -> str:
    return f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"


def _check_optimizer(saved: dict[str, Any], optimizer: Optimizer) -> None:
    """Compare groups and shapes, then let the optimizer itself try, and undo it."""
    ours, theirs = optimizer.param_groups, saved["param_groups"]
    sizes = [[len(group["params"]) for group in groups] for groups in (theirs, ours)]
    if sizes[0] != sizes[1]:
        raise CheckpointError(
            f"its optimizer has groups of {_numbers(sizes[0])} parameters, "
            f"the job's has {_numbers(sizes[1])}"
        )
    for key, param in _pair_up(saved, optimizer):
        for word, value in saved["state"].get(key, {}).items():
            tells_shape = isinstance(value, torch.Tensor) and value.dim() == param.dim() > 0
            if tells_shape and value.numel() not in (1, param.numel()):
                raise CheckpointError(
                    f"its {word} of parameter {key} has shape {tuple(value.shape)}, "
                    f"the parameter has {tuple(param.shape)}"
                )
    before = copy.deepcopy(optimizer.state_dict())
    try:
        _load_optimizer(saved, optimizer)
    except Exception as error:
        raise CheckpointError(
            f"the optimizer does not take it ({type(error).__name__}: {error})"
        ) from error
    finally:
        optimizer.state.clear()
        optimizer.load_state_dict(before)


def _load_optimizer(saved: dict[str, Any], optimizer: Optimizer) -> None:
    """Load a state; unlike the optimizer's own way, every tensor keeps its dtype."""
    optimizer.load_state_dict(saved)
    for key, param in _pair_up(saved, optimizer):
        for word, value in saved["state"].get(key, {}).items():
            loaded = optimizer.state[param].get(word)
            both = isinstance(value, torch.Tensor) and isinstance(loaded, torch.Tensor)
            if both and loaded.dtype != value.dtype:
                optimizer.state[param][word] = value.to(device=loaded.device)


def _pair_up(saved: dict[str, Any], optimizer: Optimizer) -> list[tuple[int, torch.Tensor]]:
    """Return each parameter with its number in a state dict."""
    return [
        (key, param)
        for theirs, ours in zip(saved["param_groups"], optimizer.param_groups, strict=True)
        for key, param in zip(theirs["params"], ours["params"], strict=True)
    ]


def _check_like(name: str, saved: object, own: torch.Tensor) -> None:
    if not isinstance(saved, torch.Tensor):
        raise CheckpointError(f"it does not hold {name}")
    if saved.shape != own.shape or saved.dtype != own.dtype:
        raise CheckpointError(
            f"its {name} is {saved.dtype} {list(saved.shape)}, "
            f"the model's is {own.dtype} {list(own.shape)}"
        )


def _numbers(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers)) or "no"
