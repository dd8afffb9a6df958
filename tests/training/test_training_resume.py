"""Ranks that go on from a save: the same bits as if they had never stopped."""

import dataclasses
import hashlib
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from resumed_cohort import meet_again, resume, save, train_span
from torch import nn
from training_cohort import Cohort, MemoryLog, envelope_for

from flodl_core.checkpoint.whole_file import WholeFile
from flodl_core.dispatch.actions import WriteCheckpoint
from flodl_core.errors import CheckpointError
from flodl_core.messages.control import Checkpoint
from flodl_core.messages.job import RankFileRef, ResumeSpec
from flodl_core.messages.timing import Exiting, TensorBlob
from flodl_core.planes.slot import Slot
from flodl_core.training.build import build_trainee
from flodl_core.training.job import TrainJob
from flodl_core.training.rank_files import save_state
from flodl_core.training.rank_saves import RankSaves, own_file
from flodl_core.training.rank_state import RankProgress, take_state
from flodl_core.training.seat import Seat


class Points:
    def __init__(self, count=96, *, chance=True):
        self.chance = chance
        draw = torch.Generator().manual_seed(3)
        self.x = torch.randn(count, 6, generator=draw)
        self.y = self.x.sum(1)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index]
        return x + 0.1 * torch.randn(6) if self.chance else x, self.y[index]


class Net(nn.Module):
    """Float buffers, an integer buffer that counts, and dropout."""

    def __init__(self, *, dropout=0.0):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(dropout)
        self.last = nn.Linear(8, 1)

    def forward(self, x):
        return self.last(self.dropout(self.norm(torch.tanh(self.first(x))))).squeeze(-1)


def step_without_chance(ctx, batch):
    x, y = batch
    ctx.optimizer.zero_grad()
    loss = nn.functional.mse_loss(ctx.model(x), y)
    ctx.backward(loss)
    ctx.optimizer_step()
    return loss


def step(ctx, batch):
    x, y = batch
    ctx.optimizer.zero_grad()
    with ctx.autocast():
        noise = random.random() * 0.01
        loss = nn.functional.mse_loss(ctx.model(x), y + noise)
    ctx.backward(loss)
    ctx.clip_grad_norm(1.0)
    ctx.optimizer_step()
    return loss


def job_of(*, dropout=0.0, optimizer=torch.optim.Adam, **changes):
    return TrainJob(
        **{
            "model": lambda: Net(dropout=dropout),
            "optimizer": lambda model: optimizer(model.parameters(), lr=0.01),
            "dataset": Points,
            "step": step,
            "batch_size": 4,
            "scheduler": lambda global_step: 1 / (1 + 0.1 * global_step),
            **changes,
        }
    )


def spans(world, first, batches, *, share):
    """The windows first … first + batches - 1 of each rank's share, in batches of 4."""
    return {rank: ((rank * share + first) * 4, batches * 4) for rank in range(world)}


def bits(cohort):
    """Everything of each rank that training goes on from."""
    found = []
    for worker in cohort.workers:
        context = worker.trainee.context
        state = context.optimizer.state_dict()
        found.append(
            {
                **{f"model.{k}": v.clone() for k, v in worker.trainee.model.state_dict().items()},
                **{
                    f"optimizer.{key}.{word}": value.clone()
                    for key, words in state["state"].items()
                    for word, value in words.items()
                },
                "lr": torch.tensor(context.learning_rate(), dtype=torch.float64),
                "steps": torch.tensor(context.steps_applied),
                "scale": torch.tensor(context.scaler_state().get("scale", 0.0)),
            }
        )
    return found


def assert_same(ours, theirs):
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.keys() == other.keys()
        for name, value in mine.items():
            assert torch.equal(value, other[name]), name


def run_in_one(job, world, **spec):
    """Three windows of pass 0, three more, then three of pass 1, without a break."""
    with Cohort(job, world, seed=5, **spec) as cohort:
        cohort.meet()
        train_span(cohort, 0, spans(world, 0, 6, share=8))
        cohort.release()
        train_span(cohort, 1, spans(world, 0, 3, share=8))
        found = bits(cohort)
        cohort.finish()
    return found


