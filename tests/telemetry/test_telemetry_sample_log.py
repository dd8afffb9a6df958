import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.coordinator.effects import SampleEntry, SampleStatus
from flodl_core.dispatch.permutation import Permutation
from flodl_core.dispatch.ranges import Range
from flodl_core.ids import Cycle, Rank
from flodl_core.telemetry.sample_log import SampleLog, count_ids


def entry(ranges, *, pass_index=0, epoch=0, cycle=7, rank=2, status="trained", reason=""):
    return SampleEntry(
        pass_index=pass_index,
        epoch=epoch,
        cycle=Cycle(cycle),
        rank=Rank(rank),
        status=SampleStatus(status),
        reason=reason,
        ranges=tuple(Range(offset, size) for offset, size in ranges),
    )


def rows(log):
    return [json.loads(line) for line in log.path.read_text().splitlines()]


def test_a_commit_is_a_line_an_entry_with_the_ids_that_lie_in_its_ranges(tmp_path):
    log = SampleLog(tmp_path / "deep" / "samples.jsonl", n_samples=100, seed=5)
    assert log.record([entry([(10, 4), (50, 2)])])
    order = Permutation(100, 5, 0).ids(0, 100).tolist()
    assert rows(log) == [
        {
            "pass": 0,
            "epoch": 0,
            "cycle": 7,
            "rank": 2,
            "status": "trained",
            "reason": None,
            "ranges": [[10, 4], [50, 2]],
            "ids": order[10:14] + order[50:52],
        }
    ]
    log.close()


def test_lines_are_on_disk_at_each_commit(tmp_path):
    log = SampleLog(tmp_path / "s.jsonl", n_samples=10, seed=5)
    for cycle in (1, 2, 3):
        log.record([entry([(cycle, 1)], cycle=cycle)])
        assert [row["cycle"] for row in rows(log)] == list(range(1, cycle + 1))
    log.close()


def test_dropped_samples_say_why_and_are_counted_apart(tmp_path):
    log = SampleLog(tmp_path / "s.jsonl", n_samples=10, seed=5)
    log.record([entry([(0, 4)]), entry([(4, 3)], status="dropped", reason="non_finite")])
    assert [(row["status"], row["reason"]) for row in rows(log)] == [
        ("trained", None),
        ("dropped", "non_finite"),
    ]
    assert (log.trained, log.dropped) == (4, 3)
    assert sum(count_ids(log.path, status=SampleStatus.DROPPED)[0].values()) == 3
    log.close()


@settings(deadline=None, max_examples=30)
@given(
    n=st.integers(1, 60),
    seed=st.integers(0, 2**40),
    cuts=st.lists(st.integers(0, 60), max_size=8),
    passes=st.integers(1, 4),
)
def test_ranges_that_cover_a_pass_once_name_every_id_once(n, seed, cuts, passes, tmp_path_factory):
    log = SampleLog(tmp_path_factory.mktemp("s") / "s.jsonl", n_samples=n, seed=seed)
    edges = sorted({0, n, *(cut for cut in cuts if cut < n)})
    for number in range(passes):
        for begin, end in itertools.pairwise(edges):
            log.record([entry([(begin, end - begin)], pass_index=number, epoch=number)])
    log.close()
    assert count_ids(log.path) == {number: dict.fromkeys(range(n), 1) for number in range(passes)}


def test_passes_have_orders_of_their_own_in_any_sequence(tmp_path):
    log = SampleLog(tmp_path / "s.jsonl", n_samples=40, seed=1)
    for number in (0, 1, 2, 0, 3, 1):
        log.record([entry([(0, 40)], pass_index=number)])
    found = rows(log)
    assert found[0]["ids"] == found[3]["ids"]
    assert found[1]["ids"] == found[5]["ids"]
    assert found[0]["ids"] != found[1]["ids"]
    log.close()


def test_an_older_log_at_the_path_is_replaced(tmp_path):
    path = tmp_path / "s.jsonl"
    path.write_text("older\n")
    SampleLog(path, n_samples=3, seed=1).close()
    assert path.read_text() == ""


def test_a_failed_write_is_remembered_and_not_raised(tmp_path):
    log = SampleLog(tmp_path / "s.jsonl", n_samples=3, seed=1)
    log.close()
    log.close()
    assert not log.record([entry([(0, 1)])])
    assert "closed" in log.last_error


def test_a_log_that_cannot_be_opened_is_an_error_at_the_start(tmp_path):
    with pytest.raises(OSError, match="directory"):
        SampleLog(tmp_path, n_samples=3, seed=1)
