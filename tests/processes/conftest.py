"""A run for a test, and the certainty that no process of it survives the test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import Launched

Launch = Callable[..., Launched]


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start runs, each in a directory of its own; whatever is left of them is ended."""
    started: list[Launched] = []

    def start(*words: str, port: int = 0, as_json: bool = True) -> Launched:
        place = tmp_path / f"run{len(started)}"
        place.mkdir()
        started.append(Launched(place, *words, port=port, as_json=as_json))
        return started[-1]

    yield start
    for run in started:
        run.destroy()
