"""A small real run for faults: a launcher with ranks 0 and 1, and the host blue with 2 and 3.

blue dials in with a `flodl join` of its own, which is no child of the launcher. Ranks
train without torch (see `rig`) unless a case asks for real ones. Processes stop at the
places that a case names, so that a fault strikes in the phase that it is about.
"""

import hashlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from aftermath import check_each_once, logged, sample_counts
from harness import SHORT_S, Beside, Launched, Said
from process_table import Process, await_ends, look_until
from safetensors.numpy import load_file

RIG = Path(__file__).with_name("rig")
GUEST = "blue"
SAMPLES, BATCH, PASSES = 96, 4, 2
EVERY_RANK = (0, 1, 2, 3)
SPAWNING = "spawning"
MANY_BUCKETS = 2_200_000
"""Parameters that take three buckets of 4 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roads:
    """How launcher and guest reach each other.

    Attributes:
        near: the command through which the launcher is started.
        far: the same of the guest.
        address: where the launcher listens.
    """

    near: tuple[str, ...]
    far: tuple[str, ...]
    address: str


class ChaosWorld:
    """One run with its guest.

    Args:
        place: an empty directory.
        words: further words of `flodl headless`.
        park: stopping places, `who:place:nth` with commas between.
        options: of the job.
        real: whether ranks use torch.
        job: a recipe or a file; stand-in ranks only take its options.
        joins: whether the guest is started; else the run waits for it.
        roads: how launcher and guest reach each other; loopback if None.
        extra: further variables of the environment.
    """

    def __init__(
        self,
        place: Path,
        *words: str,
        park: str = "",
        options: dict[str, object] | None = None,
        real: bool = False,
        job: str = "synthetic",
        joins: bool = True,
        roads: Roads | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        self.roads = roads
        self.marks = place / "marks"
        self.marks.mkdir(parents=True)
        self.real = real
        shape = {"samples": SAMPLES, "batch_size": BATCH, **(options or {})}
        variables = {
            **(extra or {}),
            "PYTHONPATH": os.pathsep.join(filter(None, (str(RIG), os.environ.get("PYTHONPATH")))),
            "CHAOS_DIR": str(self.marks),
            "CHAOS_PARK": park,
            "CHAOS_RANKS": "real" if real else "",
        }
        self.run = Launched(
            place,
            job,
            *(word for key, value in shape.items() for word in ("--job-arg", f"{key}={value}")),
            *("--epochs", str(PASSES), "--sample-log", "auto", "--ranks", "2"),
            *("--callback-rank", "rank:0"),
            *(("--min-rank-start", "4", "--target-ranks", "4") if joins else ()),
            *(("--bind", roads.address) if roads else ()),
            *words,
            extra=variables,
            through=roads.near if roads else (),
        )
        self._guest: Beside | None = None
        if joins:
            self.join()

    def join(self) -> None:
        """Let the guest dial in."""
        roads, port = self.roads, self.run.port
        self._guest = self.run.start_flodl(
            *("join", f"{roads.address if roads else '127.0.0.1'}:{port}", "--host", GUEST),
            *("--ranks", "2", "--run-dir", "guest", "--token-file", str(self.run.token_file)),
            through=roads.far if roads else (),
        )

    @property
    def agent(self) -> Beside:
        """The guest's command."""
        assert self._guest is not None
        return self._guest

    def until_joined(self, ranks: int, within_s: float = SHORT_S) -> None:
        """Wait until the window has so many ranks, no more."""
        self.run.until(
            f"{ranks} ranks in the window",
            lambda: self.run.document.get("joined_ranks") == ranks,
            within_s,
        )

    # -- stopping places ------------------------------------------------------------

    def until_parked(self, who: str, place: str) -> None:
        """Wait until a process stands at a stopping place."""
        mark = self.marks / f"{who}.{place}"
        parked = look_until(lambda: mark.exists() or self.run.launcher_ended, SHORT_S)
        assert mark.exists(), f"{who} never came to {place} ({parked})\n{self.run.story()}"

    def until_heard(self) -> None:
        """Wait until the coordinator has heard every rank that took part, so that silence counts.

        Nothing is shown of a rank that has not said Hello, though its silence counts too.
        """

        def heard() -> bool:
            rows = [row for row in self.run.document.get("ranks") or () if row["state"] != SPAWNING]
            return len(rows) >= 3 and all(row["heartbeat_age_s"] is not None for row in rows)

        self.run.until("a word of every rank", heard, SHORT_S)

    def go(self) -> None:
        """Let everybody go on who stands at a stopping place, or comes to one."""
        (self.marks / "go").touch()

    # -- faults ---------------------------------------------------------------------

    def victim(self, role: str) -> Process:
        """The process of a role: launcher, agent, relay, or rank3."""
        if role == "launcher":
            return self.run.launcher
        return self.run.process(f"{role} {GUEST}" if role in ("agent", "relay") else role)

    def strike(self, victim: Process, number: signal.Signals) -> float:
        """Send the signal; returns the moment, by the clock of the logs."""
        at = self.now()
        victim.send(number)
        return at

    def now(self) -> float:
        """The moment, by the clock of the logs."""
        return time.time()

    # -- the aftermath --------------------------------------------------------------

    def lost(self, rank: int, within_s: float = SHORT_S) -> str:
        """Wait for the alert that a rank was lost; returns it."""

        def told() -> str:
            texts = self.run.texts("alert")
            return next((one for one in texts if "rank_lost" in one and f"rank {rank} " in one), "")

        return self.run.until(f"the loss of rank {rank}", told, within_s)

    def told_after(self, at: float, rank: int) -> float:
        """How long after a moment the launcher knew that a rank was lost, by its own log."""
        for line in logged(self.run.directory, "launcher", "alert_class=rank_lost"):
            if f"rank {rank} " in line:
                return datetime.fromisoformat(line.split()[0]).timestamp() - at
        raise AssertionError(f"the log has no loss of rank {rank}\n{self.run.story()}")

    def check_whole(self, passes: int = PASSES) -> None:
        """Each sample of each pass was trained once, and the summary says so."""
        log = self.run.directory / "samples.jsonl"
        check_each_once(log, samples=SAMPLES, each_pass=SAMPLES, passes=passes)
        assert self.run.summary["samples_trained"] == passes * SAMPLES
        assert self.run.summary["samples_dropped"] == 0

    def check_no_sample_twice(self) -> int:
        """No sample of a pass was trained twice; returns how many were trained."""
        path = self.run.directory / "samples.jsonl"
        counts = sample_counts(path) if path.exists() else {}
        for of_pass in counts.values():
            assert set(of_pass.values()) <= {1}
        return sum(of_pass.total() for of_pass in counts.values())

    def check_survivors(self, ranks: tuple[int, ...], stem: Path | None = None) -> None:
        """Those ranks ended with the very values that were saved, and no other rank did."""
        if self.real:
            return
        saved = load_file(f"{stem or self.run.stem}.safetensors")
        assert all(np.isfinite(value).all() for value in saved.values())
        expected = _digest(saved["weight"], saved["running"])
        found = {path.name: path.read_text() for path in self.marks.glob("*.digest")}
        assert found == {f"rank{rank}.digest": expected for rank in ranks}, self.run.story()

    def finish(self, guest_code: int = 0) -> int:
        """Wait for the run's end and its guest's; returns the run's exit code.

        Nothing is left then, and no process has printed a traceback.
        """
        code = self.run.finish(leaves_guest=True)
        said = self.guest_ends()
        assert said.code == guest_code, said
        self.run.check_nothing_left()
        self.run.check_quiet()
        return code

    def guest_ends(self, within_s: float = SHORT_S) -> Said:
        """Wait for the guest's command to end."""
        return self.agent.finish(within_s)

    def ended(self, processes: list[Process], within_s: float) -> None:
        """Those processes end in time."""
        left = await_ends(processes, within_s)
        assert not left, f"left after {within_s:g} s: {left}\n{self.run.story()}"

    def destroy(self) -> None:
        """End whatever is left, by force."""
        self.run.destroy()


def _digest(weight: Any, running: Any) -> str:
    return hashlib.sha256(weight.tobytes() + running.tobytes()).hexdigest()