def run_in_two(job, world, path, **spec):
    """The same with a save after three windows, in mid-pass, and another cohort from there."""
    stem = str(path / "consensus")
    with Cohort(job, world, seed=5, save_path=stem, **spec) as cohort:
        cohort.meet()
        train_span(cohort, 0, spans(world, 0, 3, share=8))
        saved = save(cohort)
        cohort.finish()
    with resume(job, world, saved, seed=5, save_path=stem, **spec) as cohort:
        notes = meet_again(cohort, saved)
        assert notes == dict.fromkeys(range(world))
        train_span(cohort, 0, spans(world, 3, 3, share=8))
        cohort.release()
        train_span(cohort, 1, spans(world, 0, 3, share=8))
        found = bits(cohort)
        cohort.finish()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 3])
def test_a_save_in_mid_pass_and_a_resume_give_the_bits_of_one_run(tmp_path, world):
    job = job_of(dropout=0.3)
    if world > 1:  # ranks as threads share one generator, so their draws have no order
        job = job_of(dataset=lambda: Points(chance=False), step=step_without_chance)
    assert_same(run_in_two(job, world, tmp_path), run_in_one(job, world))


@pytest.mark.slow
def test_a_resume_of_a_scaled_run_gives_the_bits_of_one_run(tmp_path):
    job = job_of(precision="float16", optimizer=torch.optim.SGD)
    whole = run_in_one(job, 1)
    assert whole[0]["scale"] > 0
    assert_same(run_in_two(job, 1, tmp_path), whole)


@pytest.mark.slow
def test_without_its_file_a_rank_names_it_and_the_bits_are_others(tmp_path):
    job, stem = job_of(), str(tmp_path / "consensus")
    with Cohort(job, 1, seed=5, save_path=stem) as cohort:
        cohort.meet()
        train_span(cohort, 0, spans(1, 0, 3, share=8))
        saved = save(cohort)
        kept = bits(cohort)
        cohort.finish()
    (tmp_path / "consensus.rank0.pt").unlink()
    with resume(job, 1, saved, seed=5, save_path=stem) as cohort:
        notes = meet_again(cohort, saved)
        assert notes[0] == f"no file *.rank0.pt in {tmp_path}"
        fresh = bits(cohort)
        cohort.finish()
    assert not any(name.startswith("optimizer.") for name in fresh[0])
    for name in kept[0]:
        if name.startswith("model."):
            assert torch.equal(kept[0][name], fresh[0][name]), name


@pytest.mark.slow
def test_a_local_buffer_of_another_dtype_ends_the_rank_and_is_named(tmp_path):
    job, stem = job_of(), str(tmp_path / "consensus")
    with Cohort(job, 1, seed=5, save_path=stem) as cohort:
        cohort.meet()
        saved = save(cohort)
        cohort.finish()
    name, blob = next(iter(saved.locals.items()))
    saved.locals = {name: TensorBlob(dtype="int32", shape=blob.shape, data=blob.data[:4])}
    with resume(job, 1, saved, seed=5, save_path=stem) as cohort:
        with pytest.raises(AssertionError, match="left"):
            meet_again(cohort, saved)
        left = [message for _, message in cohort.seen if isinstance(message, Exiting)]
        assert left[0].error.startswith(
            "buffer 'norm.num_batches_tracked' is int32 [] in the bundle, and int64 [] in the model"
        )


class Rank:
    """One rank that is built and does nothing: enough to write and read its file."""

    def __init__(self, path, *, job=None, **spec):
        self.job = job or job_of()
        self.envelope = envelope_for(self.job, 1, save_path=str(path / "consensus"), **spec)
        self.seat = Seat(envelope=self.envelope, rank=0)
        self.log = MemoryLog()
        self.saves = RankSaves(self.seat, self.log)
        self.slot = Slot.create(self.envelope.geometry)
        self.trainee = build_trainee(self.job, self.seat, self.slot)

    def train(self):
        x, y = torch.ones(4, 6), torch.arange(4.0)
        step(self.trainee.context, (x, y))

    def write(self, version, *, saved_version=None):
        self.saves.note_asked(
            Checkpoint(version=version, target_rank=0, saved_version=saved_version)
        )
        progress = RankProgress(
            rank=self.seat.rank, version=version, global_step=9, pass_index=0, batches=4
        )
        return self.saves.answer(self.trainee, WriteCheckpoint(version), progress)


def resume_from(path, *refs, version=7, stem="consensus"):
    return ResumeSpec(
        stem=str(path / stem),
        bundle_id="old",
        sync_round=version,
        global_step=9,
        rank_files=refs,
    )


