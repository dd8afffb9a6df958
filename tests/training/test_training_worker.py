"""Ranks as threads under a small coordinator: what training in a cohort must come to."""

import json

import numpy as np
import pytest
import torch
from torch import nn
from training_cohort import Cohort, LocalStar, MemoryStar
from training_models import Odd

from flodl_core.dispatch.permutation import Permutation
from flodl_core.ids import ExitCode, RankPhase, SyncOutcome
from flodl_core.messages import control
from flodl_core.messages.rendezvous import RendezvousHello, Role, RoleKind
from flodl_core.messages.timing import Batches, Exiting, LrUpdate, SnapshotReady, SyncAck
from flodl_core.training.job import TrainJob
from flodl_core.training.seat import Seat


class Points:
    def __init__(self, count=256, features=6):
        draw = torch.Generator().manual_seed(11)
        self.x = torch.randn(count, features, generator=draw)
        self.y = self.x @ torch.randn(features, generator=draw) + 1

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        return self.x[index], self.y[index]


class Net(nn.Module):
    def __init__(self, *, norm=False):
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8) if norm else nn.Identity()
        self.last = nn.Linear(8, 1)

    def forward(self, x):
        return self.last(torch.tanh(self.norm(self.first(x)))).squeeze(-1)


def regression_step(ctx, batch):
    ctx.optimizer.zero_grad()
    loss = ctx.accumulate(batch, lambda part: nn.functional.mse_loss(ctx.model(part[0]), part[1]))
    ctx.optimizer_step()
    return loss


def points_job(**changes):
    return TrainJob(
        **{
            "model": Net,
            "optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.05),
            "dataset": Points,
            "step": regression_step,
            "batch_size": 8,
            **changes,
        }
    )


def plan_of(size):
    return control.EpochPlan(epoch=0, offset=0, size=size, window_batches=1)


def same_bits(cohort):
    states = [cohort.model(rank).state_dict() for rank in cohort.alive]
    for state in states[1:]:
        for name, value in state.items():
            assert torch.equal(value, states[0][name]), name
    return states[0]


def train_alone(job, *, world, steps, seed):
    """Train one process on the batches of all ranks joined, without anything of the worker."""
    envelope_seat = Seat(envelope=Cohort(job, 1, seed=seed).envelope, rank=0)
    torch.manual_seed(envelope_seat.seed("model"))
    model = job.model()
    optimizer = job.optimizer(model)
    data, size = job.dataset(), job.batch_size
    share = len(data) // size // world * size
    done = 0
    for epoch in range(steps):
        ids = Permutation(len(data), seed, epoch).ids(0, len(data)).tolist()
        for window in range(share // size):
            joined = [
                ids[rank * share + window * size + k] for rank in range(world) for k in range(size)
            ]
            x = torch.stack([data[index][0] for index in joined])
            y = torch.stack([data[index][1] for index in joined])
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            done += 1
            if done == steps:
                return model
    return model


@pytest.mark.slow
def test_four_ranks_in_cpu_sync_equal_one_process_on_the_joined_batches_after_50_steps():
    job = points_job()
    with Cohort(job, 4, seed=3) as cohort:
        cohort.meet()
        steps = 0
        for event in range(7):
            windows = min(8, 50 - steps)
            cohort.train_epoch(event, windows=windows if windows < 8 else None)
            steps += windows
        assert steps == 50
        assert cohort.cycle == 51
        state = same_bits(cohort)
        cohort.finish()
    alone = train_alone(job, world=4, steps=50, seed=3).state_dict()
    for name, value in state.items():
        torch.testing.assert_close(value, alone[name], rtol=0, atol=1e-5)
    assert not torch.equal(state["first.weight"], points_job().model().state_dict()["first.weight"])


@pytest.mark.slow
def test_two_runs_with_one_seed_end_with_the_same_bits_and_another_seed_with_others():
    ends = []
    for seed in (5, 5, 6):
        with Cohort(points_job(model=lambda: Net(norm=True)), 3, seed=seed) as cohort:
            cohort.meet()
            cohort.train_epoch(0)
            ends.append({k: v.clone() for k, v in same_float_bits(cohort).items()})
            cohort.finish()
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])
    assert not all(torch.equal(ends[0][name], ends[2][name]) for name in ends[0])


