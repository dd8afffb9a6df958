"""`python -m flodl_core.simulation --seeds A:B [--mode M] [--resumed]`: simulate seeds A … B - 1.

What it is: the command line of the simulator; one line a failing seed, a table of
outcomes at the end, exit code 1 if any seed failed.
What it is not: a test; `tests/simulation` runs a fixed range.
Who drives it: people who look for the seed that breaks a rule.
"""

import argparse
import sys
from collections import Counter

from flodl_core.ids import Mode
from flodl_core.simulation.rules import SimulationFailure
from flodl_core.simulation.scenario import ON_NCCL, SIMULATED
from flodl_core.simulation.simulate import simulate, simulate_resumed


def _parse_seeds(text: str) -> range:
    first, _, last = text.partition(":")
    return range(int(first), int(last) if last else int(first) + 1)


def say(line: str) -> None:
    """Write one line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(argv: list[str] | None = None) -> int:
    """Simulate the seeds that the arguments name; 1 if a rule was broken, else 0."""
    parser = argparse.ArgumentParser(prog="python -m flodl_core.simulation", description=__doc__)
    parser.add_argument("--seeds", type=_parse_seeds, default=range(300), metavar="A:B")
    parser.add_argument("--mode", type=Mode, choices=(*SIMULATED, *ON_NCCL), default=Mode.CPU_SYNC)
    parser.add_argument(
        "--resumed", action="store_true", help="go on from each run's newest bundle in another"
    )
    parser.add_argument("--verbose", action="store_true", help="one line a seed")
    given = parser.parse_args(argv)
    if given.resumed and given.mode in ON_NCCL:
        parser.error("--resumed is for the modes through the root")
    ends: Counter[str] = Counter()
    failed = 0
    for seed in given.seeds:
        try:
            run = simulate_resumed if given.resumed else simulate
            outcome = run(seed, given.mode)
        except SimulationFailure as failure:
            failed += 1
            say(str(failure))
            continue
        if outcome is None:
            ends["nothing to go on from"] += 1
            continue
        ends[f"exit {outcome.exit_code} {outcome.reason}"] += 1
        if given.verbose:
            say(str(outcome))
    for end, count in sorted(ends.items()):
        say(f"{count:6d}  {end}")
    say(f"{len(given.seeds)} seeds, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
