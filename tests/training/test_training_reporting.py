"""What telling the run about a batch asks of the training thread.

What it costs there, behind a real step whose caches are cold, is measured by
`tests/bench/reporting.py` on a quiet machine: under ten microseconds. Here is counted what
does not depend on the machine: how many functions are called.
"""

import sys

import pytest
from training_reports import WINDOW, Told

MOST_CALLS = 22
"""A batch; there were 18 when this was written, those that make its row included."""
ROUNDS, WINDOWS = 10, 8


@pytest.mark.slow
@pytest.mark.processes
def test_a_report_is_one_row_and_asks_little_of_the_training_thread():
    told = Told()
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    try:
        for _ in range(ROUNDS):
            sys.setprofile(count)  # of this thread alone
            try:
                for number in range(WINDOWS * WINDOW):
                    told.tell(number, 0.5)
            finally:
                sys.setprofile(None)
            told.channel.flush()
    finally:
        told.finish()
    assert told.channel.step_count == told.batches == ROUNDS * WINDOWS * WINDOW
    assert told.channel.statistics().rows_waiting == 0
    assert calls / told.batches < MOST_CALLS, calls / told.batches
