import json
import math
import resource
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from telemetry_documents import (
    alert,
    document,
    epoch_state,
    in_training,
    member,
    rank_state,
    training,
)

from flodl_core.ids import ClusterPhase, RankPhase
from flodl_core.telemetry import state as model
from flodl_core.telemetry.journal import Journal
from flodl_core.telemetry.recorded_form import rounded_document
from flodl_core.telemetry.recorder import KEY_EVERY, RunRecorder
from flodl_core.telemetry.records import EventKind, EventRecord, WindowRecord
from flodl_core.telemetry.replay import NoRecordError, RecordedRun

NOW = "2031-01-02T03:04:05Z"


def recorder_at(path: Path, **given_) -> RunRecorder:
    return RunRecorder(Journal(path / "records", utc_iso=lambda: NOW, **given_))


def window(seq: int, at_s: float, **given_) -> WindowRecord:
    return WindowRecord(
        **{
            "seq": seq,
            "at": NOW,
            "uptime_s": at_s,
            "cycle": seq,
            "version": seq,
            "epoch": 0,
            "global_step": seq * 4,
            "outcome": "committed",
            "samples_done": seq * 64,
            "samples_total": 6000,
            "batch_counts": (5, 60),
            "ms_per_batch": (60.25, None),
            **given_,
        }
    )


def event(seq: int, at_s: float, **given_) -> EventRecord:
    return EventRecord(
        **{
            "seq": seq,
            "at": NOW,
            "uptime_s": at_s,
            "kind": EventKind.LIFECYCLE,
            "severity": "info",
            "name": "phase",
            "text": "the window opened",
            **given_,
        }
    )


def story() -> list[model.StateDocument]:
    """A run of two hosts in a handful of documents, a second apart."""
    done = in_training(6.0, end=model.EndState(exit_code=0, reason="finished"))
    return [
        document(at_s=0.0, window_remaining_s=300.0),
        document(at_s=1.0, window_remaining_s=299.04, members=(member(),), joined_ranks=2),
        in_training(2.0),
        in_training(3.0, ranks=tuple(rank_state(i, batch_count=11 + i) for i in range(4))),
        in_training(4.0, epochs=(epoch_state(0),), training=training(loss=2.1234567)),
        in_training(
            5.0,
            epochs=(epoch_state(0), epoch_state(1)),
            alerts=(alert(),),
            ranks=(*(rank_state(i) for i in range(3)), rank_state(3, "lost", cause="signal 9")),
        ),
        done.model_copy(update={"phase": ClusterPhase.DONE}),
    ]


def record(path: Path, documents: list[model.StateDocument], **given_) -> None:
    recorder = recorder_at(path, **given_)
    for one in documents:
        recorder.take_document(one)
        recorder.write()
    recorder.close()


def test_a_replay_shows_every_document_that_was_recorded(tmp_path):
    record(tmp_path, story())
    run = RecordedRun.open(tmp_path)
    assert list(run.times()) == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert run.length_s == 6.0
    for one in story():
        assert run.document_at(one.run.uptime_s) == rounded_document(one)
    assert run.missing == ()


def test_a_moment_between_two_documents_shows_the_older_one(tmp_path):
    record(tmp_path, story())
    run = RecordedRun.open(tmp_path)
    assert run.document_at(3.7).run.uptime_s == 3.0
    assert run.document_at(99.0).end.reason == "finished"
    assert run.document_at(-0.1) is None


def test_documents_between_two_moments_leave_out_the_first_and_hold_the_last(tmp_path):
    record(tmp_path, story())
    run = RecordedRun.open(tmp_path)
    assert [one.run.uptime_s for one in run.documents_between(2.0, 5.0)] == [3.0, 4.0, 5.0]
    assert list(run.documents_between(6.0, 9.0)) == []


