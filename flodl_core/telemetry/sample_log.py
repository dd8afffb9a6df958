"""The sample log: which sample was trained where, written at each commit.

One JSON object a line:

    {"pass": 0, "epoch": 0, "cycle": 7, "rank": 2, "status": "trained",
     "reason": null, "ranges": [[96, 32]], "ids": [4711, …]}

`ranges` are [offset, size] in the pass's permutation, `ids` the samples of the
dataset that lie there. A dropped entry says why.

What it is: the writer that turns committed ranges into ids.
What it is not: the bookkeeper; the coordinator decides what was trained.
Who drives it: the launcher, with every RecordSamples of the coordinator. A write
that fails is kept in `last_error` and never raised.
"""

import json
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Final

from flodl_core.coordinator.effects import SampleEntry, SampleStatus
from flodl_core.dispatch.permutation import Permutation

PERMUTATIONS_KEPT: Final = 2


class SampleLog:
    """Appends entries to a file and counts what they say.

    Attributes:
        trained: samples written as trained.
        dropped: samples written as dropped.
        last_error: why the newest failed write failed, or None.
    """

    def __init__(self, path: Path, *, n_samples: int, seed: int) -> None:
        """Open a fresh log.

        Args:
            path: the file; an older one there is replaced.
            n_samples: samples of the dataset.
            seed: the run's.

        Raises:
            OSError: the file cannot be opened.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.trained = 0
        self.dropped = 0
        self.last_error: str | None = None
        self._file: IO[str] = path.open("w", encoding="utf-8")
        self._n_samples = n_samples
        self._seed = seed
        self._kept: OrderedDict[int, Permutation] = OrderedDict()

    def record(self, entries: Iterable[SampleEntry]) -> bool:
        """Write the entries of one commit and flush; returns whether they were written."""
        lines = []
        for entry in entries:
            samples = sum(one.size for one in entry.ranges)
            if entry.status is SampleStatus.TRAINED:
                self.trained += samples
            else:
                self.dropped += samples
            lines.append(self._line(entry))
        try:
            self._file.write("".join(lines))
            self._file.flush()
        except (OSError, ValueError) as error:
            self.last_error = str(error)
            return False
        return True

    def close(self) -> None:
        """Close the file. Closing twice is harmless."""
        try:
            self._file.close()
        except OSError as error:
            self.last_error = str(error)

    def _line(self, entry: SampleEntry) -> str:
        permutation = self._permutation(entry.pass_index)
        ids: list[int] = []
        for one in entry.ranges:
            ids.extend(permutation.ids(one.offset, one.size).tolist())
        row = {
            "pass": entry.pass_index,
            "epoch": entry.epoch,
            "cycle": entry.cycle,
            "rank": entry.rank,
            "status": entry.status.value,
            "reason": entry.reason or None,
            "ranges": [[one.offset, one.size] for one in entry.ranges],
            "ids": ids,
        }
        return json.dumps(row, separators=(",", ":")) + "\n"

    def _permutation(self, pass_index: int) -> Permutation:
        kept = self._kept.get(pass_index)
        if kept is None:
            kept = Permutation(self._n_samples, self._seed, pass_index)
            self._kept[pass_index] = kept
            while len(self._kept) > PERMUTATIONS_KEPT:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(pass_index)
        return kept


def count_ids(
    path: Path, *, status: SampleStatus = SampleStatus.TRAINED
) -> dict[int, dict[int, int]]:
    """Read a sample log back: per pass, how often each id stands there with that status.

    Raises:
        OSError: the file cannot be read.
        ValueError: a line is no entry.
    """
    counts: dict[int, dict[int, int]] = {}
    with path.open(encoding="utf-8") as file:
        for line in file:
            row = json.loads(line)
            if row["status"] != status.value:
                continue
            of_pass = counts.setdefault(row["pass"], {})
            for sample in row["ids"]:
                of_pass[sample] = of_pass.get(sample, 0) + 1
    return counts
