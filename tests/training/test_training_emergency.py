"""What a rank leaves when the controller vanished: exactly its own tensors, and no more claims."""

import dataclasses
import json

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from training_cohort import Cohort, MemoryLog, envelope_for
from training_late import late_worker
from training_models import Odd, laid_out

from flodl_core.dispatch.pacer import RankPacer
from flodl_core.errors import CheckpointError, RunLostError
from flodl_core.ids import SaveReason, SyncOutcome
from flodl_core.messages.control import ShutdownWithSave
from flodl_core.messages.job import ResumeSpec
from flodl_core.training.channel import RankChannel
from flodl_core.training.controller_loss import ControllerLoss
from flodl_core.training.emergency import LastWords, write_emergency
from flodl_core.training.job import TrainJob
from flodl_core.training.local_buffers import (
    pack_local_buffers,
    pack_tensor,
    restore_local_buffers,
    unpack_tensor,
)
from flodl_core.training.seat import Seat

ORDER = ShutdownWithSave(reason=SaveReason.CONTROLLER_LOST)
LOST = RunLostError("the data plane of this host ended")


class Numbers:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.tensor([float(index)])


def small_job():
    def step(ctx, batch):
        loss = ctx.model(batch).mean()
        ctx.backward(loss)
        ctx.optimizer_step()
        return loss

    return TrainJob(
        model=lambda: nn.Linear(1, 2),
        optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.1),
        dataset=Numbers,
        step=step,
        batch_size=2,
    )


def seat_at(path, **spec):
    envelope = envelope_for(small_job(), 2, save_path=str(path / "model"), **spec)
    return Seat(envelope=envelope, rank=1)


WORDS = LastWords(
    error="the controller is gone",
    version=9,
    global_step=40,
    epoch=2,
    samples_since_commit=6,
    batches=51,
)


def test_every_tensor_is_there_with_its_own_bits(tmp_path):
    model = Odd()
    with torch.no_grad():
        model.scalar.fill_(torch.nan)
    path = write_emergency(seat_at(tmp_path), model, WORDS)
    loaded, own = load_file(path), model.state_dict()
    assert loaded.keys() == own.keys()
    for name, value in own.items():
        assert loaded[name].dtype == value.dtype, name
        same = (
            torch.equal(loaded[name].view(torch.uint8), value.contiguous().view(torch.uint8))
            if (value.dim())
            else str(loaded[name]) == str(value)
        )
        assert same, name


def test_the_record_says_that_it_is_no_consensus_and_how_far_it_is(tmp_path):
    path = write_emergency(seat_at(tmp_path), nn.Linear(2, 2), WORDS)
    told = json.loads((tmp_path / "model.rank1.emergency.json").read_text())
    assert told["is_consensus"] is False
    assert told["what"].startswith("not a consensus")
    assert told["reason"] == "controller_lost"
    assert (told["rank"], told["world_size"], told["host"]) == (1, 2, "here")
    assert (told["version"], told["samples_since_commit"], told["batches"]) == (9, 6, 51)
    assert told["file"] == path.name == "model.rank1.emergency.safetensors"
    assert told["nbytes"] == path.stat().st_size
    assert told["left_out"] == []


def test_a_tensor_that_no_file_takes_is_named(tmp_path):
    model = nn.Module()
    model.register_buffer("small", torch.zeros(3, dtype=torch.float8_e4m3fn))
    model.register_buffer("pairs", torch.zeros(2, dtype=torch.complex128))
    path = write_emergency(seat_at(tmp_path), model, WORDS)
    assert load_file(path)["pairs"].shape == (2, 2)
    told = json.loads((tmp_path / "model.rank1.emergency.json").read_text())
    assert told["left_out"] == ["small"]


def loss_at(path, **spec):
    seat, channel, log = seat_at(path, **spec), RankChannel(1), MemoryLog()
    return ControllerLoss(seat, channel, RankPacer(1, 2), log), channel, log


def left(path):
    return sorted(one.name for one in path.iterdir())


def test_a_rank_that_is_asked_leaves_its_parameters(tmp_path):
    loss, channel, log = loss_at(tmp_path)
    loss.note_ended(5, SyncOutcome.COMMITTED)
    loss.note_offered(4)
    with pytest.raises(RunLostError):
        loss.heed(ORDER)
    channel.close("the launcher or relay is gone")
    loss.leave_words(nn.Linear(1, 1), LOST)
    told = json.loads((tmp_path / "model.rank1.emergency.json").read_text())
    assert (told["version"], told["samples_since_commit"]) == (5, 4)
    assert log.named("emergency_written")


def test_the_word_is_found_behind_the_end_of_the_data_plane(tmp_path):
    loss, channel, _ = loss_at(tmp_path)
    loss.note_ended(5, SyncOutcome.COMMITTED)
    channel.deliver(ORDER)
    channel.close("the launcher or relay is gone")
    loss.leave_words(nn.Linear(1, 1), LOST)
    assert left(tmp_path) == ["model.rank1.emergency.json", "model.rank1.emergency.safetensors"]


