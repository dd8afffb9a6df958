"""Asks child processes what torch finds here and how fast a device is, one after another.

What it is: the parent's side of `roles.prober`.
What it is not: a judgement of the answers (`flodl_core.probe`).
Who drives it: `flodl probe`, and the placed process of another host.
"""

from collections.abc import Mapping, Sequence

from flodl_core.errors import FlodlError
from flodl_core.probe.facts import SoloRate, TorchFacts
from flodl_core.roles.asking import AnswerT, NoAnswer, ask_child
from flodl_core.roles.orders import SoloOrder
from flodl_core.units import Seconds

_PROBER = "flodl_core.roles.prober"


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
    try:
        answer = await ask_child(_PROBER, orders, env=env, kind=kind, timeout_s=timeout_s)
    except TimeoutError as error:
        raise ProbeError(
            f"no answer within {timeout_s:g} s",
            fix="look whether a driver hangs, or raise --inspect-timeout-s",
        ) from error
    if isinstance(answer, NoAnswer):
        raise _complaint(answer.said, ended=answer.ended)
    return answer


def _complaint(said: str, *, ended: str) -> ProbeError:
    """Return what the process left on standard error as our own error."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    told = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    if not told:
        return ProbeError(f"ended with {ended}: {lines[-1] if lines else 'without a word'}")
    rest = lines[told[-1] + 1 :]
    fix = next((line.removeprefix("Fix: ") for line in rest if line.startswith("Fix: ")), "")
    return ProbeError(lines[told[-1]].removeprefix("error: "), fix=fix)
