"""Where a rank's threads write what happened.

A protocol only: a rank process gives its ProcessLog, a test a list. Any thread of
the process may write.
"""

from typing import Protocol

Value = bool | int | float | str | None


class EventLog(Protocol):
    """Takes records: an event's name and fields."""

    def info(self, event: str, /, **fields: Value) -> None:
        """Record what happened."""

    def warning(self, event: str, /, **fields: Value) -> None:
        """Record what somebody should look at."""

    def exception(self, event: str, error: BaseException, /, **fields: Value) -> None:
        """Record what failed, with its traceback."""
