"""Asks one question of a child process, which answers with one line of JSON and ends.

What it is: the parent's side of `answering`; so the parent loads no torch.
What it is not: the words for a child that gave no answer; who asked knows what it was about.
Who drives it: `inspection` and `probing`.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import anyio
from pydantic import TypeAdapter, ValidationError

from flodl_core.net.children import (
    UNKILLABLE_S,
    Child,
    ExitStatus,
    await_killed,
    python_command,
    spawn,
)
from flodl_core.roles.orders import write_order
from flodl_core.units import Seconds

AnswerT = TypeVar("AnswerT")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoAnswer:
    """A child that ended without an answer that can be read."""

    said: str
    """What it left on standard error, or what is wrong with its answer."""
    ended: str
    """How it ended, such as `exit code 1`."""


async def ask_child(
    module: str,
    orders: Sequence[object],
    *,
    env: Mapping[str, str],
    kind: type[AnswerT],
    timeout_s: Seconds,
) -> AnswerT | NoAnswer:
    """Run a module's process and return its answer; it is dead or left behind afterwards.

    Args:
        module: whose `main` answers.
        orders: each becomes an option `--order-fd`.
        env: of the process.
        kind: of the answer.
        timeout_s: ceiling; past it the process is killed.

    Raises:
        TimeoutError: there is no answer in time.
    """
    fds = [write_order(order) for order in orders]
    words = [word for fd in fds for word in ("--order-fd", str(fd))]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            child = spawn(
                python_command(module, *words), env=env, pass_fds=fds, stdout=out, stderr=err
            )
        finally:
            for fd in fds:
                os.close(fd)
        status = await hear_child(child, timeout_s=timeout_s)
        out.seek(0)
        err.seek(0)
        lines, said = out.read().splitlines(), err.read().decode(errors="replace")
    if status.code == 0 and lines:
        try:
            return TypeAdapter(kind).validate_json(lines[-1])
        except ValidationError as error:
            said = str(error)
    return NoAnswer(said=said, ended=str(status))


async def hear_child(
    child: Child, *, timeout_s: Seconds, unkillable_s: Seconds = UNKILLABLE_S
) -> ExitStatus:
    """Wait for a child that answers, and end it however that goes.

    Args:
        child: as started.
        timeout_s: ceiling; past it the process is killed.
        unkillable_s: from SIGKILL to the moment it is left behind, if that does not end it.

    Raises:
        TimeoutError: it has not ended by itself in time.
    """
    try:
        with anyio.fail_after(timeout_s):
            return await child.wait()
    finally:
        child.kill_group()
        await await_killed(child.wait, ceiling_s=unkillable_s)
