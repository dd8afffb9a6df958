"""The kernel behind `fused.Adopter`, apart so that Triton is imported only where it is used."""

# mypy: ignore-errors
# Triton compiles the source of this function; its arguments are pointers and numbers of the device.

import triton
import triton.language as tl


@triton.jit
def adopt_kernel(mine, theirs, partial, count, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):  # noqa: ANN001, ANN201, N803
    """Write `theirs` over `mine`; each program leaves its three sums in `partial`."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    pre_sum = tl.zeros((BLOCK,), dtype=tl.float64)
    post_sum = tl.zeros((BLOCK,), dtype=tl.float64)
    apart_sum = tl.zeros((BLOCK,), dtype=tl.float64)
    start = program.to(tl.int64) * BLOCK
    while start < count:
        at = start + tl.arange(0, BLOCK)
        inside = at < count
        pre = tl.load(mine + at, mask=inside, other=0.0)
        post = tl.load(theirs + at, mask=inside, other=0.0)
        apart = pre - post
        pre_sum += pre.to(tl.float64) * pre.to(tl.float64)
        post_sum += post.to(tl.float64) * post.to(tl.float64)
        apart_sum += apart.to(tl.float64) * apart.to(tl.float64)
        tl.store(mine + at, post, mask=inside)
        start += programs.to(tl.int64) * BLOCK
    tl.store(partial + program, tl.sum(pre_sum, axis=0))
    tl.store(partial + PROGRAMS + program, tl.sum(post_sum, axis=0))
    tl.store(partial + 2 * PROGRAMS + program, tl.sum(apart_sum, axis=0))
