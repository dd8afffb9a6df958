"""Kills a writer of checkpoints again and again, and says what was found after each kill.

Started by the tests as `chaos_writer.py STEM KILLS SEED`. It forks a writer that saves
without end, kills it after a few milliseconds, and prints one JSON line about what is at
STEM then. After every second kill it also damages the newest complete bundle, where that is not the
only one, and looks once more.
"""

import json
import os
import random
import signal
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from flodl_core.checkpoint.bundle import check_writable, find_bundle, remove_older, write_bundle
from flodl_core.checkpoint.generations import generation_stem, present_ages
from flodl_core.checkpoint.meta import BundleFacts
from flodl_core.checkpoint.values import SavedConsensus
from flodl_core.checkpoint.weights import load_weights
from flodl_core.ids import SaveReason
from flodl_core.messages.job import Geometry, Segment, View

VALUES = 200_000
KEEP = 3
LONGEST_S = 0.1
DAMAGES = (
    *(("truncate", ".safetensors"), ("flip", ".safetensors"), ("delete", ".safetensors")),
    *(("truncate", ".meta.json"), ("flip", ".meta.json"), ("delete", ".meta.json")),
)


@dataclass(frozen=True, slots=True)
class Found:
    """What lay at the stem.

    Attributes:
        after: kill, or the damage done to the newest bundle.
        round: of the newest complete bundle; None if there is none.
        value: that every element of its weights has; None if they differ.
        last: the last save that the writer had finished when it was killed.
        skipped: candidates that were passed over, each with its reason.
        parts: half written files after the next start's look.
    """

    after: str
    round: int | None
    value: float | None
    last: int
    skipped: list[str]
    parts: list[str]


def main() -> None:
    """Kill, look, damage, look."""
    stem, kills, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    chance = random.Random(seed)
    last = 1
    save(stem, last)
    for number in range(kills):
        after_s = chance.uniform(0, LONGEST_S)
        last = write_until_killed(stem, last, after_s=after_s, finishes=number % 5 == 4)
        check_writable(stem)
        tell(look(stem, "kill", last))
        complete = complete_ages(stem)
        if number % 2 and len(complete) > 1:
            kind, suffix = DAMAGES[chance.randrange(len(DAMAGES))]
            newest = generation_stem(stem, complete[0])
            damage(newest.with_name(newest.name + suffix), kind, chance)
            found = look(stem, f"{kind} {suffix}", last)
            tell(found)
            last = found.round or 0


def tell(found: Found) -> None:
    """Print one line."""
    print(json.dumps(asdict(found)), flush=True)


def write_until_killed(stem: Path, last: int, *, after_s: float, finishes: bool) -> int:
    """Let a writer save without end, kill it, and return the last save that it finished.

    Args:
        stem: of the bundle.
        last: number of the last save there.
        after_s: how long it lives.
        finishes: whether that time begins when its first save is done, however slow the machine.
    """
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        while True:
            last += 1
            save(stem, last)
            os.write(write_end, last.to_bytes(8, "little"))
    os.close(write_end)
    first = os.read(read_end, 8) if finishes else b""
    threading.Event().wait(after_s)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    with os.fdopen(read_end, "rb") as told:
        words = first + told.read()
    return int.from_bytes(words[-8:], "little") if words else last


def save(stem: Path, number: int) -> None:
    """Write a bundle of which every value is its number."""
    facts = BundleFacts(
        run_id="0123456789abcdef",
        epoch=0,
        global_step=number,
        sync_round=number,
        world_size=1,
        reason=SaveReason.CHECKPOINT,
    )
    write_bundle(
        stem,
        GEOMETRY,
        SavedConsensus(
            params=np.full(VALUES, number, np.float32),
            buffers=np.zeros(0, np.float32),
            local_buffers={},
        ),
        facts=facts,
    )
    remove_older(stem, KEEP)


def look(stem: Path, after: str, last: int) -> Found:
    """Say what is at the stem."""
    search = find_bundle(stem)
    value = None
    if search.bundle is not None:
        values = load_weights(search.bundle.stem)["weight"]
        value = float(values[0]) if (values == values[0]).all() else None
    return Found(
        after=after,
        round=search.bundle.meta.sync_round if search.bundle is not None else None,
        value=value,
        last=last,
        skipped=[f"{one.path.name}: {one.why}" for one in search.skipped],
        parts=[path.name for path in stem.parent.iterdir() if path.name.startswith(".")],
    )


def complete_ages(stem: Path) -> list[int]:
    """Return the generations that are complete, the newest first."""
    stems = {age: generation_stem(stem, age) for age in present_ages(stem)}
    found = {age: find_bundle(one).bundle for age, one in stems.items()}
    return [age for age, bundle in found.items() if bundle and bundle.stem == stems[age]]


def damage(path: Path, kind: str, chance: random.Random) -> None:
    """Harm a file; one that shares its data with an older generation is parted from it first."""
    body = bytearray(path.read_bytes())
    path.unlink()
    if kind == "truncate":
        path.write_bytes(body[: chance.randrange(len(body))])
    elif kind == "flip":
        body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
        path.write_bytes(body)


GEOMETRY = Geometry(
    params=(
        Segment(
            name="weight",
            dtype="float32",
            shape=(VALUES,),
            offset=0,
            numel=VALUES,
            trainable=True,
            views=(View(name="weight", shape=(VALUES,), strides=(1,), storage_offset=0),),
        ),
    ),
    params_numel=VALUES,
    buffers=(),
    buffers_numel=0,
    locals=(),
)

if __name__ == "__main__":
    main()
