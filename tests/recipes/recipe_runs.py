"""A few ranks of a recipe in one process: one batch each, then the plain average."""

import torch

from flodl_core.training.step_context import Placement, StepContext


def collate(job, dataset, ids):
    make = job.collate or torch.utils.data.default_collate
    return make([dataset[index] for index in ids])


def batches_of(job, dataset, *, size=64):
    for start in range(0, len(dataset), size):
        yield collate(job, dataset, range(start, min(start + size, len(dataset))))


def score(job, model):
    was_training = model.training
    model.eval()
    with torch.no_grad():
        value = job.metric(model, batches_of(job, job.eval_dataset()), torch.device("cpu"))
    model.train(was_training)
    return value


def train(job, *, ranks, windows, seed=1, micro_batch=None):
    """Train `windows` windows of one batch a rank; returns the contexts and the last losses."""
    contexts = []
    for rank in range(ranks):
        torch.manual_seed(seed)
        model = job.model()
        placement = Placement(
            rank=rank, world_size=ranks, batch_size=job.batch_size, micro_batch=micro_batch
        )
        contexts.append(StepContext(model, job.optimizer(model), placement=placement))
    dataset = job.dataset()
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed)).tolist()
    losses = []
    for window in range(windows):
        losses = []
        for context in contexts:
            global_step = window * ranks
            factor = job.scheduler(global_step) if job.scheduler else None
            context.begin_batch(epoch=0, global_step=global_step, lr_factor=factor)
            first = (window * ranks + context.rank) * job.batch_size
            ids = [order[(first + i) % len(order)] for i in range(job.batch_size)]
            losses.append(float(job.step(context, collate(job, dataset, ids))))
            assert context.finish_batch()
        average([context.model for context in contexts])
    return contexts, losses


@torch.no_grad()
def average(models):
    for same in zip(*(model.parameters() for model in models), strict=True):
        mean = torch.stack([one.data for one in same]).mean(dim=0)
        for one in same:
            one.data.copy_(mean)
    for same in zip(*(model.buffers() for model in models), strict=True):
        if same[0].is_floating_point():
            mean = torch.stack(list(same)).mean(dim=0)
            for one in same:
                one.copy_(mean)
