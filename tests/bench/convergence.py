"""Whether unequal ranks learn as well as one rank does from as many samples, in every mode.

    python tests/bench/convergence.py --task digits --seeds 1,2,3
    python tests/bench/convergence.py --task charlm --seeds 1,2,3

For each seed: one rank, then three unequal ranks in each CPU mode and under two outer
optimizers, each for the same passes over the same samples. Prints the last evaluation of
each run as it ends, and a table of means with their spread. It asserts nothing.

One rank trains twice: with the batch of the whole cohort, so that it takes as many steps
one after the other as a cohort does, and with the batch of one rank of it, so that it takes
three times as many. The goal is a mean that is no worse than that of the former by more
than the spread of the seeds: the distance between the best and the worst of either.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

JOBS = Path(__file__).with_name("convergence_jobs.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One thing to learn.

    Attributes:
        batch: samples that each of the three ranks takes a step.
        more: words by variant.
        is_score: whether more is better.
        words: how a score is printed.
    """

    epochs: int
    batch: int
    more: Mapping[str, tuple[str, ...]]
    is_score: bool
    words: str


FASTER = ("--job-arg", "lr=0.0069")
"""√3 times the recipe's rate, for three ranks under Adam."""
SHORT = ("--anchor", "2", "--max-anchor", "4")
TASKS = {
    "digits": Task(
        epochs=20,
        batch=32,
        more={
            "SlowMo": ("--outer-momentum", "0.5"),
            "DiLoCo": ("--outer-momentum", "0.3"),
        },
        is_score=True,
        words="{:.2%}",
    ),
    "charlm": Task(
        epochs=1,
        batch=16,
        more={
            "cpu_sync": FASTER,
            "cpu_cadence": (*FASTER, *SHORT),
            "cpu_async": (*FASTER, *SHORT),
            "SlowMo": (*FASTER, *SHORT, "--outer-lr", "0.7", "--outer-momentum", "0.3"),
            "DiLoCo": (*FASTER, *SHORT, "--outer-momentum", "0.3"),
        },
        is_score=False,
        words="{:.3f}",
    ),
}
WAITS_MS = ("2", "4", "12")
"""What each of the three ranks waits after a step."""
ALONE, ALONE_SMALL = "one rank, 3 batches", "one rank, 1 batch"
CADENCE = ("--mode", "cpu_cadence")
VARIANTS = {
    ALONE: CADENCE,
    ALONE_SMALL: CADENCE,
    "cpu_sync": ("--mode", "cpu_sync"),
    "cpu_cadence": CADENCE,
    "cpu_async": ("--mode", "cpu_async"),
    "SlowMo": (*CADENCE, "--outer", "slowmo"),
    "DiLoCo": (*CADENCE, "--outer", "nesterov", "--inner-state", "kept"),
}


def train(
    task: str, variant: str, seed: int, *, epochs: int | None, words: list[str]
) -> tuple[float, int]:
    """Train once; return the last evaluation and the samples trained."""
    known = TASKS[task]
    is_alone = variant in (ALONE, ALONE_SMALL)
    waits = WAITS_MS[:1] if is_alone else WAITS_MS
    batch = len(WAITS_MS) * known.batch if variant == ALONE else known.batch
    own = known.more.get(variant, ())
    with tempfile.TemporaryDirectory(prefix="flodl-convergence-") as home:
        command = [
            *(sys.executable, "-m", "flodl_core.cli.main", "headless", f"{JOBS}:{task}"),
            *("--ranks", str(len(waits)), "--devices", "cpu", "--port", "0"),
            *("--seed", str(seed), "--json", "--run-dir", home, "--eval-every", "0"),
            *(
                "--job-arg",
                f"waits_ms={','.join(waits)}",
                "--job-arg",
                f"epochs={epochs or known.epochs}",
            ),
            *("--job-arg", f"batch_size={batch}"),
            *(*VARIANTS[variant], *own, *words),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        summary = json.loads(next(Path(home).glob("*/summary.json")).read_text())
        rows = summary["epochs"]
        return float(rows[-1]["metric"]), sum(one["samples"] for one in rows)


def print_table(task: str, found: dict[str, list[float]]) -> None:
    """Print means, spreads and whether each variant reaches the goal."""
    known = TASKS[task]
    text = known.words.format
    alone = found.get(ALONE, [])
    print(f"| {task} | mean | least to most | no worse than one rank |\n|---|---|---|---|")
    for variant, scores in found.items():
        worse = ""
        if alone and variant not in (ALONE, ALONE_SMALL):
            loss = statistics.mean(alone) - statistics.mean(scores)
            spread = max(max(one) - min(one) for one in (alone, scores))
            worse = "yes" if (loss if known.is_score else -loss) <= spread else "no"
        print(
            f"| {variant} | {text(statistics.mean(scores))} | {text(min(scores))} to "
            f"{text(max(scores))} | {worse} |"
        )


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser()
    words.add_argument("--task", choices=TASKS, required=True)
    words.add_argument("--seeds", default="1,2,3")
    words.add_argument("--variants", default=";".join(VARIANTS), help="names, by semicolons")
    words.add_argument("--epochs", type=int, help="passes, if not the task's own number")
    words.add_argument("more", nargs="*", help="words for every run of several ranks, after --")
    given = words.parse_args()
    found: dict[str, list[float]] = {}
    for seed in map(int, given.seeds.split(",")):
        for variant in given.variants.split(";"):
            began = time.monotonic()
            more = [] if variant in (ALONE, ALONE_SMALL) else given.more
            score, samples = train(given.task, variant, seed, epochs=given.epochs, words=more)
            found.setdefault(variant, []).append(score)
            shown = TASKS[given.task].words.format(score)
            took = time.monotonic() - began
            print(f"seed {seed} {variant:20s} {shown} {samples} samples {took:.0f} s", flush=True)
    print_table(given.task, found)


if __name__ == "__main__":
    main()
