"""On a GPU: a save in mid-pass and a resume give the bits of one run, chance included."""

import pytest
import torch
from test_training_resume import Points, assert_same, job_of, run_in_one, run_in_two

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.slow,
    pytest.mark.timeout(180),
]


def on_gpu(optimizer, **changes):
    """A job with dropout, whose states and draws are the GPU's."""
    return job_of(dropout=0.3, optimizer=optimizer, dataset=Points, **changes)


def fused(params, lr):
    return torch.optim.AdamW(params, lr=torch.tensor(lr, device="cuda:0"), fused=True)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, fused])
def test_a_resume_on_a_gpu_gives_the_bits_of_one_run(tmp_path, optimizer):
    job, devices = on_gpu(optimizer), ("cuda:0",)
    whole = run_in_one(job, 1, devices=devices)
    assert_same(run_in_two(job, 1, tmp_path, devices=devices), whole)
    state = torch.load(tmp_path / "consensus.rank0.pt", weights_only=True)
    assert state["device_type"] == "cuda"
    assert state["optimizer"]["state"][0]["exp_avg"].device.type == "cpu"
    assert state["generators"]["device"].dtype == torch.uint8


def test_a_scaled_resume_on_a_gpu_gives_the_bits_of_one_run(tmp_path):
    job, devices = on_gpu(torch.optim.Adam, precision="float16"), ("cuda:0",)
    whole = run_in_one(job, 1, devices=devices)
    assert whole[0]["scale"] > 0
    assert_same(run_in_two(job, 1, tmp_path, devices=devices), whole)
