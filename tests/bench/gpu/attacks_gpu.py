"""Whole runs on GPUs under attack: each ends as docs/operations.md says, and leaves nothing.

    python tests/bench/gpu/attacks_gpu.py --ranks 4 --what hang nan memory illegal relay launcher

One JSON object a line; the exit code is 1 if anything was not as expected.
"""

import argparse
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

import whole_run
from whole_run import LONG_S, STOPPED, Crowd, left_on_gpus, tell

from flodl_core.net import clock
from flodl_core.roles.stand_in import STAND_IN

ENDLESS = ("--epochs", "100000")
CEILINGS = ("--heartbeat-timeout-s", "5", "--progress-timeout-s", "8")
AT = "150"
IMAGES_A_PASS = 1408
"""Of the recipe's 1437, those that fill batches of 32."""
ORPHANS_S = 90.0
LONG = 20
LEARNT = 0.95
"""Accuracy that the recipe reaches in so many passes at the latest."""
NOT_THERE = ([], ["spawning"], ["joining"])
Said = dict[str, Any]


def faulty(fault: str, ranks: int) -> Said:
    """The last rank goes wrong; it is named, the others go on."""
    words = (f"fault={fault}", f"rank={ranks - 1}", f"at={AT}")
    crowd = Crowd(ranks, *ENDLESS, *CEILINGS, *(x for w in words for x in ("--job-arg", w)))
    told = wait_for_loss(crowd)
    return go_on_and_stop(crowd, told)


def killed(role: str, ranks: int) -> Said:
    """A relay or an agent of another host is killed: its rank is lost, the others go on."""
    crowd = Crowd(ranks, *ENDLESS, *CEILINGS)
    crowd.run.go_on(5)
    if role == "agent":
        crowd.agents[-1].kill()
    else:
        for pid in crowd.run.pids(role, "host1"):
            os.kill(pid, signal.SIGKILL)
    told = wait_for_loss(crowd)
    return go_on_and_stop(crowd, told)


def gathering(ranks: int) -> Said:
    """A rank is killed before it has said that it is there: the run fails by name."""
    crowd = Crowd(ranks, *ENDLESS, *CEILINGS)
    last = f"rank{ranks - 1}"
    wait_until(lambda: bool(crowd.run.pids("rank", last)), LONG_S)
    for pid in crowd.run.pids("rank", last):
        os.kill(pid, signal.SIGKILL)
    code = crowd.finish()
    wait_until(lambda: not crowd.run.pids(), 20.0)
    said = {"code": code, "reason": crowd.run.summary().get("reason"), "left": crowd.run.pids()}
    is_right = said["reason"] == "rendezvous_failed" and not said["left"]
    return {"right": is_right, **said, "story": crowd.story(code, code)}


def forming(delay_s: float, ranks: int) -> Said:
    """A rank is killed between its Hello and the first average: the others go on."""
    crowd = Crowd(ranks, *ENDLESS, *CEILINGS)
    wait_until(lambda: crowd.run.states()[-1:] not in NOT_THERE, LONG_S)
    select.select([], [], [], delay_s)
    seen = crowd.run.states()
    for pid in crowd.run.pids("rank", f"rank{ranks - 1}"):
        os.kill(pid, signal.SIGKILL)
    told = wait_for_loss(crowd)
    return {"states": seen, **go_on_and_stop(crowd, told)}


def launcher(ranks: int) -> Said:
    """The launcher is killed: everybody ends."""
    crowd = Crowd(ranks, *ENDLESS, *CEILINGS)
    crowd.run.go_on(5)
    crowd.run.process.kill()
    began = clock.now()
    is_over = wait_until(lambda: not crowd.run.pids(), ORPHANS_S)
    said = {"s": clock.now() - began, "left": crowd.run.pids()}
    crowd.finish()
    saved = [path.name for path in crowd.run.place.rglob("*.safetensors")]
    return {"right": is_over and bool(saved), **said, "saved": saved}


def silent(ranks: int) -> Said:
    """The launcher's machine falls silent, with its rank in no average: the others leave words."""
    crowd = Crowd(ranks, *ENDLESS, *CEILINGS)
    crowd.run.go_on(5)
    first = {
        crowd.run.process.pid,
        *crowd.run.pids("relay", "vm"),
        *crowd.run.pids("rank", "rank0"),
    }
    for pid in first:
        os.kill(pid, signal.SIGSTOP)
    began = clock.now()
    is_over = wait_until(lambda: set(crowd.run.pids()) <= first, ORPHANS_S)
    said = {"s": clock.now() - began, "left": sorted(set(crowd.run.pids()) - first)}
    for pid in first & set(crowd.run.pids()):
        os.kill(pid, signal.SIGKILL)
    crowd.finish()
    saved = [path.name for path in crowd.run.place.rglob("*.emergency.safetensors")]
    return {"right": is_over and len(saved) == ranks - 1, **said, "saved": saved}


