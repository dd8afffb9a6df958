"""The recipe `digits` for more ranks than GPUs: each rank tells NCCL that it is a host of its own.

    flodl headless tests/bench/gpu/crowd_job.py:job --ranks 1 --target-ranks 2 --devices cuda:0 \\
        --nccl-interface lo --mode nccl_cadence
    flodl join --host other --job tests/bench/gpu/crowd_job.py:job --devices cuda:0 \\
        --nccl-interface lo

NCCL takes a GPU once a host. What hosts are is what NCCL_HOSTID says, so ranks that share a
GPU average through sockets, as between hosts: slowly, and with everything that a death
between hosts does.
"""

import os

from flodl_core.recipes import digits

os.environ.setdefault("NCCL_HOSTID", f"rank-of-{os.getpid()}")

job = digits.job
