"""Stopping places inside relay and launcher, where no rank can stand for them.

mid_bucket: the first bucket of a params round is out, the second is not. round_end: the
root's word that the params round ended is about to be passed on. saving: the bundle is
about to be written. recording: records are about to be written, this time and from then on.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from chaos_parking import ME, park

SECOND = 1


def in_star_relay(module: ModuleType) -> None:
    """Let the relay stop between two buckets, and before it passes a RoundEnd on."""
    if ME != "relay":
        return
    relay: Any = module.StarRelay
    send_bucket, on_message = relay._send_bucket, relay.on_message

    def stop_and_send(self: object, frame: Any, values: memoryview) -> None:
        if frame.round == "params" and frame.index == SECOND:
            park("mid_bucket")
        send_bucket(self, frame, values)

    def stop_and_take(self: object, message: object) -> bool:
        if getattr(message, "round", None) == "params":
            park("round_end")
        took: bool = on_message(self, message)
        return took

    relay._send_bucket, relay.on_message = stop_and_send, stop_and_take


def in_root_cycle(module: ModuleType) -> None:
    """Let the root stop between two buckets, and after it told the coordinator of a round."""
    if ME != "launcher":
        return
    cycles: Any = module.RootCycles
    former: Any = module.BucketFormer
    form, begin = former.form, cycles.__init__

    def stop_and_form(self: object, plan: Any, index: int, **rest: Any) -> object:
        if plan.round == "params" and index == SECOND:
            park("mid_bucket")
        return form(self, plan, index, **rest)

    def begin_with_stop(self: object, *args: Any, reports: Any, **rest: Any) -> None:
        report: Callable[[Any], None] = reports[0]

        def report_and_stop(ended: Any) -> None:
            report(ended)
            if ended.round == "params":
                park("round_end")

        begin(self, *args, reports=(report_and_stop, *reports[1:]), **rest)

    former.form, cycles.__init__ = stop_and_form, begin_with_stop


def in_saving(module: ModuleType) -> None:
    """Let the launcher stop before it writes a bundle."""
    write: Callable[..., object] = module.write_bundle  # type: ignore[attr-defined]

    def stop_and_write(*args: Any, **rest: Any) -> object:
        park("saving")
        return write(*args, **rest)

    module.write_bundle = stop_and_write  # type: ignore[attr-defined]


def in_recorder(module: ModuleType) -> None:
    """Let the launcher's disk stop to answer where records are written."""
    if ME != "launcher":
        return
    recorder: Any = module.RunRecorder
    write, close = recorder.write, recorder.close

    def stop_and_write(self: object) -> None:
        park("recording", always=True)
        write(self)

    def stop_and_close(self: object) -> None:
        park("recording", always=True)
        close(self)

    recorder.write, recorder.close = stop_and_write, stop_and_close
