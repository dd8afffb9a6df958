"""A rank's training thread with its reports and its real bridge, and nothing else of the loop."""

import socket
import statistics
import subprocess
import time

import torch
from torch import nn
from training_cohort import Cohort

from flodl_core.dispatch.actions import TrainBatch
from flodl_core.net import clock
from flodl_core.roles.bridge import Bridge
from flodl_core.training.batch_notes import BatchNotes
from flodl_core.training.build import build_trainee
from flodl_core.training.job import TrainJob
from flodl_core.training.losses import ReadLoss
from flodl_core.training.share_totals import ShareTotals

WINDOW = 25
"""Batches of a Cadence window; the last one's report goes at once."""


class Blank:
    def __len__(self):
        return 64

    def __getitem__(self, index):
        return torch.zeros(1)


def perceptron():
    return nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )


JOB = TrainJob(
    model=perceptron,
    optimizer=lambda model: torch.optim.SGD(model.parameters(), lr=0.01),
    dataset=Blank,
    step=lambda ctx, batch: 0.0,
)


class Told:
    """Trains a small perceptron and tells of each batch; a process reads what the bridge sends."""

    def __init__(self):
        cohort = Cohort(JOB, 1)
        self.channel = cohort.channels[0]
        seat = cohort.seat(0)
        self.notes = BatchNotes(self.channel, ShareTotals())
        self.context = build_trainee(JOB, seat, cohort.star.ports[0].slot).context
        mine, theirs = socket.socketpair()
        self.reader = subprocess.Popen(["cat"], stdin=theirs, stdout=subprocess.DEVNULL)
        theirs.close()
        self.bridge = Bridge(mine, self.channel, heartbeat_s=1.0, silence_s=60.0)
        self.bridge.start()
        self.x, self.y = torch.randn(32, 784), torch.randint(0, 10, (32,))
        self.batches = 0

    def finish(self):
        self.bridge.finish()
        assert self.reader.wait(10) == 0

    def step(self):
        self.context.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.context.model(self.x), self.y)
        loss.backward()
        self.context.optimizer.step()
        return float(loss.detach())

    def tell(self, number, loss):
        """Report one batch, as the worker does."""
        at = clock.now()
        self.notes.add(
            TrainBatch(0, number * 32, 32),
            ReadLoss(loss, at),
            began=at,
            have_data=at,
            scalars=self.context.take_scalars(),
        )
        self.batches += 1

    def window(self, *, is_told):
        """Train a window; return the thread's and the wall's microseconds of a batch."""
        began_cpu, began = time.thread_time(), time.perf_counter()
        for number in range(WINDOW):
            loss = self.step()
            if is_told:
                self.tell(number, loss)
        if is_told:
            self.channel.flush()
        scale = 1e6 / WINDOW
        return (time.thread_time() - began_cpu) * scale, (time.perf_counter() - began) * scale

    def pairs(self, count):
        """Return (told, bare) windows, one after the other."""
        return [(self.window(is_told=True), self.window(is_told=False)) for _ in range(count)]

    def costs(self, windows):
        """Return what each report cost the thread after a real step, in microseconds."""
        found = []
        for _ in range(windows):
            for number in range(WINDOW):
                loss = self.step()
                began = time.thread_time_ns()
                self.tell(number, loss)
                found.append((time.thread_time_ns() - began) / 1e3)
            self.channel.flush()
        return found


def quartiles(values):
    """Return the three quartiles."""
    return statistics.quantiles(values, n=4)
