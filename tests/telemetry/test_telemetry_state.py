import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from telemetry_documents import document, in_training, training

from flodl_core.errors import RemoteProtocolError
from flodl_core.telemetry.state import (
    SCHEMA_VERSION,
    StateDocument,
    json_schema,
    publish,
    read_document_untrusted,
)

TOP_LEVEL = {
    "schema_version", "run", "phase", "joined_ranks", "joined_hosts", "min_rank_start",
    "target_ranks", "window_remaining_s", "cap_remaining_s", "start_mode", "start_armed",
    "members", "training", "elche", "reduce", "ranks", "alerts",
}  # fmt: skip
RANK = {
    "rank", "host", "device", "state", "phase", "batch_count", "steps_in_window",
    "ms_per_batch", "share", "weight", "throughput", "loss", "divergence", "heartbeat_age_s",
    "heartbeat_ceiling_s", "progress_age_s", "progress_ceiling_s", "throttled", "resources",
}  # fmt: skip
REDUCE = {
    "state", "backend", "cycle", "version", "pending_s", "stall_ceiling_s", "last_sync_ms",
    "last_outcome", "bytes",
}  # fmt: skip
TRAINING = {
    "epoch", "epochs", "global_step", "samples_done", "samples_total", "loss", "throughput",
    "ideal_throughput", "eta_s",
}  # fmt: skip
MEMBER = {"host", "address", "ranks", "local_devices", "gpus", "torch_variant", "joined_at_s"}


def test_the_document_has_every_field_of_the_design():
    body = json.loads(publish(in_training()))
    assert body.keys() >= TOP_LEVEL
    assert body["run"].keys() >= {"id", "name", "mode", "mode_reason", "started_at", "uptime_s"}
    assert body["ranks"][0].keys() >= RANK
    assert body["reduce"].keys() >= REDUCE
    assert body["training"].keys() >= TRAINING
    assert body["members"][0].keys() >= MEMBER


def test_a_published_document_reads_back_as_itself():
    whole = in_training()
    assert read_document_untrusted(publish(whole)) == whole


def test_what_is_absent_is_null_and_never_zero():
    body = json.loads(publish(document()))
    assert body["target_ranks"] is None
    assert body["training"] is None
    assert body["window_remaining_s"] is None


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_published_as_null(loss):
    body = publish(in_training(training=training(loss=loss)))
    assert json.loads(body)["training"]["loss"] is None
    assert read_document_untrusted(body).training.loss is None


def test_a_reader_ignores_fields_that_it_does_not_know():
    body = json.loads(publish(document()))
    body["weather"] = "fair"
    body["run"]["mood"] = 3
    assert read_document_untrusted(json.dumps(body).encode()) == document()


def test_a_newer_schema_is_refused_and_says_so():
    body = json.loads(publish(document()))
    body["schema_version"] = SCHEMA_VERSION + 1
    with pytest.raises(RemoteProtocolError, match="newer than ours"):
        read_document_untrusted(json.dumps(body).encode())


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_the_protocol_error_only(body):
    with pytest.raises(RemoteProtocolError):
        read_document_untrusted(body)


def test_deeply_nested_json_is_refused():
    with pytest.raises(RemoteProtocolError):
        read_document_untrusted(b"[" * 100_000)


def test_a_document_cannot_be_changed():
    with pytest.raises(ValueError, match="frozen"):
        document().phase = "done"


def test_the_schema_describes_every_field_and_names_no_token():
    schema = json_schema()
    assert schema["properties"].keys() == StateDocument.model_fields.keys()
    names = set(schema["properties"])
    for part in schema["$defs"].values():
        names |= set(part.get("properties", {}))
    assert not {name for name in names if "token" in name or "salt" in name or "secret" in name}