def test_ages_keep_a_tenth_of_a_second_and_other_numbers_six_digits():
    rank = rank_state(heartbeat_age_s=0.4444, loss=2.123456789, share=1 / 3)
    kept = rounded_document(in_training(ranks=(rank,), training=training(loss=math.nan)))
    assert kept.ranks[0].heartbeat_age_s == 0.4
    assert kept.ranks[0].loss == 2.12346
    assert kept.ranks[0].share == 0.333333
    assert kept.training.loss is None


def test_the_tree_has_a_file_for_the_run_each_host_and_each_rank(tmp_path):
    record(tmp_path, story())
    found = {str(one.relative_to(tmp_path)) for one in tmp_path.rglob("*.jsonl")}
    ranks = {"red/rank0", "red/rank1", "blue/rank2", "blue/rank3"}
    assert found == {"records/root.jsonl", "records/root/red.jsonl", "records/root/blue.jsonl"} | {
        f"records/root/{one}.jsonl" for one in ranks
    }
    (line, *_) = (tmp_path / "records/root/red.jsonl").read_text().splitlines()
    assert json.loads(line)["key"]["host"] == "red"


def test_what_did_not_change_is_not_written_again(tmp_path):
    record(tmp_path, [in_training(float(second)) for second in range(50)])
    assert len((tmp_path / "records/root/red.jsonl").read_text().splitlines()) == 1
    assert len((tmp_path / "records/root.jsonl").read_text().splitlines()) == 50


def test_documents_are_kept_once_a_second_and_at_once_when_something_is_told(tmp_path):
    plain = [in_training(10 + step / 4) for step in range(9)]
    news = in_training(12.3, alerts=(alert(),))
    record(tmp_path, [*plain, news, in_training(12.5, alerts=(alert(),))])
    assert list(RecordedRun.open(tmp_path).times()) == [10.0, 11.0, 12.0, 12.3, 12.5]


def test_a_whole_piece_stands_every_few_lines(tmp_path):
    record(tmp_path, [in_training(float(second)) for second in range(3 * KEY_EVERY)])
    lines = (tmp_path / "records/root.jsonl").read_text().splitlines()
    whole = [number for number, line in enumerate(lines) if '"key":' in line]
    assert whole == [0, KEY_EVERY, 2 * KEY_EVERY]


def test_hosts_whose_names_are_the_same_as_files_keep_files_of_their_own(tmp_path):
    hosts = ("a b", "a-b", "a/b", "../etc", "")
    members = tuple(member(host, (number,)) for number, host in enumerate(hosts))
    ranks = tuple(rank_state(n, host=host, batch_count=n) for n, host in enumerate(hosts))
    whole = in_training(members=members, ranks=ranks)
    record(tmp_path, [whole, in_training(12.0, members=members, ranks=ranks[::-1])])
    run = RecordedRun.open(tmp_path)
    assert run.document_at(10.0) == rounded_document(whole)
    assert [rank.rank for rank in run.document_at(12.0).ranks] == [4, 3, 2, 1, 0]
    assert all((tmp_path / "records") in one.parents for one in tmp_path.rglob("*.jsonl"))


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path):
    record(tmp_path, story())
    for path in tmp_path.rglob("*.jsonl"):
        text = path.read_text()
        path.write_text(text[: len(text) - 9])
    run = RecordedRun.open(tmp_path)
    assert run.length_s == 5.0
    assert run.document_at(2.0).joined_ranks == 4


def test_a_rank_whose_file_is_gone_is_left_out_and_named(tmp_path):
    record(tmp_path, story())
    (tmp_path / "records/root/blue/rank3.jsonl").unlink()
    run = RecordedRun.open(tmp_path)
    assert [rank.rank for rank in run.document_at(4.0).ranks] == [0, 1, 2]
    assert run.missing == ("there is no record of blue/rank3",)


