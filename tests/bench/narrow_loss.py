"""The loss curve of `charlm` on the bf16 wire beside the f32 wire: same seeds, same batches.

    python tests/bench/narrow_loss.py [--steps 300] [--window 5] [--seeds 3] [--lr 1e-4]

Two ranks, one the launcher's and one behind a relay, train in turn in this process and
average after every window through a real root, relay and mux link. Printed are the mean
losses of the seeds at ten points, their difference, and the standard error of the mean of
the seeds, which is the noise that the difference has to be compared with.
"""

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "planes"))

from planes_world import World

from flodl_core.ids import Cycle
from flodl_core.recipes.charlm import job, loss_of
from flodl_core.training.flat import FlatLayout
from flodl_core.training.geometry import build_geometry
from flodl_core.training.rounds import RankRounds
from flodl_core.training.snapshot import Claim
from flodl_core.training.survey import survey_model

RANKS = 2
BATCH = 16


def losses(seed: int, wire: str, *, steps: int, window: int, lr: float) -> torch.Tensor:
    """Return the mean training loss of the ranks, step by step."""
    recipe = job(lr=lr)
    data = recipe.dataset()
    torch.manual_seed(seed)
    models = [recipe.model() for _ in range(RANKS)]
    geometry = build_geometry(survey_model(models[0]))
    world = World(geometry, [[0], [1]], True, "mux", wire)
    rounds = [
        RankRounds(
            FlatLayout(model, geometry, params_memory=world.clients[rank].slot.params),
            world.clients[rank],
        )
        for rank, model in enumerate(models)
    ]
    optimizers = [recipe.optimizer(model) for model in models]
    chance = torch.Generator().manual_seed(1000 + seed)
    curve = torch.zeros(steps)
    _average(rounds, 0, n=(1, 0))
    for step in range(steps):
        for model, optimizer in zip(models, optimizers, strict=True):
            chosen = torch.randint(len(data), (BATCH,), generator=chance).tolist()
            inputs, targets = (
                torch.stack(part) for part in zip(*map(data.__getitem__, chosen), strict=True)
            )
            optimizer.zero_grad()
            loss = loss_of(model, (inputs, targets))
            loss.backward()
            optimizer.step()
            curve[step] += loss.item() / RANKS
        if (step + 1) % window == 0:
            _average(rounds, (step + 1) // window, n=(window, window))
    del models, optimizers, rounds
    world.close()
    return curve


def _average(rounds: list[RankRounds], cycle: int, *, n: tuple[int, ...]) -> None:
    for one, count in zip(rounds, n, strict=True):
        one.offer(Claim(cycle=Cycle(cycle), n=count, samples=count, gamma=1.0, world_size=RANKS))
    for one in rounds:
        while one.wait(60.0) is None:
            pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--window", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--lr", type=float, default=1e-4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    curves = {
        wire: torch.stack(
            [
                losses(seed, wire, steps=options.steps, window=options.window, lr=options.lr)
                for seed in range(options.seeds)
            ]
        )
        for wire in ("f32", "bf16")
    }
    stretch = max(1, options.steps // 10)
    means = {
        wire: curve[:, : stretch * 10].reshape(options.seeds, 10, stretch).mean(2)
        for wire, curve in curves.items()
    }
    noise = means["f32"].std(0) / options.seeds**0.5
    print(f"{'steps':>6} {'f32':>8} {'bf16':>8} {'bf16 - f32':>11} {'std error':>10}")
    for at in range(10):
        wide, narrow = (float(means[wire][:, at].mean()) for wire in ("f32", "bf16"))
        print(
            f"{(at + 1) * stretch:6} {wide:8.4f} {narrow:8.4f} {narrow - wide:11.6f} "
            f"{float(noise[at]):10.6f}"
        )


if __name__ == "__main__":
    main()
