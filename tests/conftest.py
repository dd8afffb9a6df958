"""What every test may rely on, however the tests were started.

A shell that starts them in the background makes SIGINT ignored, and every child would
inherit that; tests that press Ctrl-C need it to mean something.

Files with real processes come first: workers that share the tests by file then end together,
because what is left for the end are many small ones.
"""

import signal

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put files with real processes before all others; within a file nothing changes."""
    heavy = {item.path for item in items if item.get_closest_marker("processes")}
    items.sort(key=lambda item: item.path not in heavy)
