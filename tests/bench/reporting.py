"""What telling the run about a batch adds to a training step, bridge and all.

    python tests/bench/reporting.py --pairs 400

Windows of 25 steps with and without reports alternate in one process; a window's
difference to its neighbour is a batch's share of everything that reporting costs: the
row, the bridge that takes the interpreter's lock, the process that reads. Quiet
machine, one script at a time. It asserts nothing.
"""

import argparse
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "training"))

from training_reports import WINDOW, Told, quartiles


def show(name: str, values: list[float]) -> None:
    """Print the quartiles of a figure in microseconds."""
    low, middle, high = quartiles(values)
    print(f"{name:44s} {middle:+8.1f} µs   (quartiles {low:+.1f} {high:+.1f})")


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser()
    words.add_argument("--pairs", type=int, default=400)
    count = words.parse_args().pairs
    torch.set_num_threads(1)
    told = Told()
    told.pairs(4)
    pairs = told.pairs(count)
    costs = told.costs(max(1, count // WINDOW))
    told.finish()
    show("a step without reports, wall", [bare[1] for _, bare in pairs])
    show("reports add, wall, paired difference", [one[1] - bare[1] for one, bare in pairs])
    show("reports add, the thread's own time", [one[0] - bare[0] for one, bare in pairs])
    show("one report by itself, the thread's own time", costs)


if __name__ == "__main__":
    main()
