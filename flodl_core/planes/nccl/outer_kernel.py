"""The kernel behind `outer_step.OuterAdopter`, apart as `adopt_kernel` is.

Products and sums stay apart here (no fused multiply-add: `enable_fp_fusion=False` at the
launch), so that every rank, and torch's own operations, come to the same bits.
"""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN201, N803, PLR0913, SIM108
# Triton compiles the source of this function; its arguments are pointers and numbers of the
# device, as many as there are regions.

import triton
import triton.language as tl


@triton.jit
def outer_kernel(
    mine,
    average,
    previous,
    velocity,
    partial,
    fault,
    count,
    lr,
    momentum,
    LOOKS_AHEAD: tl.constexpr,
    LOOKS_ONLY: tl.constexpr,
    BLOCK: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """Step an average: first look whether all is finite, then, in another launch, write it.

    With LOOKS_ONLY, `fault` becomes 1 where a result is not finite. Without, `mine` and
    `previous` become the stepped values, `velocity` the new one; with a fault they become
    the average, and 0. Each program leaves its three sums in `partial`.
    """
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    pre_sum = tl.zeros((BLOCK,), dtype=tl.float64)
    post_sum = tl.zeros((BLOCK,), dtype=tl.float64)
    apart_sum = tl.zeros((BLOCK,), dtype=tl.float64)
    odd = tl.zeros((BLOCK,), dtype=tl.int32)
    is_faulty = False
    if not LOOKS_ONLY:
        is_faulty = tl.load(fault) != 0.0
    start = program.to(tl.int64) * BLOCK
    while start < count:
        at = start + tl.arange(0, BLOCK)
        inside = at < count
        mean = tl.load(average + at, mask=inside, other=0.0)
        old = tl.load(previous + at, mask=inside, other=0.0)
        before = tl.load(velocity + at, mask=inside, other=0.0)
        gradient = old - mean
        after = before * momentum + gradient
        if LOOKS_AHEAD:
            descent = (after * momentum + gradient) * lr
        else:
            descent = after * lr
        new = old - descent
        if LOOKS_ONLY:
            is_fine = (tl.abs(after) <= 3.4028234663852886e38) & (
                tl.abs(new) <= 3.4028234663852886e38
            )
            odd += tl.where(is_fine, 0, 1)
        else:
            new = tl.where(is_faulty, mean, new)
            after = tl.where(is_faulty, 0.0, after)
            pre = tl.load(mine + at, mask=inside, other=0.0)
            apart = pre - new
            pre_sum += pre.to(tl.float64) * pre.to(tl.float64)
            post_sum += new.to(tl.float64) * new.to(tl.float64)
            apart_sum += apart.to(tl.float64) * apart.to(tl.float64)
            tl.store(mine + at, new, mask=inside)
            tl.store(previous + at, new, mask=inside)
            tl.store(velocity + at, after, mask=inside)
        start += programs.to(tl.int64) * BLOCK
    if LOOKS_ONLY:
        if tl.sum(odd, axis=0) > 0:
            tl.store(fault, 1.0)
    else:
        tl.store(partial + program, tl.sum(pre_sum, axis=0))
        tl.store(partial + PROGRAMS + program, tl.sum(post_sum, axis=0))
        tl.store(partial + 2 * PROGRAMS + program, tl.sum(apart_sum, axis=0))