def same_float_bits(cohort):
    states = [cohort.model(rank).state_dict() for rank in cohort.alive]
    for state in states[1:]:
        for name, value in state.items():
            if value.is_floating_point():
                assert torch.equal(value, states[0][name]), name
    return states[0]


def test_an_epoch_reports_each_sample_once_and_ends_clean():
    with Cohort(points_job(), 3) as cohort:
        cohort.meet()
        metrics = cohort.train_epoch(0)
        assert sum(message.samples_processed for message in metrics.values()) == 256
        assert [metrics[rank].batches_processed for rank in range(3)] == [11, 11, 10]
        assert all(message.avg_loss > 0 for message in metrics.values())
        assert all(
            0 < message.compute_only_ms <= message.share_complete_ms <= message.epoch_ms
            for message in metrics.values()
        )
        assert cohort.finish() == [ExitCode.DONE] * 3
        assert [channel.phase for channel in cohort.channels] == [RankPhase.DONE] * 3


def test_a_batch_is_reported_before_the_snapshot_that_holds_it():
    with Cohort(points_job(), 2) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=2)
        order = [
            type(message).__name__
            for rank, message in cohort.seen
            if rank == 1 and isinstance(message, Batches | SnapshotReady | SyncAck)
        ]
        cohort.finish()
    window = ["Batches", "SnapshotReady", "SyncAck"]
    assert order[:8] == ["SnapshotReady", "SyncAck", *window, *window]


def test_acks_carry_the_divergence_and_norms_of_a_committed_cycle():
    with Cohort(points_job(), 2) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=1)
        ack = cohort.acks[1][1]
        cohort.finish()
    assert ack.outcome is SyncOutcome.COMMITTED
    assert (ack.samples, ack.step_count) == (8, 1)
    assert ack.divergence > 0
    assert ack.pre_norm == pytest.approx(ack.post_norm, rel=0.1)


def test_the_initial_broadcast_gives_everyone_rank_0s_values_also_frozen_ones():
    values = {"given": 0}

    def model_of_rank():
        values["given"] += 1
        net = Net(norm=True)
        with torch.no_grad():
            for tensor in (*net.parameters(), net.norm.running_mean):
                tensor.fill_(float(values["given"]))
        net.first.weight.requires_grad_(False)
        return net

    with Cohort(points_job(model=model_of_rank), 3) as cohort:
        cohort.meet()
        state = same_bits(cohort)
        cohort.finish()
    assert len({float(state[name].reshape(-1)[0]) for name in state if "num" not in name}) <= 2
    assert bool((state["first.weight"] == state["last.weight"][0, 0]).all())


def test_an_idle_rank_adopts_and_contributes_nothing():
    """Two batches for three ranks: the third has a plan of size 0."""
    job = points_job(dataset=lambda: Points(16))
    with Cohort(job, 3) as cohort:
        cohort.meet()
        before = cohort.model(2).state_dict()["first.weight"].clone()
        metrics = cohort.train_epoch(0)
        headers = cohort.star.records[-1][1]
        state = same_bits(cohort)
        cohort.finish()
    assert metrics[2].samples_processed == 0
    assert (headers[2].n, headers[2].mass_params, headers[2].declared) == (0, 0.0, False)
    assert cohort.acks[1][2].outcome is SyncOutcome.COMMITTED
    assert not torch.equal(state["first.weight"], before)


def poisoned_step(value, *, at_step):
    def step(ctx, batch):
        loss = regression_step(ctx, batch)
        if ctx.rank == 1 and ctx.global_step == at_step:
            with torch.no_grad():
                ctx.model.first.weight[0, 0] = value
        return loss

    return step


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3e38])
def test_a_rank_with_values_that_cannot_travel_is_excluded_named_and_reseeded(value):
    job = points_job(
        step=poisoned_step(value, at_step=4),
        optimizer=lambda model: torch.optim.Adam(model.parameters(), lr=0.01),
    )
    with Cohort(job, 2) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=3)
        state = same_bits(cohort)
        context = cohort.workers[1].trainee.context
        assert not context.optimizer.state
        headers = cohort.star.records[-1][1]
        acks = cohort.acks[3]
        fault = cohort.logs[1].named("declared_non_finite")
        cohort.finish()
    assert (headers[1].n, headers[1].declared, headers[1].samples) == (0, True, 8)
    assert [acks[0].outcome, acks[1].outcome] == [SyncOutcome.COMMITTED, SyncOutcome.DECLINED]
    assert acks[1].divergence is None
    assert fault[0]["fault"].startswith("first.weight")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in state.values())


