"""The functions of a job as flodl calls them: what each is given, and what it must return.

A function that cannot be called so is refused when the job is made; a wrong answer is
one line with the fix at the first call. Nothing is called here except to read a sample.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from torch import nn

from flodl_core.errors import JobError, kind_of

ARGUMENTS: Final[Mapping[str, tuple[str, ...]]] = {
    "model": (),
    "optimizer": ("model",),
    "dataset": (),
    "step": ("ctx", "batch"),
    "collate": ("samples",),
    "eval_dataset": (),
    "metric": ("model", "batches", "device"),
    "scheduler": ("global_step",),
    "report": ("model",),
    "on_device": ("model", "device"),
    "compile": ("model",),
}
"""What each function of a job is called with, by position."""

STEP_FIX: Final = "return the mean loss of its samples, a number or a tensor of one element"
METRIC_FIX: Final = "return one number, the score of the model over all batches"
SCHEDULER_FIX: Final = "return the factor of the learning rate, a number"


def check_callable(name: str, function: object) -> None:
    """Refuse a function of a job that cannot be called as flodl calls it.

    Args:
        name: of the job's field.
        function: its value.

    Raises:
        JobError: it is no function, or takes other arguments; both are said.
    """
    if not callable(function):
        raise JobError(
            f"TrainJob.{name} is {kind_of(function)}, not a function",
            fix=f"give a function that builds it, such as {name}=lambda: …"
            if not ARGUMENTS[name]
            else f"give a function {called(name)}",
        )
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*ARGUMENTS[name])
    except TypeError as error:
        raise JobError(
            f"TrainJob.{name} cannot be called as {called(name)}: {error}",
            fix=f"let it take {_listed(ARGUMENTS[name])}",
        ) from error


def called(name: str) -> str:
    """Return how a function of a job is called, such as `step(ctx, batch)`."""
    return f"{name}({', '.join(ARGUMENTS[name])})"


def number_of(name: str, answer: object, *, fix: str) -> float:
    """Return what a function of a job answered as a number, finite or not.

    Raises:
        JobError: it is no number.
    """
    if isinstance(answer, torch.Tensor):
        answer = answer.detach()
    require_number(name, answer, fix=fix)
    try:
        return float(answer)  # type: ignore[arg-type] # it was just asked
    except (TypeError, ValueError, OverflowError):
        raise _no_number(name, answer, fix) from None


def require_number(name: str, answer: object, *, fix: str) -> None:
    """Refuse what can be seen to be no number without reading it, which may wait for a device.

    Raises:
        JobError: it is no number.
    """
    if isinstance(answer, torch.Tensor):
        is_number = answer.numel() == 1 and not answer.is_complex()
    else:
        is_number = hasattr(type(answer), "__float__")
    if not is_number:
        raise _no_number(name, answer, fix)


def _no_number(name: str, answer: object, fix: str) -> JobError:
    return JobError(f"{name} returned {described(answer)}", fix=fix)


def module_of(name: str, answer: object) -> nn.Module:
    """Return the model that a function of a job answered.

    Raises:
        JobError: it is none.
    """
    if isinstance(answer, nn.Module):
        return answer
    raise JobError(f"{name} returned {described(answer)}", fix="return the model")


def described(answer: object) -> str:
    """Return what an answer is, in a few words."""
    if answer is None:
        return "None"
    shape = getattr(answer, "shape", None)
    if isinstance(shape, tuple):
        kind = "tensor" if isinstance(answer, torch.Tensor) else type(answer).__name__
        dtype = getattr(answer, "dtype", "")
        return f"a {kind} of shape {tuple(shape)} and type {dtype}"
    if isinstance(answer, str):
        return f"the text {answer[:40]!r}"
    return kind_of(answer)


def read_sample(dataset: Any, index: int) -> Any:  # noqa: ANN401 - a sample is what the job says
    """Return one sample; an error on the way tells which it was.

    Raises:
        BaseException: whatever reading it raises, with a note of the sample.
    """
    try:
        return dataset[index]
    except BaseException as error:
        _note(error, f"reading sample {index} of {type(dataset).__name__}")
        raise


def join_samples(collate: Callable[[list[Any]], Any], samples: list[Any]) -> Any:  # noqa: ANN401
    """Return the batch that the samples make; an error on the way tells that it came here.

    Raises:
        BaseException: whatever making it raises, with a note.
    """
    try:
        return collate(samples)
    except BaseException as error:
        _note(error, f"making a batch of {len(samples)} samples")
        raise


class NamedSamples:
    """A dataset whose errors tell the sample."""

    def __init__(self, dataset: Any) -> None:  # noqa: ANN401 - map-style
        self._dataset = dataset

    def __len__(self) -> int:
        """Return how many samples there are."""
        return len(self._dataset)

    def __getitem__(self, index: int, /) -> Any:  # noqa: ANN401 - a sample is what the job says
        """Return one sample."""
        return read_sample(self._dataset, index)


def _note(error: BaseException, doing: str) -> None:
    if not any(note.startswith(("reading sample", "making a batch")) for note in notes_of(error)):
        error.add_note(doing)


def notes_of(error: BaseException) -> tuple[str, ...]:
    """Return the notes that were added to an error."""
    return tuple(getattr(error, "__notes__", ()))


def _listed(names: tuple[str, ...]) -> str:
    return f"{len(names)} by position: {', '.join(names)}" if names else "no arguments"