def note_of(path, ref, **options):
    """What a rank says that is given this file to go on from."""
    rank = Rank(path, resume=resume_from(path, ref), **options)
    rank.saves.read(rank.trainee)
    return rank.saves.resume_note


@pytest.fixture
def written(tmp_path):
    """A rank that has trained and written the file of version 7."""
    rank = Rank(tmp_path)
    rank.train()
    return rank.write(7).rank_file


def test_the_answer_tells_where_the_file_is_and_its_digest(tmp_path, written):
    path = tmp_path / "consensus.rank0.pt"
    assert (written.rank, written.host, written.device) == (0, "here", "cpu:0")
    assert (written.suffix, written.folder) == (".rank0.pt", str(tmp_path))
    body = path.read_bytes()
    assert (written.nbytes, written.sha256) == (len(body), hashlib.sha256(body).hexdigest())


def test_a_rank_file_is_read_with_weights_only_and_holds_plain_containers(tmp_path, written):
    state = torch.load(tmp_path / "consensus.rank0.pt", weights_only=True)
    assert state["version"] == 7
    assert state["pass_index"] == 0
    assert state["optimizer"]["param_groups"][0]["lr"] == 0.01
    assert state["optimizer"]["state"][0]["step"] == 1
    assert state["locals"]["norm.num_batches_tracked"] == 1
    version, words, gauss = state["generators"]["python"]
    assert (version, len(words), gauss) == (3, 625, None)


def test_the_same_state_gives_the_same_bytes(tmp_path):
    rank = Rank(tmp_path)
    rank.train()
    assert rank.write(7).rank_file.sha256 == rank.write(7).rank_file.sha256


def test_a_file_holds_no_more_than_its_tensors(tmp_path):
    rank = Rank(tmp_path)
    param = next(rank.trainee.model.parameters())
    rank.trainee.context.optimizer.state[param] = {"kept": torch.zeros(1 << 20)[:4]}
    assert rank.write(7).rank_file.nbytes < 100_000


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), "is damaged or of another save"),
        (
            lambda path: path.write_bytes(
                bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:]
            ),
            "is damaged or of another save",
        ),
        (lambda path: path.unlink(), "no file *.rank0.pt in"),
    ],
)
def test_a_spoilt_file_is_named_with_what_is_wrong(tmp_path, written, spoil, why):
    path = tmp_path / "consensus.rank0.pt"
    spoil(path)
    note = note_of(tmp_path, written)
    assert why in note
    assert str(tmp_path) in note


def test_a_file_of_another_optimizer_is_named_before_anything_changes(tmp_path, written):
    job = job_of(optimizer=torch.optim.SGD)
    note = note_of(tmp_path, written, job=job)
    assert note.endswith("it is of torch.optim.adam.Adam, and the job uses torch.optim.sgd.SGD")


def test_a_file_of_other_groups_is_named_and_the_optimizer_stays_as_it_was(tmp_path, written):
    job = job_of(optimizer=lambda params, lr: torch.optim.Adam(list(params)[:2], lr=lr))
    rank = Rank(tmp_path, job=job, resume=resume_from(tmp_path, written))
    rank.saves.read(rank.trainee)
    assert "has groups of 6 parameters, the job's has 2" in rank.saves.resume_note
    assert rank.saves.put_back(rank.trainee) is None
    assert not rank.trainee.context.optimizer.state


def test_a_file_that_goes_with_another_version_is_named(tmp_path, written):
    rank = Rank(tmp_path, resume=resume_from(tmp_path, written, version=8))
    rank.saves.read(rank.trainee)
    assert "it goes with version 7, not 8" in rank.saves.resume_note


def test_bytes_that_run_code_are_not_run(tmp_path):
    path = tmp_path / "consensus.rank0.pt"
    torch.save({"schema_version": 1, "evil": Evil()}, path)
    body = path.read_bytes()
    ref = RankFileRef(
        rank=0,
        host="here",
        device="cpu:0",
        suffix=".rank0.pt",
        sha256=hashlib.sha256(body).hexdigest(),
        nbytes=len(body),
    )
    assert "cannot be read (UnpicklingError" in note_of(tmp_path, ref)
    assert not Evil.ran


class Evil:
    ran = False

    def __reduce__(self):
        return (setattr, (Evil, "ran", True))


