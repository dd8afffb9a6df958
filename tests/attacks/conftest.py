"""Runs to attack, and the certainty that no process of them survives the tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Launch, launching


@pytest.fixture
def launch(tmp_path: Path) -> Iterator[Launch]:
    """Start runs with real ranks, each in a directory of its own."""
    yield from launching(tmp_path)
