"""How an agent dials."""

import math

import pytest

from flodl_core.errors import RefusedError, TransientJoinError
from flodl_core.net.dial import (
    DialPolicy,
    dial,
    dial_policy,
    persist_pause_s,
    scaled_deadline_s,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("scale", "attempts"), [(1.0, 60), (0.1, 6), (0.11, 7), (0.5, 30), (2.5, 150)]
)
def test_the_scale_changes_the_number_of_attempts_and_not_the_pause(scale, attempts):
    policy = dial_policy(scale)
    assert (policy.attempts, policy.pause_s) == (attempts, 0.5)


@pytest.mark.parametrize("scale", [0.0, 0.09, -1.0, math.inf, math.nan])
def test_a_scale_that_is_not_finite_or_too_small_is_an_error(scale):
    with pytest.raises(ValueError, match=r"at least 0\.1"):
        dial_policy(scale)
    with pytest.raises(ValueError, match=r"at least 0\.1"):
        scaled_deadline_s(1, scale)


@pytest.mark.parametrize(
    ("base", "scale", "seconds"), [(10, 1.0, 10), (10, 0.1, 1), (0.5, 0.1, 1), (3, 1.5, 5)]
)
def test_a_scaled_deadline_is_in_whole_seconds_and_at_least_one(base, scale, seconds):
    assert scaled_deadline_s(base, scale) == seconds


@pytest.mark.parametrize("values", [{"attempts": 0}, {"pause_s": -1.0}, {"pause_s": math.inf}])
def test_a_policy_without_an_attempt_or_with_a_bad_pause_is_an_error(values):
    with pytest.raises(ValueError, match="needed"):
        DialPolicy(**values)


async def test_a_transient_failure_is_tried_again_until_it_succeeds():
    calls, failed = [], []

    async def attempt():
        calls.append(1)
        if len(calls) < 3:
            raise TransientJoinError("nobody")
        return "link"

    policy = DialPolicy(attempts=5, pause_s=0)
    assert await dial(attempt, policy, on_failed=failed.append) == "link"
    assert [(one.number, one.attempts) for one in failed] == [(1, 5), (2, 5)]


async def test_the_last_failure_is_the_caller_s():
    calls = []

    async def attempt():
        calls.append(1)
        raise TransientJoinError(f"attempt {len(calls)}")

    with pytest.raises(TransientJoinError, match="attempt 4"):
        await dial(attempt, DialPolicy(attempts=4, pause_s=0))
    assert len(calls) == 4


async def test_a_refusal_for_good_is_not_tried_again():
    calls = []

    async def attempt():
        calls.append(1)
        raise RefusedError("wrong model")

    with pytest.raises(RefusedError):
        await dial(attempt, DialPolicy(attempts=4, pause_s=0))
    assert len(calls) == 1


def test_a_host_for_every_run_pauses_from_five_seconds_to_a_minute():
    assert [persist_pause_s(failed, 1.0) for failed in range(8)] == [5, 5, 10, 20, 40, 60, 60, 60]
    assert persist_pause_s(10_000, 2.0) == 120
    assert persist_pause_s(0, 0.1) == 0.5
