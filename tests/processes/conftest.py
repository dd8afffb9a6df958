"""Runs for tests, and the certainty that no process of them survives the tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Launch, launching


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start runs, each in a directory of its own; whatever is left of them is ended."""
    yield from launching(tmp_path)


@pytest.fixture(scope="module")
def launch_ahead(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launch]:
    """The same for a whole module, whose runs start side by side: most of a start is waiting."""
    yield from launching(tmp_path_factory.mktemp("runs"))
