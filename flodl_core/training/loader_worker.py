"""A loader worker: one process that reads samples for one rank, until the rank has enough.

It imports the job and builds the data by itself, once, after it was forked, so that no
file or connection of the data is shared with another process. It has as many torch
threads as its rank, because the last bit of a sum depends on their number. An error in the data is
an answer; only a lost rank ends it early.
"""

import contextlib
import socket
import traceback
from typing import Final

import torch

from flodl_core.errors import FlodlError
from flodl_core.ids import ExitCode
from flodl_core.training.batch_codec import EncodedBatch
from flodl_core.training.inspection import build_dataset
from flodl_core.training.load import describe_error, load_job
from flodl_core.training.loader_wire import (
    LoaderOrder,
    receive_request,
    send_batch,
    send_failure,
    send_ready,
)
from flodl_core.training.samples import SampleReader
from flodl_core.training.sayable import sayable
from flodl_core.training.signatures import seed_generators

TRACEBACK_BYTES: Final = 64 * 1024
"""Of a traceback that goes to the rank's log."""


def serve(sock: socket.socket, order: LoaderOrder) -> int:
    """Read what the rank asks for until it closes the socket; return the exit code."""
    torch.set_num_threads(order.threads)
    with contextlib.suppress(ConnectionError):
        try:
            reader = _open_data(order)
        except (Exception, SystemExit) as error:
            send_failure(sock, describe_error(error), _traceback(error))
            return ExitCode.FAILED
        send_ready(sock)
        while (request := receive_request(sock)) is not None:
            place, ids = request
            try:
                batch = EncodedBatch(reader.read(place.pass_index, ids))
            except (Exception, SystemExit) as error:
                send_failure(sock, describe_error(error), _traceback(error))
            else:
                send_batch(sock, batch)
    return ExitCode.DONE


def _open_data(order: LoaderOrder) -> SampleReader:
    job = load_job(order.job, path=order.job_path)
    seed_generators(order.dataset_seed)
    return SampleReader(
        build_dataset(job, name=order.job.name),
        job.collate,
        seed=order.seed,
        n_samples=order.n_samples,
    )


def _traceback(error: BaseException) -> str:
    """Return the traceback; an error of ours says everything in its line."""
    if isinstance(error, FlodlError):
        return ""
    return sayable("".join(traceback.format_exception(error)), most_bytes=TRACEBACK_BYTES)
