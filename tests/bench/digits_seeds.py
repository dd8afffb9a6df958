"""Whether unequal ranks learn `digits` as well as one rank does from as many samples.

    python tests/bench/digits_seeds.py --seeds 1,2,3 --waits 2,4,12

For each seed: one rank, three unequal ranks in cpu_sync, the same in cpu_cadence, each for
the same passes. Prints the accuracy on the held-out images, and means. It asserts nothing.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

JOB = Path(__file__).with_name("digits_job.py")


def accuracy(seed: int, waits: list[str], mode: str, epochs: int) -> tuple[float, int]:
    """Train once; return the accuracy at the end and the samples trained."""
    with tempfile.TemporaryDirectory(prefix="flodl-digits-") as home:
        command = [
            *(sys.executable, "-m", "flodl_core.cli.main", "headless", f"{JOB}:job"),
            *("--ranks", str(len(waits)), "--devices", "cpu", "--mode", mode, "--port", "0"),
            *("--seed", str(seed), "--json", "--run-dir", home),
            *("--job-arg", f"waits_ms={','.join(waits)}", "--job-arg", f"epochs={epochs}"),
        ]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        summary = json.loads(next(Path(home).glob("*/summary.json")).read_text())
        epochs_done = summary["epochs"]
        return float(epochs_done[-1]["metric"]), sum(one["samples"] for one in epochs_done)


def main() -> None:
    """Measure and print."""
    words = argparse.ArgumentParser()
    words.add_argument("--seeds", default="1,2,3")
    words.add_argument("--waits", default="2,4,12")
    words.add_argument("--epochs", type=int, default=10)
    given = words.parse_args()
    waits = given.waits.split(",")
    found: dict[str, list[float]] = {}
    for seed in map(int, given.seeds.split(",")):
        for name, some, mode in (
            ("one rank", waits[:1], "cpu_sync"),
            ("cpu_sync", waits, "cpu_sync"),
            ("cpu_cadence", waits, "cpu_cadence"),
        ):
            score, samples = accuracy(seed, some, mode, given.epochs)
            found.setdefault(name, []).append(score)
            print(f"seed {seed} {name:12s} {100 * score:.2f} %, {samples} samples", flush=True)
    for name, scores in found.items():
        spread = f"{100 * min(scores):.2f}-{100 * max(scores):.2f}"
        print(f"{name:12s} mean {100 * statistics.mean(scores):.2f} % ({spread})")


if __name__ == "__main__":
    main()
