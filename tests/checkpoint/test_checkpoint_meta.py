import hashlib
import json

import pytest
from checkpoint_examples import facts
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.checkpoint.meta import (
    BundleMeta,
    FileEntry,
    describe_save,
    meta_body,
    read_meta_untrusted,
)
from flodl_core.coordinator.facts import Arrangement, EpochCoverage, EpochFacts, SaveFacts
from flodl_core.dispatch.ranges import Range
from flodl_core.errors import CheckpointError
from flodl_core.ids import Mode, RunId, SaveReason
from flodl_core.messages.job import JobRef, RunSpec


def meta():
    return BundleMeta(
        **facts().model_dump(),
        bundle_id="b",
        files=(FileEntry(suffix=".safetensors", sha256="00", nbytes=8, host="red"),),
    )


def test_a_meta_file_reads_back_as_itself():
    body = meta().model_dump_json().encode()
    assert read_meta_untrusted(body, path="ck.meta.json") == meta()


def test_fields_that_are_not_known_are_ignored_and_missing_ones_named():
    row = json.loads(meta().model_dump_json())
    row["weather"] = "fair"
    assert read_meta_untrusted(json.dumps(row).encode(), path="x") == meta()
    del row["sync_round"]
    with pytest.raises(CheckpointError, match="sync_round"):
        read_meta_untrusted(json.dumps(row).encode(), path="x")


def test_the_digest_is_that_of_the_file_with_zeros_in_its_place():
    body = meta_body(meta())
    digest = read_meta_untrusted(body, path="x").meta_sha256
    assert body.count(digest.encode()) == 1
    assert hashlib.sha256(body.replace(digest.encode(), b"0" * 64)).hexdigest() == digest


@settings(deadline=None)
@given(st.data())
def test_a_bit_that_flipped_is_an_error_or_is_in_a_name_that_says_nothing_else(data):
    body = bytearray(meta_body(meta()))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = read_meta_untrusted(bytes(body), path="x")
    except CheckpointError:
        return
    assert found.meta_sha256 is None
    assert found == meta()


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_arbitrary_bytes_raise_the_checkpoint_error_only(body):
    with pytest.raises(CheckpointError):
        read_meta_untrusted(body, path="x")


def test_an_entry_is_found_by_its_suffix():
    assert meta().entry(".safetensors").nbytes == 8
    assert meta().entry(".outer.safetensors") is None


def test_the_coordinators_facts_become_the_meta_file():
    spec = RunSpec(
        run_id=RunId("00112233445566aa"),
        mode=Mode.CPU_SYNC,
        job=JobRef(kind="recipe", name="charlm", args={}),
        n_samples=1000,
        batch_size=16,
        epochs=4,
        epoch_splits=2,
        seed=5,
        gamma=1.0,
        wire_dtype="float32",
        heartbeat_interval_s=1.0,
        heartbeat_timeout_s=30.0,
        progress_timeout_s=300.0,
        stall_timeout_s=300.0,
        rendezvous_timeout_s=120.0,
        save_path="ck",
    )
    told = describe_save(
        SaveFacts(
            epoch=3,
            epochs=8,
            epoch_splits=2,
            global_step=120,
            sync_round=30,
            world_size=4,
            ranks_alive=3,
            seed=5,
            batch_size=16,
            n_samples=1000,
            samples_trained=1920,
            samples_dropped=16,
            coverage=(
                EpochCoverage(3, 496, (Range(500, 64), Range(900, 96)), (Range(564, 16),), 9),
            ),
            syncs=28,
            arrangement=Arrangement(held=((Range(900, 96),), (), (Range(500, 64),), ())),
            finished=(EpochFacts(2, 1, "2 (pass 1, split 1/2)", 0.5, 496, 0, 1.5, 8, 0.25, "acc"),),
        ),
        spec,
        reason=SaveReason.GRACEFUL_SHUTDOWN,
        host="red",
        created_at="2031-01-02T03:04:05Z",
    )
    assert (told.epoch, told.global_step, told.sync_round, told.ranks_alive) == (3, 120, 30, 3)
    assert (told.job, told.mode, told.reason) == ("charlm", "cpu_sync", "graceful_shutdown")
    assert told.coverage.model_dump(mode="json") == {
        "seed": 5,
        "batch_size": 16,
        "epoch_splits": 2,
        "n_samples": 1000,
        "per_epoch": [
            {
                "epoch": 3,
                "total_samples": 496,
                "uncovered_ranges": [[500, 64], [900, 96]],
                "dropped_ranges": [[564, 16]],
                "first_cycle": 9,
            }
        ],
        "arrangement": {
            "held": [[[900, 96]], [], [[500, 64]], []],
            "reserved": [],
            "returned": [],
        },
    }
    assert told.syncs == 28
    assert [(one.epoch, one.metric) for one in told.finished_epochs] == [(2, 0.25)]