def test_if_every_rank_is_not_finite_nobody_adopts_anything():
    def step(ctx, batch):
        loss = regression_step(ctx, batch)
        with torch.no_grad():
            ctx.model.first.weight[0, 0] = float("nan")
        return loss

    with Cohort(points_job(step=step), 2) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=1)
        outcomes = {ack.outcome for ack in cohort.acks[1].values()}
        cohort.finish()
    assert outcomes == {SyncOutcome.UNREALIZED}


def test_a_rank_whose_scaler_skipped_every_step_has_no_mass():
    def step(ctx, batch):
        ctx.optimizer.zero_grad()
        loss = nn.functional.mse_loss(ctx.model(batch[0]), batch[1])
        ctx.backward(loss)
        if ctx.rank == 1:
            ctx.model.first.weight.grad[0, 0] = float("inf")
        ctx.optimizer_step()
        return loss

    with Cohort(points_job(step=step, precision="float16"), 2) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=1)
        headers = cohort.star.records[-1][1]
        cohort.finish()
    assert (headers[0].n, headers[1].n) == (1, 0)
    assert headers[1].samples == 8
    assert not headers[1].declared


def odd_step(ctx, batch):
    ctx.optimizer.zero_grad()
    loss = sum((p.abs() ** 2).mean() for p in ctx.model.parameters() if p.numel())
    loss = loss + ctx.model.norm(ctx.model.conv(batch)).mean()
    ctx.backward(loss)
    ctx.optimizer_step()
    ctx.model.counter += 1
    return loss.detach().real


class Pictures:
    def __len__(self):
        return 32

    def __getitem__(self, index):
        return torch.full((3, 5, 5), float(index))


def odd_job(**changes):
    return points_job(
        **{
            "model": Odd,
            "dataset": Pictures,
            "step": odd_step,
            "batch_size": 4,
            "optimizer": lambda model: torch.optim.SGD(model.parameters(), lr=0.01),
            **changes,
        }
    )


@pytest.mark.slow
def test_every_odd_tensor_ends_as_stated_with_channels_last_on_one_rank_only():
    jobs = [odd_job(), odd_job(memory_format=torch.channels_last), odd_job()]
    with Cohort(odd_job(), 3, jobs=jobs) as cohort:
        cohort.meet()
        frozen = cohort.model(0).frozen.clone()
        cohort.train_epoch(0)
        state = same_float_bits(cohort)
        cohort.checkpoint()
        models = [cohort.model(rank) for rank in range(3)]
        cohort.finish()
    assert models[1].conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert [int(model.counter) for model in models] == [2**53 + 4, 2**53 + 4, 2**53 + 3]
    assert all(model.head.weight is model.embedding.weight for model in models)
    assert torch.equal(models[2].rows, models[2].base[1:3])
    assert torch.equal(models[2].flipped, models[2].base.t())
    assert torch.equal(state["frozen"], frozen)
    assert state["mask"].tolist() == [True, False, True]
    assert not torch.equal(state["pairs"], Odd().pairs)


@pytest.mark.slow
def test_a_state_dict_assigned_in_mid_run_is_trained_on_from_there():
    def step(ctx, batch):
        loss = odd_step(ctx, batch)
        if ctx.rank == 1 and ctx.global_step == 2:
            state = {k: v.clone() for k, v in ctx.model.state_dict().items()}
            state["base"] += 2.0
            ctx.model.load_state_dict(state, assign=True)
        return loss

    with Cohort(odd_job(step=step), 2) as cohort:
        cohort.meet()
        cohort.train_epoch(0)
        same_float_bits(cohort)
        optimizer = cohort.workers[1].trainee.context.optimizer
        owned = {id(p) for group in optimizer.param_groups for p in group["params"]}
        model = cohort.model(1)
        strays = cohort.logs[1].named("parameters_strayed")
        cohort.finish()
    assert {id(parameter) for parameter in model.parameters()} <= owned
    assert len(strays) == 1
    assert "base" in strays[0]["names"]


def replacing(replace):
    """Return a step that replaces something of the model after its third batch on rank 1."""

    def step(ctx, batch):
        loss = regression_step(ctx, batch)
        if ctx.rank == 1 and ctx.steps_applied == 3:
            replace(ctx.model)
        return loss

    return step