def resumed(ranks: int, passes: int) -> Said:
    """A run is stopped and goes on: every image counts once a pass."""
    words = ("--epochs", str(passes), *CEILINGS)
    first = Crowd(ranks, *words)
    first.run.go_on(3)
    first.run.process.send_signal(signal.SIGTERM)
    codes = [first.finish()]
    done = first.run.windows()[-1]["samples_done"]
    again = Crowd(ranks, *words, "--resume", "auto", place=first.run.place)
    codes.append(again.finish())
    end = again.run.summary()
    total = sum(epoch["samples"] for epoch in end.get("epochs", []))
    said = {"codes": codes, "done": done, "total": total, "metric": end.get("metric")}
    is_right = codes == [STOPPED, 0] and 0 < done < total == passes * IMAGES_A_PASS
    return {"right": is_right, **said, "story": again.story(0 if is_right else -1, 0)}


def trained(fault: str, ranks: int, passes: int) -> Said:
    """A step of CUDA graphs trains as any other does."""
    crowd = Crowd(ranks, "--epochs", str(passes), "--job-arg", f"fault={fault}")
    code = crowd.finish()
    end = crowd.run.summary()
    is_right = code == 0 and end["samples_trained"] == passes * IMAGES_A_PASS
    is_right = is_right and (end["metric"] > LEARNT or passes < LONG)
    said = {name: end.get(name) for name in ("loss", "metric", "samples_trained", "throughput")}
    return {"right": is_right, "code": code, **said, "story": crowd.story(code, 0)}


def wait_until(is_so: Callable[[], bool], limit_s: float) -> bool:
    """Wait for something; return whether it came."""
    began = clock.now()
    while not is_so():
        if clock.now() > began + limit_s:
            return False
        select.select([], [], [], 0.01)
    return True


def wait_for_loss(crowd: Crowd) -> bool:
    """Wait until a rank's loss was told of."""
    return wait_until(
        lambda: (
            any("rank_lost" in text for text in crowd.run.said())
            or crowd.run.process.poll() is not None
        ),
        LONG_S,
    )


def go_on_and_stop(crowd: Crowd, told: bool) -> Said:
    """The others average on; then the run is stopped."""
    before = crowd.run.cycle()
    after = crowd.run.go_on(5)
    crowd.run.process.send_signal(signal.SIGTERM)
    code = crowd.finish()
    wait_until(lambda: not crowd.run.pids(), 20.0)
    said = {"code": code, "cycles": [before, after], "left": crowd.run.pids()}
    is_right = told and code == STOPPED and after >= before + 5 and not said["left"]
    return {"right": is_right, **said, "story": crowd.story(code if is_right else -1)}


ATTACKS: dict[str, Callable[[int, int], Said]] = {
    **{
        fault: lambda ranks, _, fault=fault: faulty(fault, ranks)  # type: ignore[misc]
        for fault in ("hang", "nan", "memory", "illegal")
    },
    **{
        fault: lambda ranks, passes, fault=fault: trained(fault, ranks, passes)  # type: ignore[misc]
        for fault in ("compiled", "graphed", "none")
    },
    "relay": lambda ranks, _: killed("relay", ranks),
    "agent": lambda ranks, _: killed("agent", ranks),
    "gathering": lambda ranks, _: gathering(ranks),
    "forming": lambda ranks, _: forming(0.0, ranks),
    "forming-later": lambda ranks, _: forming(0.4, ranks),
    "launcher": lambda ranks, _: launcher(ranks),
    "silent": lambda ranks, _: silent(ranks),
    "resume": resumed,
}


def main() -> None:
    """Attack as asked."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--ranks", type=int, default=4)
    arguments.add_argument("--passes", type=int, default=60, help="of what is trained to its end")
    arguments.add_argument("--what", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    arguments.add_argument("--loopback", action="store_true", help="on CPUs, to check the script")
    given = arguments.parse_args()
    if given.loopback:
        whole_run.DEVICE = "cpu"
        os.environ[STAND_IN] = "1"
    is_right = True
    for name in given.what:
        said = ATTACKS[name](given.ranks, given.passes)
        is_right = is_right and said["right"]
        tell(name, said)
    tell("left on GPUs", left_on_gpus())
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
