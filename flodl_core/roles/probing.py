"""Asks child processes what torch finds here and how fast a device is, one after another.

What it is: the parent's side of `roles.prober`.
What it is not: a judgement of the answers (`flodl_core.probe`).
Who drives it: `flodl probe`, and the placed process of another host.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import TypeVar

import anyio
from pydantic import TypeAdapter, ValidationError

from flodl_core.errors import FlodlError
from flodl_core.net.children import python_command, spawn
from flodl_core.probe.facts import SoloRate, TorchFacts
from flodl_core.roles.orders import SoloOrder, write_order
from flodl_core.units import Seconds

_PROBER = "flodl_core.roles.prober"

AnswerT = TypeVar("AnswerT")


class ProbeError(FlodlError):
    """A device or torch itself could not be looked at."""


async def ask_torch(env: Mapping[str, str], *, timeout_s: Seconds) -> TorchFacts:
    """Return what torch is here and what devices it has.

    Raises:
        ProbeError: torch cannot be loaded, or did not answer in time.
    """
    return await _ask((), env, kind=TorchFacts, timeout_s=timeout_s)


async def ask_solo(order: SoloOrder, env: Mapping[str, str], *, timeout_s: Seconds) -> SoloRate:
    """Return how fast a device is at a job.

    Args:
        order: what to measure.
        env: of the process.
        timeout_s: ceiling; building the job and measuring.

    Raises:
        ProbeError: the job fails there, or took too long.
    """
    return await _ask((order,), env, kind=SoloRate, timeout_s=timeout_s)


async def _ask(
    orders: Sequence[SoloOrder], env: Mapping[str, str], *, kind: type[AnswerT], timeout_s: Seconds
) -> AnswerT:
    """Run the prober, with an order or without, and return its answer."""
    fds = [write_order(order) for order in orders]
    words = [word for fd in fds for word in ("--order-fd", str(fd))]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = spawn(
                python_command(_PROBER, *words), env=env, pass_fds=fds, stdout=out, stderr=err
            )
        finally:
            for fd in fds:
                os.close(fd)
        try:
            with anyio.fail_after(timeout_s):
                status = await child.wait()
        except TimeoutError as error:
            raise ProbeError(
                f"no answer within {timeout_s:g} s",
                fix="look whether a driver hangs, or raise --inspect-timeout-s",
            ) from error
        finally:
            child.kill_group()
            with anyio.CancelScope(shield=True):
                await child.wait()
        out.seek(0)
        err.seek(0)
        lines, said = out.read().splitlines(), err.read().decode(errors="replace")
    if status.code == 0 and lines:
        try:
            return TypeAdapter(kind).validate_json(lines[-1])
        except ValidationError as error:
            said = str(error)
    raise _complaint(said, ended=str(status))


def _complaint(said: str, *, ended: str) -> ProbeError:
    """Return what the process left on standard error as our own error."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    if not told:
        return ProbeError(f"ended with {ended}: {lines[-1] if lines else 'without a word'}")
    rest = lines[told[-1] + 1 :]
    fix = next((line.removeprefix("Fix: ") for line in rest if line.startswith("Fix: ")), "")
    return ProbeError(lines[told[-1]].removeprefix("error: "), fix=fix)
