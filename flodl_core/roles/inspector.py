"""The inspector's process: build the job once, print its facts as one line of JSON, end.

Started by `inspection.ask_inspector` in launcher and agent. Whatever the job
itself prints goes to standard error; the last line of standard output is ours.
"""

import argparse

from flodl_core.net.children import own_environment
from flodl_core.net.parent_tie import tie_from_environment
from flodl_core.roles.answering import answer_in_one_line
from flodl_core.roles.orders import InspectOrder, read_order
from flodl_core.roles.process_end import end_process


def main() -> int:
    """Run the process; return its exit code."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--order-fd", type=int, required=True)
    order_fd = arguments.parse_args().order_fd
    tie_from_environment(own_environment())
    order = read_order(order_fd, InspectOrder)
    return answer_in_one_line(lambda: _facts(order))


def _facts(order: InspectOrder) -> bytes:
    from flodl_core.training.inspection import facts_json, inspect_job

    return facts_json(inspect_job(order.job, path=order.job_path)).encode()


if __name__ == "__main__":
    end_process(main())
