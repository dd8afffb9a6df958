"""The one error that a reader should see out of what a task group collected."""

from typing import TypeVar

ErrorT = TypeVar("ErrorT", bound=BaseException)


def innermost(group: BaseExceptionGroup[ErrorT]) -> ErrorT:
    """Return the first single error of a group, however deep it lies."""
    first = group.exceptions[0]
    return innermost(first) if isinstance(first, BaseExceptionGroup) else first