def test_a_parameter_replaced_in_a_step_is_averaged_and_the_optimizer_s_own_comes_back():
    own = []

    def replace(model):
        own.append(model.last.bias)
        model.last.bias = nn.Parameter(torch.full((1,), 8.0))

    with Cohort(points_job(step=replacing(replace)), 2) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=3)
        same_bits(cohort)
        strays = cohort.logs[1].named("parameters_strayed")
        optimizer = cohort.workers[1].trainee.context.optimizer
        cohort.finish()
    bias = cohort.model(1).last.bias
    assert bias is own[0]
    assert any(bias is one for group in optimizer.param_groups for one in group["params"])
    assert strays[0]["names"] == "last.bias"
    assert bias.item() > 3, "the mean of about 1 and 8 is above 3"


@pytest.mark.parametrize(
    ("replace", "said"),
    [
        (
            lambda model: setattr(model.last, "bias", nn.Parameter(torch.zeros(2))),
            "'last.bias' became float32 [2] during the run, expected float32 [1]",
        ),
        (
            lambda model: setattr(model.last, "bias", nn.Parameter(torch.zeros(1).double())),
            "'last.bias' became float64 [1] during the run",
        ),
        (
            lambda model: setattr(model, "last", nn.Linear(8, 1)),
            "the module of 'last.weight' was replaced by another Linear",
        ),
    ],
)
def test_a_parameter_that_becomes_another_one_ends_the_rank_and_is_named(replace, said):
    def step(ctx, batch):
        loss = regression_step(ctx, batch)
        replace(ctx.model)
        return loss

    with Cohort(points_job(step=step), 1) as cohort:
        cohort.meet()
        cohort.send(0, control.StartEpoch(plan=plan_of(8)))
        cohort.collect(Batches, [0])
        cohort.send(0, control.RequestParams(cycle=1))
        exiting = cohort.collect(Exiting, [0])[0]
        cohort.threads[0].join(10)
    assert said in exiting.error
    assert cohort.codes == [ExitCode.FAILED]


def test_a_rank_whose_model_cannot_begin_the_run_names_the_tensor_before_it_is_ready():
    class Masked(Net):
        def __init__(self, value):
            super().__init__()
            self.register_buffer("mask", torch.full((3,), value))

    jobs = [points_job(model=lambda v=v: Masked(v)) for v in (torch.finfo(torch.float32).min, 0.0)]
    with Cohort(jobs[1], 2, jobs=jobs) as cohort:
        cohort.collect(RendezvousHello, [0, 1])
        cohort.send(0, Role(role=RoleKind.GENERATE))
        cohort.send(0, control.RequestParams(cycle=0))
        exiting = cohort.collect(Exiting, [0])[0]
        cohort.threads[0].join(10)
    assert exiting.error.startswith("the run cannot begin: mask times the mass 1 leaves the range")
    assert "persistent=False" in exiting.error
    assert cohort.codes[0] == ExitCode.FAILED
    assert not cohort.star.waiting, "nobody reads what it had"


def test_a_parameter_unfrozen_on_one_rank_is_reduced_on_all_from_the_next_cycle():
    def step(ctx, batch):
        loss = regression_step(ctx, batch)
        if ctx.rank == 1:
            ctx.model.first.bias.requires_grad_(True)
            with torch.no_grad():
                ctx.model.first.bias += 1
        return loss

    def model():
        net = Net()
        net.first.bias.requires_grad_(False)
        return net

    with Cohort(points_job(model=model, step=step), 2) as cohort:
        cohort.meet()
        before = cohort.model(0).first.bias.detach().clone()
        cohort.train_epoch(0, windows=1)
        after = same_bits(cohort)["first.bias"].clone()
        cohort.finish()
    torch.testing.assert_close(after, before + 0.5)


def test_a_parameter_frozen_again_inside_a_window_is_the_same_on_all_ranks():
    done = [0, 0]

    def step(ctx, batch):
        done[ctx.rank] += 1
        if ctx.model.first.bias.requires_grad:
            with torch.no_grad():  # each rank's own training
                ctx.model.first.bias += 1 + ctx.rank
        ctx.model.first.bias.requires_grad_(done[ctx.rank] <= 3)
        return regression_step(ctx, batch)

    def model():
        net = Net()
        net.first.bias.requires_grad_(False)
        return net

    with Cohort(points_job(model=model, step=step), 2) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=2)
        same_bits(cohort)
        cohort.finish()