def test_a_rank_that_nobody_asked_leaves_nothing(tmp_path):
    loss, channel, _ = loss_at(tmp_path)
    loss.note_ended(5, SyncOutcome.COMMITTED)
    channel.close("the launcher or relay is gone")
    loss.leave_words(nn.Linear(1, 1), LOST)
    assert left(tmp_path) == []


def test_a_rank_that_never_adopted_anything_leaves_nothing(tmp_path):
    loss, channel, _ = loss_at(tmp_path)
    loss.note_ended(0, SyncOutcome.UNREALIZED)
    channel.deliver(ORDER)
    channel.close("the launcher or relay is gone")
    loss.leave_words(nn.Linear(1, 1), LOST)
    assert left(tmp_path) == []


def test_the_first_version_of_a_resumed_run_is_that_of_its_bundle(tmp_path):
    resume = ResumeSpec(stem="x", bundle_id="x", sync_round=31, global_step=1, rank_files=())
    loss, channel, _ = loss_at(tmp_path, resume=resume)
    loss.note_ended(0, SyncOutcome.COMMITTED)
    channel.deliver(ORDER)
    channel.close("gone")
    loss.leave_words(nn.Linear(1, 1), LOST)
    assert json.loads((tmp_path / "model.rank1.emergency.json").read_text())["version"] == 31


def test_a_folder_that_takes_nothing_is_logged(tmp_path):
    (tmp_path / "file").write_text("in the way")
    loss, channel, log = loss_at(tmp_path / "file")
    loss.note_ended(5, SyncOutcome.COMMITTED)
    channel.deliver(ORDER)
    channel.close("gone")
    loss.leave_words(nn.Linear(1, 1), LOST)
    assert isinstance(log.named("emergency_failed")[0]["raised"], CheckpointError)


def test_a_rank_in_training_that_is_asked_ends_with_the_code_of_a_lost_run(tmp_path):
    with Cohort(small_job(), 1, save_path=str(tmp_path / "model")) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=1)
        cohort.send(0, ORDER)
        cohort.channels[0].close("the launcher or relay is gone")
        cohort.threads[0].join(10)
        weight = cohort.model(0).weight.detach().clone()
    assert cohort.codes == [7]
    assert torch.equal(load_file(tmp_path / "model.rank0.emergency.safetensors")["weight"], weight)
    told = json.loads((tmp_path / "model.rank0.emergency.json").read_text())
    assert (told["version"], told["samples_since_commit"]) == (1, 0)


def test_a_batch_whose_loss_is_still_to_come_counts_in_what_is_left(tmp_path):
    steps = []
    job = small_job()

    def step(ctx, batch):
        steps.append(1)
        if len(steps) == 3:
            cohort.send(0, ORDER)
        return job.step(ctx, batch)

    kind = {"worker": late_worker([]), "save_path": str(tmp_path / "model")}
    with Cohort(dataclasses.replace(job, step=step), 1, **kind) as cohort:
        cohort.meet()
        cohort.send_window(4)
        cohort.threads[0].join(10)
    assert (cohort.codes, len(steps)) == ([7], 3)
    told = json.loads((tmp_path / "model.rank0.emergency.json").read_text())
    assert (told["batches"], told["samples_since_commit"]) == (3, 6)


def test_integer_and_bool_buffers_come_back_as_they_were_packed():
    model = Odd()
    layout, _ = laid_out(model)
    packed = pack_local_buffers(layout)
    with torch.no_grad():
        model.counter.zero_()
        model.mask.zero_()
    restore_local_buffers(layout, packed)
    assert model.counter.item() == 2**53 + 1
    assert model.mask.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda blobs: blobs.pop("mask"), "the bundle has no integer or bool buffer 'mask'"),
        (
            lambda blobs: blobs.update(other=blobs["mask"]),
            "the model has no integer or bool buffer 'other'",
        ),
        (
            lambda blobs: blobs.update(mask=pack_tensor(torch.ones(4, dtype=torch.bool))),
            "buffer 'mask' is bool [4] in the bundle, and bool [3] in the model",
        ),
        (
            lambda blobs: blobs.update(mask=pack_tensor(torch.ones(3, dtype=torch.int8))),
            "buffer 'mask' is int8 [3] in the bundle, and bool [3] in the model",
        ),
    ],
)
def test_buffers_of_another_model_are_refused_whole(change, why):
    model = Odd()
    layout, _ = laid_out(model)
    blobs = {**pack_local_buffers(layout), "counter": pack_tensor(torch.tensor(5))}
    change(blobs)
    with pytest.raises(CheckpointError) as refused:
        restore_local_buffers(layout, blobs)
    assert refused.value.happened == why
    assert model.counter.item() == 2**53 + 1


def test_bytes_that_are_no_tensor_are_refused():
    blob = pack_tensor(torch.arange(3))
    for changed, why in (
        (type(blob)(dtype="Tensor", shape=(3,), data=blob.data), "which torch has not"),
        (type(blob)(dtype="int64", shape=(4,), data=blob.data), "came with 24 bytes, 32 were"),
    ):
        with pytest.raises(CheckpointError, match=why):
            unpack_tensor("n", changed)
    assert unpack_tensor("n", pack_tensor(torch.empty(0, 2, dtype=torch.int16))).shape == (0, 2)
