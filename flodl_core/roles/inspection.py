"""Asks a child process what the job is, so that launcher and agent load no torch."""

import contextlib
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

import anyio

from flodl_core.errors import JobError
from flodl_core.ids import ExitCode
from flodl_core.messages.job import JobFacts, JobRef
from flodl_core.roles.asking import NoAnswer, ask_child
from flodl_core.roles.orders import InspectOrder
from flodl_core.units import Seconds

_INSPECTOR = "flodl_core.roles.inspector"
_CAUSE_CHARS = 1000
_FRAME = re.compile(r'\s*File ".*", line \d+')

SEE_IT_ALONE = "run `flodl inspect-job` with the same job to see it alone"


class InspectionInterruptedError(JobError):
    """Somebody pressed Ctrl-C while the job was built."""

    exit_code = ExitCode.INTERRUPTED_SAVED


async def ask_inspector(
    job: JobRef,
    job_path: Path | None,
    *,
    env: Mapping[str, str],
    timeout_s: Seconds,
    alone: str = SEE_IT_ALONE,
) -> JobFacts:
    """Run the inspector and return what it found.

    Args:
        job: by its name.
        job_path: this host's copy of the file, where it is one.
        env: of the process.
        timeout_s: ceiling; past it the process is killed.
        alone: the fix where the process said nothing of ours.

    Raises:
        JobError: the job cannot be built; the inspector's own line says why.
        InspectionInterruptedError: SIGINT ended the wait.
    """
    order = InspectOrder(job=job, job_path=job_path)
    try:
        with _noting_interrupt() as noted:
            answer = await ask_child(
                _INSPECTOR, (order,), env=env, kind=JobFacts, timeout_s=timeout_s
            )
    except anyio.get_cancelled_exc_class():
        if not noted:
            raise
        raise InspectionInterruptedError(
            "interrupted while the job was inspected; nothing was started"
        ) from None
    except TimeoutError as error:
        raise JobError(
            f"job {job.name!r} was not built in {timeout_s:g} s",
            fix="make its model and data faster to build, or raise inspect_timeout_s",
        ) from error
    if isinstance(answer, NoAnswer):
        raise read_complaint(job, answer.said, ended=answer.ended, alone=alone)
    return answer


@contextlib.contextmanager
def _noting_interrupt() -> Iterator[list[int]]:
    """Yield a list that gets each SIGINT inside the block; who had it before gets it too."""
    noted: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield noted
        return

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, before)


def read_complaint(job: JobRef, complaint: str, *, ended: str, alone: str) -> JobError:
    """Return what an inspector left on standard error as our own error.

    Its own line says everything. Where it died before that, the last line is the cause
    as far as anybody knows, and the last frame of a traceback says where.
    """
    lines = [line for line in complaint.strip().splitlines() if line.strip()]
    starts = [number for number, line in enumerate(lines) if line.startswith("error: ")]
    if starts:
        said = lines[starts[-1] :]
        fix = next((line.split("Fix: ", 1)[1] for line in said if "Fix: " in line), "")
        return JobError(said[0].removeprefix("error: "), fix=fix)
    cause = " ".join(lines[-1].split())[-_CAUSE_CHARS:] if lines else ""
    frames = [line.strip() for line in lines if _FRAME.match(line)]
    where = f" ({frames[-1]})" if frames else ""
    return JobError(
        f"inspecting job {job.name!r} ended with {ended}" + (f": {cause}{where}" if cause else ""),
        fix=alone,
    )