def test_an_evaluation_gives_the_same_number_on_every_rank_and_disturbs_nothing():
    def metric(model, batches, device):
        assert not model.training
        assert not torch.is_grad_enabled()
        torch.rand(3)
        total = sum(float((model(x) - y).abs().sum()) for x, y in batches)
        return total / 16

    job = points_job(
        model=lambda: Net(norm=True),
        eval_dataset=lambda: Points(16),
        metric=metric,
        metric_name="mae",
        report=lambda model: "é" * 40_000,
    )
    with Cohort(job, 2) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=2)
        results = [cohort.evaluate(target=rank, epoch=rank) for rank in range(2)]
        assert cohort.model(0).training
        cohort.finish()
    assert results[0].metric == results[1].metric > 0
    assert results[0].metric_name == "mae"
    assert len(results[0].report.encode()) <= 64 * 1024


def test_an_evaluation_that_fails_is_an_answer_not_an_end():
    def metric(model, batches, device):
        raise ValueError("no such label")

    job = points_job(eval_dataset=lambda: Points(16), metric=metric)
    with Cohort(job, 1) as cohort:
        cohort.meet()
        result = cohort.evaluate()
        assert cohort.finish() == [ExitCode.DONE]
    assert result.metric is None
    assert "ValueError: no such label" in result.error


def test_a_checkpoint_carries_the_local_buffers_of_that_commit():
    with Cohort(odd_job(), 2) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=1)
        result = cohort.checkpoint(target=1)
        cohort.finish()
    assert (result.version, result.error) == (1, None)
    assert int.from_bytes(result.local_buffers["counter"].data, "little") == 2**53 + 2


def test_the_scheduler_sees_the_cohorts_step_and_sets_the_rate():
    seen = []

    def scheduler(step):
        seen.append(step)
        return 0.5**step

    with Cohort(points_job(scheduler=scheduler), 2) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=3)
        rate = cohort.workers[0].trainee.context.learning_rate()
        told = [message.lr for rank, message in cohort.seen if isinstance(message, LrUpdate)]
        cohort.finish()
    assert sorted(seen) == [0, 0, 2, 2, 4, 4]
    assert rate == 0.05 * 0.5**4
    assert told[0] == 0.05


def test_a_micro_batch_changes_nothing_but_the_last_bits():
    ends = []
    for micro_batch in (None, 3):
        with Cohort(points_job(), 2, micro_batch=micro_batch) as cohort:
            cohort.meet()
            cohort.train_epoch(0)
            ends.append(same_bits(cohort))
            cohort.finish()
    for name, value in ends[0].items():
        torch.testing.assert_close(value, ends[1][name], rtol=0, atol=1e-5)


def test_a_job_that_raises_in_its_second_batch_ends_with_one_line_and_a_record(tmp_path):
    def step(ctx, batch):
        if ctx.steps_applied == 1:
            raise ZeroDivisionError("second batch")
        return regression_step(ctx, batch)

    with Cohort(points_job(step=step), 1, save_path=str(tmp_path / "model")) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=1)
        cohort.release()
        exiting = cohort.collect(Exiting, [0])[0]
        cohort.threads[0].join(10)
    assert cohort.codes == [ExitCode.FAILED]
    assert exiting.error.startswith("ZeroDivisionError: second batch (test_training_worker.py:")
    assert "\n" not in exiting.error
    record = json.loads((tmp_path / "model.rank0.death.json").read_text())
    assert (record["schema_version"], record["rank"], record["world_size"]) == (1, 0, 1)
    assert record["error"] == exiting.error
    assert cohort.logs[0].named("training_failed")


def test_a_job_that_leaves_the_process_is_a_failure_with_a_name():
    def step(ctx, batch):
        raise SystemExit(0)

    with Cohort(points_job(step=step), 1) as cohort:
        cohort.meet()
        cohort.send(0, control.StartEpoch(plan=plan_of(8)))
        exiting = cohort.collect(Exiting, [0])[0]
        cohort.threads[0].join(10)
    assert cohort.codes == [ExitCode.FAILED]
    assert exiting.error.startswith("SystemExit: 0")


