"""Hypothesis strategies for messages, made from their annotations."""

import types
import typing
from dataclasses import fields, is_dataclass
from enum import StrEnum

from hypothesis import strategies as st

from flodl_core.messages import KINDS

_SCALARS = {
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(allow_nan=False),
    str: st.text(max_size=40),
    bytes: st.binary(max_size=300),
    type(None): st.none(),
}


def values_of(annotation):
    """Every value that a field of this annotation may hold."""
    annotation = getattr(annotation, "__supertype__", annotation)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return st.one_of([values_of(argument) for argument in arguments])
    if origin is tuple:
        assert arguments[1] is Ellipsis
        return st.lists(values_of(arguments[0]), max_size=4).map(tuple)
    if origin is dict:
        return st.dictionaries(st.text(max_size=10), values_of(arguments[1]), max_size=4)
    if issubclass(annotation, StrEnum):
        return st.sampled_from(annotation)
    assert is_dataclass(annotation)
    return records_of(annotation)


def records_of(kind):
    """Every instance of a message class or part."""
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{field.name: values_of(hints[field.name]) for field in fields(kind)})


MESSAGES = st.sampled_from(sorted(KINDS)).flatmap(lambda number: records_of(KINDS[number]))
"""Any message."""