def test_a_file_is_found_where_it_was_written_and_beside_the_bundle(tmp_path, written):
    elsewhere = tmp_path / "another run"
    elsewhere.mkdir()
    rank = Rank(elsewhere, resume=resume_from(elsewhere, written))
    rank.saves.read(rank.trainee)
    assert rank.saves.resume_note is None
    untold = dataclasses.replace(written, folder="")
    rank = Rank(elsewhere, resume=resume_from(tmp_path, untold))
    rank.saves.read(rank.trainee)
    assert rank.saves.resume_note is None
    rank = Rank(elsewhere, resume=resume_from(elsewhere, untold))
    rank.saves.read(rank.trainee)
    assert rank.saves.resume_note == f"no file *.rank0.pt in {elsewhere}"


def test_among_the_files_of_many_runs_the_bundles_own_is_found(tmp_path, written):
    path = tmp_path / "consensus.rank0.pt"
    for number in range(100):
        (tmp_path / f"a{number:03}.rank0.pt").write_bytes(bytes(written.nbytes))
    assert note_of(tmp_path, written) is None
    path.rename(tmp_path / "consensus.prev3.rank0.pt")
    assert note_of(tmp_path, written) is None
    (tmp_path / "consensus.prev3.rank0.pt").rename(tmp_path / "renamed.rank0.pt")
    assert note_of(tmp_path, written) is None


def test_files_of_other_runs_are_not_read_where_the_bundles_own_is_there(tmp_path, written):
    elsewhere = tmp_path / "another run"
    elsewhere.mkdir()
    for folder in (tmp_path, elsewhere):
        (folder / "a.rank0.pt").write_bytes(bytes(written.nbytes))
    opened, watches = [], True

    def watch(event, args):
        if watches and event == "open" and isinstance(args[0], str):
            opened.append(Path(args[0]))

    sys.addaudithook(watch)
    assert note_of(elsewhere, written) is None
    watches = False
    files = {path for path in opened if path.name.endswith(".rank0.pt")}
    assert files == {tmp_path / "consensus.rank0.pt"}


def test_after_two_damaged_saves_the_file_gone_on_from_stays_as_long_as_its_bundle(tmp_path):
    first = Rank(tmp_path, keep_checkpoints=3)
    good = first.write(7).rank_file
    for version in (8, 9):
        first.write(version, saved_version=version - 1)
    again = Rank(tmp_path, keep_checkpoints=3, resume=resume_from(tmp_path, good, stem="x.prev2"))
    again.write(10)
    again.write(11, saved_version=10)
    assert versions(tmp_path) == {
        "consensus.rank0.pt": 11,
        "consensus.prev.rank0.pt": 10,
        "consensus.prev2.rank0.pt": 7,
    }
    again.write(12, saved_version=11)
    assert versions(tmp_path) == {
        "consensus.rank0.pt": 12,
        "consensus.prev.rank0.pt": 11,
        "consensus.prev2.rank0.pt": 10,
    }


def refs(*places):
    return tuple(
        RankFileRef(
            rank=rank, host=host, device=device, suffix=f".rank{rank}.pt", sha256="", nbytes=rank
        )
        for rank, host, device in places
    )


def test_files_go_to_the_device_that_wrote_them_whatever_its_number(tmp_path):
    job = job_of()
    files = refs((2, "here", "cuda:0"), (0, "here", "cuda:1"), (1, "there", "cuda:0"))
    envelope = envelope_for(job, 2, devices=("cuda:0", "cuda:1"), save_path=str(tmp_path / "x"))
    spec = resume_from(tmp_path, *files)
    assert own_file(Seat(envelope=envelope, rank=0), spec).rank == 2
    assert own_file(Seat(envelope=envelope, rank=1), spec).rank == 0


def test_ranks_that_share_a_device_take_its_files_in_their_order(tmp_path):
    job = job_of()
    files = refs((4, "here", "cpu:0"), (1, "here", "cpu:0"))
    envelope = envelope_for(job, 3, save_path=str(tmp_path / "x"))
    spec = resume_from(tmp_path, *files)
    assert [own_file(Seat(envelope=envelope, rank=rank), spec).rank for rank in (0, 1)] == [1, 4]
    with pytest.raises(CheckpointError, match="no file of cpu:0 on here"):
        own_file(Seat(envelope=envelope, rank=2), spec)


def names(path):
    return sorted(one.name for one in path.iterdir())


