"""Runs for faults, and the certainty that no process of them survives the tests."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from chaos_world import ChaosWorld
from harness import Launch, launching

Start = Callable[..., ChaosWorld]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start runs, each in a directory of its own; whatever is left of them is ended."""
    worlds: list[ChaosWorld] = []

    def begin(*words: str, **given: object) -> ChaosWorld:
        place = tmp_path / f"run{len(worlds)}"
        worlds.append(ChaosWorld(place, *words, **given))  # type: ignore[arg-type]
        return worlds[-1]

    yield begin
    for world in worlds:
        world.destroy()


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start runs with real ranks, each in a directory of its own."""
    yield from launching(tmp_path)
