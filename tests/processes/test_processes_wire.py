"""Real runs whose hosts exchange bf16 differences in place of f32 values."""

from pathlib import Path

import pytest
import torch
from aftermath import meta_of
from safetensors.torch import load_file

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(300)]

WORDS = (
    *("synthetic", "--mode", "cpu_sync", "--hosts", "2", "--ranks-per-host", "2", "--seed", "3"),
    *("--job-arg", "samples=800", "--job-arg", "params=3000", "--job-arg", "epochs=1"),
)


def tensors(stem: Path) -> dict[str, torch.Tensor]:
    return load_file(f"{stem}.safetensors")


@pytest.mark.long
def test_a_narrow_wire_trains_the_same_within_its_digits(launch) -> None:
    saved = []
    for wire in ("f32", "bf16"):
        run = launch(*WORDS, "--wire-dtype", wire)
        assert run.finish() == 0
        assert run.summary["samples_dropped"] == 0
        assert meta_of(run.stem)["sync_round"] == run.summary["syncs"]
        saved.append((tensors(run.stem), run.summary["metric"]))
    (wide, wide_metric), (narrow, narrow_metric) = saved
    for name, value in narrow.items():
        if value.is_floating_point():
            torch.testing.assert_close(value, wide[name], rtol=5e-3, atol=5e-4)
    assert any(not torch.equal(value, narrow[name]) for name, value in wide.items())
    assert narrow_metric == pytest.approx(wide_metric, rel=0.05)
