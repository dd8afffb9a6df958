"""A rank's process: torch, the training loop in the main thread, the bridge beside it.

Started by the launcher for its own host and by the agent of any other, never by
hand. It ends with 0 after Exiting, with 1 when training failed here, and with 7
when the run was lost around it.
"""

import argparse
import faulthandler
import signal
import socket
import sys

from flodl_core.net import clock
from flodl_core.net.children import own_environment
from flodl_core.net.parent_tie import tie_from_environment
from flodl_core.roles.bridge import Bridge
from flodl_core.roles.orders import RankOrder, read_order
from flodl_core.roles.process_end import THREADS_END_S, end_process, threads_left
from flodl_core.telemetry.logs import Level, ProcessLog
from flodl_core.training.channel import RankChannel
from flodl_core.units import Seconds

RELAY_FIRST_S: Seconds = 5.0
"""A relay takes a silent controller for gone this much earlier than its ranks do."""


def main() -> int:
    """Run the process; return its exit code."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("process")
    arguments.add_argument("--host")
    arguments.add_argument("--order-fd", type=int, required=True)
    tie_from_environment(own_environment())
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    order = read_order(arguments.parse_args().order_fd, RankOrder)
    log = ProcessLog(
        order.log_path,
        host=order.host,
        process=f"rank{order.rank}",
        utc_iso=clock.utc_iso,
        level=Level.DEBUG if order.is_verbose else Level.INFO,
    )
    log.info("started", device=order.device, threads=order.threads)
    channel = RankChannel(order.rank)
    control = socket.socket(fileno=order.control_fd)
    spec = order.envelope.spec
    bridge = Bridge(
        control,
        channel,
        heartbeat_s=spec.heartbeat_interval_s,
        silence_s=spec.heartbeat_timeout_s + (RELAY_FIRST_S if order.has_relay else 0.0),
    )
    bridge.start()
    code = _train(order, channel, log)
    bridge.finish()
    left = threads_left(now=clock.now)
    if left:
        log.warning("threads_left", names=", ".join(left), waited_s=THREADS_END_S)
    log.info("ended", code=code)
    log.close()
    if left:
        end_process(code)
    return code


def _train(order: RankOrder, channel: RankChannel, log: ProcessLog) -> int:
    """Import torch, take this rank's seat and train; return the exit code."""
    from flodl_core.errors import FlodlError
    from flodl_core.ids import ExitCode
    from flodl_core.messages.timing import Exiting
    from flodl_core.planes.star_client import StarClient
    from flodl_core.training.device_use import DeviceWatch
    from flodl_core.training.load import JobSource, load_job
    from flodl_core.training.seat import Seat, share_cores
    from flodl_core.training.worker import RankWorker

    envelope = order.envelope
    try:
        seat = Seat(
            envelope=envelope,
            rank=order.rank,
            source=JobSource(order.job, order.job_path),
            loader_workers=order.loader_workers,
        )
        share_cores(seat)
        job = load_job(order.job, path=order.job_path)
        star = StarClient(
            socket.socket(fileno=order.data_fd),
            envelope.geometry,
            order.rank,
            envelope.world_size,
        )
        port = None
        if envelope.spec.mode.uses_nccl:
            from flodl_core.roles.rank_fabric import make_port

            port = make_port(order, seat, channel, log)
    except FlodlError as error:
        log.exception("could_not_begin", error)
        channel.post(Exiting(rank=order.rank, error=error.happened))
        return ExitCode.FAILED
    watch = DeviceWatch(channel, order.device)
    watch.start()
    worker = RankWorker(seat, job, star=star, channel=channel, log=log, nccl=port)
    code = worker.run()
    watch.stop()
    star.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