def versions(path):
    return {
        one.name: torch.load(one, weights_only=True)["version"] for one in sorted(path.iterdir())
    }


def test_a_save_keeps_the_one_before_it_and_no_more(tmp_path):
    rank = Rank(tmp_path)
    rank.write(1)
    assert names(tmp_path) == ["consensus.rank0.pt"]
    rank.write(2, saved_version=1)
    rank.write(3, saved_version=2)
    assert versions(tmp_path) == {"consensus.prev.rank0.pt": 2, "consensus.rank0.pt": 3}


def test_a_file_of_a_save_that_failed_is_written_over(tmp_path):
    rank = Rank(tmp_path)
    rank.write(1)
    for version in (2, 3, 4):
        rank.write(version, saved_version=1)
    assert versions(tmp_path) == {"consensus.prev.rank0.pt": 1, "consensus.rank0.pt": 4}


def test_more_generations_are_kept_where_the_run_keeps_more(tmp_path):
    rank = Rank(tmp_path, keep_checkpoints=4)
    for version in range(1, 7):
        rank.write(version, saved_version=version - 1)
    assert versions(tmp_path) == {
        "consensus.rank0.pt": 6,
        "consensus.prev.rank0.pt": 5,
        "consensus.prev2.rank0.pt": 4,
        "consensus.prev3.rank0.pt": 3,
    }


def test_a_resumed_run_keeps_the_file_it_went_on_from_until_a_save_is_complete(tmp_path):
    rank = Rank(tmp_path)
    good = rank.write(7).rank_file
    rank.write(8, saved_version=7)
    again = Rank(tmp_path, resume=resume_from(tmp_path, good))
    again.saves.read(again.trainee)
    assert again.saves.resume_note is None
    again.write(9)
    again.write(10)
    assert versions(tmp_path) == {"consensus.prev.rank0.pt": 7, "consensus.rank0.pt": 10}


def test_what_a_file_cannot_hold_is_an_error_of_the_answer_and_nothing_is_written(tmp_path):
    rank = Rank(tmp_path)
    param = next(rank.trainee.model.parameters())
    rank.trainee.context.optimizer.state[param] = {"hook": lambda: None}
    answer = rank.write(7)
    assert answer.rank_file is None
    assert answer.error is None
    assert "optimizer.state.0.hook is a function" in answer.rank_file_error
    assert names(tmp_path) == []


def test_a_state_in_another_dtype_than_its_parameter_keeps_its_bits(tmp_path):
    job = job_of()
    rank = Rank(tmp_path, job=job)
    param = next(rank.trainee.model.parameters())
    wide = torch.full(param.shape, 1 / 3, dtype=torch.float64)
    rank.train()
    rank.trainee.context.optimizer.state[param]["exp_avg"] = wide
    ref = rank.write(7).rank_file
    again = Rank(tmp_path, job=job, resume=resume_from(tmp_path, ref))
    again.saves.read(again.trainee)
    assert again.saves.put_back(again.trainee) == 0
    param = next(again.trainee.model.parameters())
    assert torch.equal(again.trainee.context.optimizer.state[param]["exp_avg"], wide)


def test_the_generators_go_on_where_they_were(tmp_path):
    rank = Rank(tmp_path)
    rank.train()
    ref = rank.write(7).rank_file
    expected = (torch.rand(3), random.random(), np.random.random(3))
    again = Rank(tmp_path, resume=resume_from(tmp_path, ref))
    again.saves.read(again.trainee)
    again.saves.put_back(again.trainee)
    drawn = (torch.rand(3), random.random(), np.random.random(3))
    assert torch.equal(drawn[0], expected[0])
    assert drawn[1] == expected[1]
    assert (drawn[2] == expected[2]).all()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_an_error_of_the_answer(tmp_path):
    state = take_state(
        Rank(tmp_path).trainee,
        RankProgress(rank=0, version=1, global_step=0, pass_index=0, batches=0),
    )
    with Path("/dev/full").open("wb", buffering=0) as full, pytest.raises(OSError, match="space"):
        save_state(state, WholeFile(full))


def test_a_folder_that_takes_no_file_is_an_error_of_the_answer(tmp_path):
    rank = Rank(tmp_path / "file")
    (tmp_path / "file").write_text("in the way")
    answer = rank.write(7)
    assert answer.rank_file is None
    assert "cannot write" in answer.rank_file_error
    assert rank.log.named("rank_file_failed")
