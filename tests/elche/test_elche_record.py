"""The saved cadence: there and back, and a damaged file."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flodl_core.elche.record import ElchePhase, ElcheRecord
from flodl_core.errors import CheckpointError
from flodl_core.ids import Rank

MS = st.floats(0, 1e9)
RECORDS = st.builds(
    ElcheRecord,
    anchor=st.integers(1, 10**6),
    anchor_rank=st.none() | st.integers(0, 99).map(Rank),
    smoothed_ms_per_batch=st.lists(MS, max_size=5).map(tuple),
    phase=st.sampled_from(ElchePhase),
    calibration_count=st.integers(0, 10**6),
    trend_history=st.lists(st.floats(-1e9, 1e9), max_size=5).map(tuple),
    guard=st.sampled_from(["level", "growth", "none", "lab.guards:Mine"]),
)
GOOD = {
    "anchor": 10,
    "anchor_rank": 2,
    "smoothed_ms_per_batch": [5, 5.5, 60.0],
    "phase": "stable",
    "calibration_count": 7,
    "trend_history": [0.1],
    "guard": "growth",
}
OPTIONAL = ("trend_history", "guard")


@pytest.mark.slow
@given(RECORDS)
def test_a_record_survives_json(record):
    assert ElcheRecord.from_values(json.loads(json.dumps(record.to_values()))) == record


def test_a_record_without_history_is_read():
    values = {key: value for key, value in GOOD.items() if key not in OPTIONAL}
    record = ElcheRecord.from_values(values)
    assert (record.trend_history, record.guard) == ((), "level")
    assert record.smoothed_ms_per_batch == (5.0, 5.5, 60.0)


@pytest.mark.parametrize(
    "damage",
    [
        {"anchor": 0},
        {"anchor": True},
        {"anchor": "10"},
        {"anchor_rank": -1},
        {"anchor_rank": 1.0},
        {"smoothed_ms_per_batch": None},
        {"smoothed_ms_per_batch": "5"},
        {"smoothed_ms_per_batch": [-1.0]},
        {"smoothed_ms_per_batch": [float("nan")]},
        {"smoothed_ms_per_batch": [True]},
        {"phase": "asleep"},
        {"calibration_count": -1},
        {"trend_history": [None]},
    ],
)
def test_a_damaged_record_is_refused(damage):
    with pytest.raises(CheckpointError, match="resume without it"):
        ElcheRecord.from_values(GOOD | damage)


@pytest.mark.parametrize("missing", [key for key in GOOD if key not in OPTIONAL])
def test_a_record_that_lacks_a_value_is_refused(missing):
    with pytest.raises(CheckpointError):
        ElcheRecord.from_values({key: value for key, value in GOOD.items() if key != missing})