def test_a_line_that_is_gone_hides_a_rank_until_its_next_whole_piece(tmp_path):
    ranks = [(rank_state(0, batch_count=number, host="red"),) for number in range(KEY_EVERY + 5)]
    record(tmp_path, [in_training(float(n), ranks=one) for n, one in enumerate(ranks)])
    path = tmp_path / "records/root/red/rank0.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:3] + lines[4:]))
    run = RecordedRun.open(tmp_path)
    assert run.document_at(2.0).ranks[0].batch_count == 2
    assert run.document_at(3.0).ranks[0].batch_count == 2
    assert run.document_at(50.0).ranks == ()
    assert run.document_at(KEY_EVERY).ranks[0].batch_count == KEY_EVERY


def test_a_run_whose_oldest_lines_were_dropped_begins_at_a_whole_piece(tmp_path):
    documents = [
        in_training(float(n), ranks=tuple(rank_state(i, batch_count=n) for i in range(2)))
        for n in range(10 * KEY_EVERY)
    ]
    record(tmp_path, documents, limit_bytes=120_000)
    run = RecordedRun.open(tmp_path)
    assert (tmp_path / "records/root.jsonl.old").exists()
    assert run.start_s > 0
    assert run.start_s % KEY_EVERY == 0
    assert run.length_s == 10 * KEY_EVERY - 1
    whole = [one for one in documents if one.run.uptime_s >= 9 * KEY_EVERY]
    for one in (whole[0], whole[-1], whole[7], whole[6]):
        assert run.document_at(one.run.uptime_s) == rounded_document(one)
    assert any("cannot be rebuilt" in sentence for sentence in run.missing)


def test_events_and_windows_are_those_up_to_the_moment(tmp_path):
    recorder = recorder_at(tmp_path)
    for second in range(10):
        recorder.take_event(event(second + 1, second + 0.5))
        recorder.take_window(window(second + 1, second + 0.25))
        recorder.take_document(in_training(float(second)))
        recorder.write()
    recorder.close()
    run = RecordedRun.open(tmp_path)
    assert [one.seq for one in run.events_until(3.5).records] == [1, 2, 3, 4]
    assert run.events_until(3.5).records[-1] == event(4, 3.5)
    assert [one.seq for one in run.events_until(9.0, since=6).records] == [7, 8, 9]
    page = run.windows_until(2.3)
    assert page.records == (window(1, 0.25), window(2, 1.25), window(3, 2.25))
    assert (page.oldest_seq, page.newest_seq) == (1, 3)
    assert run.windows_until(0.1).records == ()


def test_windows_that_follow_fast_get_a_share_of_the_disk(tmp_path):
    recorder = recorder_at(tmp_path)
    recorder.take_document(in_training(0.0))
    for number in range(4000):
        recorder.take_window(window(number + 1, number / 100))
        if number % 100 == 0:
            recorder.write()
    recorder.close()
    written = (tmp_path / "records/root.jsonl").stat().st_size
    assert written < 40 * 1024 * 2
    page = RecordedRun.open(tmp_path).windows_until(99.0)
    assert page.records[-1].seq == 4000
    assert len(page.records) > 40


@pytest.mark.parametrize("content", [None, "", "no record\n", '{"v":1}\n{"kind":"document"\n'])
def test_a_directory_without_a_record_is_refused_by_name(tmp_path, content):
    if content is not None:
        (tmp_path / "records").mkdir()
        (tmp_path / "records" / "root.jsonl").write_text(content)
    with pytest.raises(NoRecordError, match="holds no record of a run"):
        RecordedRun.open(tmp_path)


class LossyJournal(Journal):
    """Loses every line while it is told to."""

    is_losing = False

    def append(self, path, record):
        if self.is_losing:
            self.lost += 1
        else:
            super().append(path, record)


def test_lines_that_are_lost_on_the_way_to_the_disk_begin_whole_pieces_again(tmp_path):
    journal = LossyJournal(tmp_path / "records", utc_iso=lambda: NOW)
    recorder = RunRecorder(journal)
    for second, is_losing in enumerate((False, True, False)):
        journal.is_losing = is_losing
        ranks = (rank_state(0, batch_count=70 + second),)
        recorder.take_document(in_training(float(second), ranks=ranks))
        recorder.write()
    recorder.close()
    run = RecordedRun.open(tmp_path)
    assert list(run.times()) == [0.0, 2.0]
    assert run.document_at(2.0).ranks[0].batch_count == 72


