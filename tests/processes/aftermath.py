"""What a run leaves behind, read without the product's own readers."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

Row = dict[str, Any]


def sample_counts(path: Path, status: str = "trained") -> dict[int, Counter[int]]:
    """How often each id stands in each pass of a sample log."""
    counts: dict[int, Counter[int]] = {}
    for line in path.read_text().splitlines():
        row = json.loads(line)
        assert len(row["ids"]) == sum(size for _, size in row["ranges"])
        if row["status"] == status:
            counts.setdefault(row["pass"], Counter()).update(row["ids"])
    return counts


def check_each_once(path: Path, *, samples: int, each_pass: int, passes: int) -> None:
    """In each pass `each_pass` of so many ids are trained, each exactly once, and none dropped."""
    counts = sample_counts(path)
    assert sorted(counts) == list(range(passes))
    for of_pass in counts.values():
        assert set(of_pass.values()) == {1}
        assert set(of_pass) <= set(range(samples))
        assert len(of_pass) == each_pass
    assert not sample_counts(path, "dropped")


def meta_of(stem: Path) -> Row:
    """The meta file of a bundle."""
    meta: Row = json.loads(Path(f"{stem}.meta.json").read_text())
    return meta


def logged(directory: Path, process: str, word: str) -> list[str]:
    """Lines of a process's log that hold a word."""
    path = directory / "logs" / f"{process}.log"
    return [line for line in path.read_text().splitlines() if word in line]