def end_of(job, *, batches=1):
    """Return what a rank says when it leaves, and its exit code."""
    with Cohort(job, 1) as cohort:
        cohort.meet()
        cohort.send(0, control.StartEpoch(plan=plan_of(8 * batches)))
        exiting = cohort.collect(Exiting, [0])[0]
        cohort.threads[0].join(10)
    return exiting.error, cohort.codes


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (None, "step returned None; return the mean loss"),
        ("0.5", "step returned the text '0.5'; return the mean loss"),
        (torch.ones(3), "step returned a tensor of shape (3,) and type torch.float32; return"),
        (torch.ones(1) * 1j, "type torch.complex64; return the mean loss"),
        ([0.5], "step returned a list; return the mean loss"),
    ],
)
def test_a_step_that_returns_no_number_is_told_what_to_return(answer, shown):
    def step(ctx, batch):
        regression_step(ctx, batch)
        return answer

    error, codes = end_of(points_job(step=step))
    assert shown in error
    assert "return the mean loss of its samples" in error
    assert codes == [ExitCode.FAILED]


@pytest.mark.parametrize("loss", [1, True, np.float32(0.5), torch.ones(1, requires_grad=True)])
def test_a_loss_may_be_any_number(loss):
    def step(ctx, batch):
        regression_step(ctx, batch)
        return loss

    with Cohort(points_job(step=step, dataset=lambda: Points(8)), 1) as cohort:
        cohort.meet()
        metrics = cohort.train_epoch(0)[0]
        cohort.finish()
    assert metrics.avg_loss == pytest.approx(float(torch.as_tensor(loss).detach()))


def test_a_scheduler_that_returns_no_number_is_named():
    error, _ = end_of(points_job(scheduler=lambda step: None))
    assert error.startswith("scheduler returned None")
    assert "factor of the learning rate" in error


@pytest.mark.parametrize("name", ["on_device", "compile"])
def test_a_function_that_loses_the_model_is_named(name):
    with Cohort(points_job(**{name: lambda *_: None}), 1) as cohort:
        exiting = cohort.collect(Exiting, [0])[0]
        cohort.threads[0].join(10)
    assert exiting.error.startswith(f"{name} returned None")
    assert cohort.codes == [ExitCode.FAILED]


class LeavingError(BaseException):
    """Not an Exception, as a library's own way out may be."""


@pytest.mark.parametrize("kind", [KeyboardInterrupt, GeneratorExit, LeavingError, SystemExit])
def test_whatever_is_raised_in_a_step_or_a_sample_is_a_failure_with_a_name(kind):
    def step(ctx, batch):
        raise kind(0)

    class Bad(Points):
        def __getitem__(self, index):
            if self.is_over:
                raise kind(0)
            return super().__getitem__(index)

        is_over = False

    error, codes = end_of(points_job(step=step))
    assert error.startswith(f"{kind.__name__}: 0")
    assert codes == [ExitCode.FAILED]


def test_a_sample_that_cannot_be_read_is_named():
    class Missing(Points):
        broken = False

        def __getitem__(self, index):
            if self.broken and index == 3:
                raise FileNotFoundError("no such picture")
            return super().__getitem__(index)

    def step(ctx, batch):
        Missing.broken = True
        return regression_step(ctx, batch)

    order = Permutation(24, 7, 0).ids(0, 24).tolist()
    assert order.index(3) >= 8, "not among the samples of the first batch"
    job = points_job(step=step, dataset=lambda: Missing(24))
    with Cohort(job, 1) as cohort:
        cohort.meet()
        cohort.train_epoch(0, windows=1)
        cohort.release()
        exiting = cohort.collect(Exiting, [0])[0]
        cohort.threads[0].join(10)
    assert exiting.error.startswith("FileNotFoundError: no such picture (test_training_worker.py:")
    assert exiting.error.endswith("reading sample 3 of Missing")


def test_a_loss_that_is_not_finite_is_reported_as_absent():
    def step(ctx, batch):
        regression_step(ctx, batch)
        return float("nan")

    with Cohort(points_job(step=step, dataset=lambda: Points(8)), 1) as cohort:
        cohort.meet()
        metrics = cohort.train_epoch(0)[0]
        rows = [m.rows[0] for _, m in cohort.seen if isinstance(m, Batches)]
        cohort.finish()
    assert rows[0].loss is None
    assert (metrics.avg_loss, metrics.samples_processed) == (None, 8)