def test_a_line_that_a_full_disk_cut_off_costs_no_whole_piece_behind_it(tmp_path):
    """The disk takes nine more bytes of the rank's file, and none of any longer one."""
    recorder = RunRecorder(Journal(tmp_path / "records", utc_iso=lambda: NOW))
    path = tmp_path / "records/root/red/rank0.jsonl"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for second in range(3):
        ranks = (rank_state(0, batch_count=70 + second, host="red"),)
        recorder.take_document(in_training(float(second), ranks=ranks))
        most = path.stat().st_size + 9 if second == 1 else limits[0]
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
        recorder.write()
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    recorder.close()
    assert len(path.read_text().splitlines()[1]) == 9
    assert RecordedRun.open(tmp_path).document_at(2.0).ranks[0].batch_count == 72


_NAMES = st.text(max_size=12)
_WORDS = st.text(max_size=30)
_NUMBERS = st.none() | st.floats()
_SOME = st.integers(0, 2**53)


def _rows(kind, **fields):
    return st.builds(kind, **fields)


_RANK = {
    "device": _NAMES,
    "state": st.sampled_from(RankPhase),
    "batch_count": _SOME,
    "loss": _NUMBERS,
    "share": _NUMBERS,
    "heartbeat_age_s": _NUMBERS,
    "resources": st.none() | _rows(model.ResourceState, cpu_percent=_NUMBERS),
}
_MEMBER = {
    "address": _NAMES,
    "ranks": st.lists(st.integers(0, 9), max_size=3).map(tuple),
    "local_devices": st.lists(_NAMES, max_size=3).map(tuple),
    "joined_at_s": st.floats(0, 1e6),
}


@st.composite
def documents(draw, at_s: float) -> model.StateDocument:
    hosts = draw(st.lists(_NAMES, max_size=4, unique=True))
    members = tuple(draw(_rows(model.MemberState, host=st.just(host), **_MEMBER)) for host in hosts)
    ranks = tuple(
        draw(_rows(model.RankState, rank=st.just(n), host=st.sampled_from(hosts), **_RANK))
        for n in range(draw(st.integers(0, 4)) if hosts else 0)
    )
    return document(
        draw(st.sampled_from(ClusterPhase)),
        at_s,
        members=members,
        ranks=ranks,
        target_ranks=draw(st.none() | _SOME),
        window_remaining_s=draw(_NUMBERS),
        training=draw(st.none() | st.builds(training, loss=_NUMBERS, eta_s=_NUMBERS)),
        epochs=tuple(
            draw(st.lists(st.builds(epoch_state, st.integers(0, 5), loss=_NUMBERS), max_size=4))
        ),
        alerts=tuple(draw(st.lists(st.builds(alert, detail=_WORDS), max_size=3))),
        report=draw(st.none() | _WORDS),
    )


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_documents_come_back_as_they_were(tmp_path_factory, data):
    told = [data.draw(documents(float(second))) for second in range(data.draw(st.integers(1, 6)))]
    path = tmp_path_factory.mktemp("run")
    record(path, told)
    run = RecordedRun.open(path)
    order = data.draw(st.permutations(told))
    assert len(run.times()) == len(told)
    for one in order:
        assert run.document_at(one.run.uptime_s) == rounded_document(one)


@pytest.mark.slow
def test_the_index_of_a_long_run_is_small(tmp_path):
    lines = [
        f'{{"v":1,"ts":"{NOW}","path":"root","kind":"document","n":{n},"p":{n - 1},"t":{n}.0,'
        f'"{"key" if n % KEY_EVERY == 1 else "set"}":{{}}}}\n'
        for n in range(1, 86_401)
    ]
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "root.jsonl").write_text("".join(lines))
    del lines
    tracemalloc.start()
    run = RecordedRun.open(tmp_path)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(run.times()) == 86_400
    assert held < 3_000_000
