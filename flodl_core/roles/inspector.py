"""The inspector's process: build the job once, print its facts as one line of JSON, end.

Started by `inspection.ask_inspector` in launcher and agent. Whatever the job
itself prints goes to standard error; the last line of standard output is ours.
"""

import argparse
import os
import sys

from flodl_core.errors import FlodlError, JobError
from flodl_core.net.children import own_environment
from flodl_core.net.parent_tie import tie_from_environment
from flodl_core.roles.orders import InspectOrder, read_order


def main() -> int:
    """Run the process; return its exit code."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--order-fd", type=int, required=True)
    order_fd = arguments.parse_args().order_fd
    tie_from_environment(own_environment())
    order = read_order(order_fd, InspectOrder)
    answer = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        from flodl_core.training.inspection import facts_json, inspect_job

        line = facts_json(inspect_job(order.job, path=order.job_path))
    except FlodlError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except BaseException as error:
        text = " ".join(str(error).split())
        sys.stderr.write(f"error: {type(error).__name__}: {text}\n")
        return JobError.exit_code
    with os.fdopen(answer, "w") as out:
        out.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