def test_on_device_and_compile_are_called_in_their_order():
    order = []

    class Wrapped(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)

    def note(name, value):
        order.append(name)
        return value

    job = points_job(
        model=lambda: note("model", Net()),
        on_device=lambda model, device: note("device", model.to(device)),
        optimizer=lambda model: note("optimizer", torch.optim.SGD(model.parameters(), lr=0.05)),
        compile=lambda model: note("compile", Wrapped(model)),
    )
    with Cohort(job, 1) as cohort:
        del order[: order.index("device") - 1]
        cohort.meet()
        cohort.train_epoch(0, windows=1)
        assert isinstance(cohort.workers[0].trainee.context.model, Wrapped)
        assert isinstance(cohort.model(0), Net)
        cohort.finish()
    assert order == ["model", "device", "optimizer", "compile"]


def test_scalars_of_the_step_are_summed_into_the_epochs_metrics():
    def step(ctx, batch):
        ctx.scalar("seen", len(batch[0]), count=len(batch[0]))
        return regression_step(ctx, batch)

    with Cohort(points_job(step=step), 2) as cohort:
        cohort.meet()
        metrics = cohort.train_epoch(0)
        cohort.finish()
    assert metrics[1].scalars == {"seen": (128.0, 128.0)}


@pytest.mark.slow
def test_the_real_data_plane_gives_the_same_as_the_one_in_memory():
    ends = []
    for star in (MemoryStar, LocalStar):
        job = points_job(model=lambda: Net(norm=True))
        with Cohort(job, 3, seed=3, star=star) as cohort:
            cohort.meet()
            cohort.train_epoch(0)
            ends.append({k: v.clone() for k, v in same_float_bits(cohort).items()})
            cohort.finish()
            cohort.star.stop()
    for name, value in ends[0].items():
        if value.is_floating_point():
            torch.testing.assert_close(value, ends[1][name], rtol=1e-6, atol=1e-6)


def test_a_model_that_is_not_the_runs_is_refused_by_the_rank():
    jobs = [points_job(model=lambda: nn.Linear(6, 2))]
    with Cohort(points_job(), 1, jobs=jobs) as cohort:
        exiting = cohort.collect(Exiting, [0])[0]
    assert "'weight' is float32 [2, 6]" in exiting.error


def test_a_shutdown_before_the_rendezvous_is_over_ends_clean():
    with Cohort(points_job(), 1) as cohort:
        cohort.collect(RendezvousHello, [0])
        assert cohort.finish() == [ExitCode.DONE]


def test_a_rank_whose_coordinator_is_gone_says_so_by_its_exit_code():
    with Cohort(points_job(), 1) as cohort:
        cohort.meet()
        cohort.channels[0].close("the launcher is gone")
        cohort.threads[0].join(10)
    assert cohort.codes == [ExitCode.JOIN_RUN_LOST]
    assert cohort.logs[0].named("run_lost")


def test_messages_of_another_cycle_change_nothing_and_are_noted():
    with Cohort(points_job(), 1) as cohort:
        cohort.meet()
        cohort.send(0, control.Update(version=9, cycle=9))
        cohort.send(0, control.CoordHeartbeat())
        cohort.send(0, "not a message")
        cohort.train_epoch(0, windows=1)
        cohort.finish()
    assert cohort.logs[0].named("update_of_another_cycle")
    assert cohort.logs[0].named("not_for_pacer") == [{"of_event": "str"}]


def test_a_pass_is_seeded_by_run_pass_and_rank():
    draws = {}

    def step(ctx, batch):
        draws[ctx.rank, ctx.epoch] = draws.get((ctx.rank, ctx.epoch), float(torch.rand(())))
        return regression_step(ctx, batch)

    job = points_job(step=step, dataset=lambda: Points(8))
    with Cohort(job, 1, epoch_splits=1) as cohort:
        cohort.meet()
        cohort.train_epoch(0)
        cohort.train_epoch(1)
        seat = Seat(envelope=cohort.envelope, rank=0)
        cohort.finish()
    for epoch in (0, 1):
        chance = torch.Generator().manual_seed(seat.seed("compute", epoch, 0))
        assert draws[0, epoch] == float(torch.rand((), generator=chance))
