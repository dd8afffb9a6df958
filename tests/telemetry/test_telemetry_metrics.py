import re
import subprocess
import sys

from prometheus_client.parser import text_string_to_metric_families
from telemetry_documents import (
    alert,
    document,
    epoch_state,
    in_training,
    rank_state,
    training,
)

from flodl_core.telemetry.metrics import METRICS, render_metrics
from flodl_core.telemetry.state import EndState, ResourceState


def samples(whole):
    """Every sample of the page: (name, labels without the run) → value."""
    found = {}
    for family in text_string_to_metric_families(render_metrics(whole).decode()):
        for sample in family.samples:
            labels = dict(sample.labels)
            assert labels.pop("run") == "00112233445566aa"
            found[sample.name, tuple(sorted(labels.items()))] = sample.value
    return found


def test_the_run_has_its_numbers_with_their_units():
    found = samples(in_training(at_s=12.5, training=training(loss=2.5, throughput=412.4)))
    assert found["flodl_uptime_seconds", ()] == 12.5
    assert found["flodl_loss", ()] == 2.5
    assert found["flodl_throughput_samples_per_second", ()] == 412.4
    assert found["flodl_samples_trained_total", ()] == 640
    assert found["flodl_last_sync_seconds", ()] == 0.01425
    assert found["flodl_run_info", (("mode", "cpu_sync"), ("name", "charlm"))] == 1


def test_each_rank_has_samples_with_its_number_and_host():
    uses = ResourceState(cpu_percent=93.5, ram_used_bytes=5_000_000)
    ranks = (rank_state(0, resources=uses), rank_state(2, ms_per_batch=60.0))
    found = samples(in_training(ranks=ranks))
    zero, two = (("host", "red"), ("rank", "0")), (("host", "blue"), ("rank", "2"))
    assert found["flodl_rank_batches_total", zero] == 10
    assert found["flodl_rank_cpu_percent", zero] == 93.5
    assert found["flodl_rank_batch_seconds", two] == 0.06
    assert ("flodl_rank_cpu_percent", two) not in found


def test_phase_and_states_are_counted_for_every_value():
    found = samples(in_training(ranks=(rank_state(0), rank_state(1, "lost"))))
    assert found["flodl_phase", (("phase", "training"),)] == 1
    assert found["flodl_phase", (("phase", "waiting"),)] == 0
    assert found["flodl_ranks", (("state", "lost"),)] == 1
    assert found["flodl_ranks", (("state", "held"),)] == 0


def test_what_is_absent_has_no_sample():
    names = {name for name, _ in samples(document())}
    assert "flodl_loss" not in names
    assert "flodl_exit_code" not in names
    assert "flodl_rank_batches_total" not in names
    assert samples(document(end=EndState(exit_code=3, reason="x")))["flodl_exit_code", ()] == 3


def test_scalars_are_those_of_the_last_finished_epoch():
    epochs = (epoch_state(0, scalars={"old": 1.0}), epoch_state(1, scalars={"accuracy": 0.5}))
    found = samples(in_training(epochs=epochs))
    assert found["flodl_epoch_scalar", (("name", "accuracy"),)] == 0.5
    assert ("flodl_epoch_scalar", (("name", "old"),)) not in found


def test_repeats_of_alerts_are_counted():
    alerts = (alert(), alert("nonfinite", count=4))
    assert samples(in_training(alerts=alerts))["flodl_alerts", ()] == 5


def test_names_are_once_and_have_base_units():
    names = [metric.name for metric in METRICS]
    assert len(names) == len(set(names))
    assert not [name for name in names if re.search(r"_(ms|s|mib|kib|total)$", name)]


def test_a_page_shows_nothing_of_the_process():
    assert b"python_" not in render_metrics(document())
    assert b"process_" not in render_metrics(document())


def test_a_launcher_that_is_never_scraped_does_not_load_the_library():
    code = "import sys, flodl_core.telemetry.metrics; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
