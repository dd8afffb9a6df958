import json

from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.telemetry.journal import MAX_QUEUED, Journal, node_file, read_journal


def make(tmp_path, **given_):
    return Journal(tmp_path / "records", utc_iso=lambda: "2031-01-02T03:04:05Z", **given_)


def test_records_lie_in_a_file_of_their_node_with_version_time_and_path(tmp_path):
    journal = make(tmp_path)
    journal.append("root", {"kind": "run"})
    journal.append("root/red", {"kind": "host"})
    journal.append("root/red/rank3", {"kind": "window", "n": 4})
    journal.close()
    root = tmp_path / "records"
    assert json.loads((root / "root" / "red" / "rank3.jsonl").read_text()) == {
        "v": 1,
        "ts": "2031-01-02T03:04:05Z",
        "path": "root/red/rank3",
        "kind": "window",
        "n": 4,
    }
    assert (root / "root.jsonl").exists()
    assert (root / "root" / "red.jsonl").exists()


def test_nothing_is_written_before_a_flush(tmp_path):
    journal = make(tmp_path)
    journal.append("root", {"n": 1})
    assert not (tmp_path / "records").exists()
    journal.flush()
    journal.append("root", {"n": 2})
    assert [row["n"] for row in read_journal(tmp_path / "records")] == [1]
    journal.close()
    assert [row["n"] for row in read_journal(tmp_path / "records")] == [1, 2]


def test_a_full_queue_drops_the_oldest_and_counts(tmp_path):
    journal = make(tmp_path)
    for number in range(MAX_QUEUED + 3):
        journal.append("root", {"n": number})
    journal.close()
    assert journal.lost == 3
    assert next(read_journal(tmp_path / "records"))["n"] == 3


def test_a_node_is_bounded_and_keeps_the_newest(tmp_path):
    journal = make(tmp_path, limit_bytes=1000)
    for number in range(100):
        journal.append("root", {"n": number})
        journal.flush()
    journal.close()
    files = list((tmp_path / "records").rglob("root.jsonl*"))
    assert sum(path.stat().st_size for path in files) <= 1000
    numbers = [row["n"] for row in read_journal(tmp_path / "records")]
    assert numbers == list(range(numbers[0], 100))
    assert len(numbers) > 5


def test_a_disk_that_refuses_loses_records_and_nothing_else(tmp_path):
    (tmp_path / "records").write_text("in the way")
    journal = make(tmp_path)
    journal.append("root", {"n": 1})
    journal.append("root/red", {"n": 2})
    journal.flush()
    assert journal.lost == 2
    journal.close()


@settings(deadline=None)
@given(st.text(max_size=40))
def test_no_path_leaves_the_tree(tmp_path_factory, path):
    root = tmp_path_factory.getbasetemp() / "tree"
    assert root in node_file(root, path).parents


def test_values_that_json_does_not_know_are_written_as_text(tmp_path):
    journal = make(tmp_path)
    journal.append("root", {"where": tmp_path, "losses": (1.5, float("nan"))})
    journal.close()
    (row,) = read_journal(tmp_path / "records")
    assert row["where"] == str(tmp_path)
    assert row["losses"] == [1.5, None]


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    root = tmp_path / "records"
    root.mkdir()
    (root / "root.jsonl").write_text('{"n":1}\n[1]\n{"n":2')
    assert list(read_journal(root)) == [{"n": 1}]
