"""The prober's process: ask torch what is here, or time one device at a job; print one line.

Started by `flodl probe` and by the placed process of another host, so that neither loads
torch. Whatever a job itself prints goes to standard error; the last line of standard output
is ours.
"""

import argparse

from pydantic import TypeAdapter

from flodl_core.net.children import own_environment
from flodl_core.net.parent_tie import tie_from_environment
from flodl_core.probe.facts import SoloRate, TorchFacts
from flodl_core.roles.answering import answer_in_one_line
from flodl_core.roles.orders import SoloOrder, read_order
from flodl_core.roles.process_end import end_process


def main() -> int:
    """Run the process; return its exit code."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--order-fd", type=int, help="a SoloOrder; facts are asked for without")
    order_fd = arguments.parse_args().order_fd
    tie_from_environment(own_environment())
    order = None if order_fd is None else read_order(order_fd, SoloOrder)
    if order is None:
        return answer_in_one_line(lambda: TypeAdapter(TorchFacts).dump_json(_facts()))
    return answer_in_one_line(lambda: TypeAdapter(SoloRate).dump_json(_measure(order)))


def _facts() -> TorchFacts:
    from flodl_core.training.torch_facts import read_torch

    return read_torch()


def _measure(order: SoloOrder) -> SoloRate:
    import torch

    from flodl_core.training.load import load_job
    from flodl_core.training.solo import measure_solo

    torch.set_num_threads(order.threads)
    job = load_job(order.job, path=order.job_path)
    return measure_solo(
        job,
        order.device,
        rank=order.rank,
        batch_size=order.batch_size or job.batch_size,
        micro_batch=order.micro_batch,
        budget_s=order.budget_s,
    )


if __name__ == "__main__":
    end_process(main())
