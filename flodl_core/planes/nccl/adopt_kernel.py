"""The kernels behind `fused`, apart so that Triton is imported only where it is used."""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, N803
# Triton compiles the source of these functions; their arguments are pointers and numbers of the
# device.

import triton
import triton.language as tl


@triton.jit
def finite_kernel(values, sick, count, BLOCK: tl.constexpr):
    """Store NaN in `sick` if a value is not finite; leave it alone otherwise."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    start = program.to(tl.int64) * BLOCK
    while start < count:
        at = start + tl.arange(0, BLOCK)
        total += tl.load(values + at, mask=at < count, other=0.0) * 0.0
        start += programs.to(tl.int64) * BLOCK
    found = tl.sum(total, axis=0)
    if found != found:
        tl.store(sick, found.to(tl.float64))


@triton.jit
def adopt_kernel(mine, theirs, partial, count, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """Write `theirs` over `mine`; each program leaves its three sums in `partial`."""
    program = tl.program_id(0)
    pre_sum = tl.zeros((BLOCK,), dtype=tl.float64)
    post_sum = tl.zeros((BLOCK,), dtype=tl.float64)
    apart_sum = tl.zeros((BLOCK,), dtype=tl.float64)
    first = program.to(tl.int64) * BLOCK
    for start in tl.range(first, count, PROGRAMS * BLOCK, num_stages=1):
        at = start + tl.arange(0, BLOCK)
        inside = at < count
        pre = tl.load(mine + at, mask=inside, other=0.0)
        post = tl.load(theirs + at, mask=inside, other=0.0)
        apart = (pre - post).to(tl.float64)
        tl.store(mine + at, post, mask=inside)
        pre_wide = pre.to(tl.float64)
        post_wide = post.to(tl.float64)
        pre_sum += pre_wide * pre_wide
        post_sum += post_wide * post_wide
        apart_sum += apart * apart
    tl.store(partial + program, tl.sum(pre_sum, axis=0))
    tl.store(partial + PROGRAMS + program, tl.sum(post_sum, axis=0))
    tl.store(partial + 2 * PROGRAMS + program, tl.sum(apart_sum, axis=0))
