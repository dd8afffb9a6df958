"""What a field may look like in bytes: annotations compiled into packers and readers.

A shape knows the msgpack tags that may begin it, how a value is made plain for
the packer, and how it is read back through a Cursor. Reading is led by the
schema: lengths of records are exact and nesting is as deep as the annotations.

It is not the list of messages (flodl_core.messages) and knows no kinds; the
codec drives it.
"""

import operator
import types
import typing
from dataclasses import fields, is_dataclass
from enum import StrEnum
from typing import Any, Protocol, SupportsFloat, SupportsIndex

from flodl_core.wire.cursor import (
    ARRAY_TAGS,
    BOOL_TAGS,
    BYTES_TAGS,
    FLOAT_TAGS,
    INT_TAGS,
    MAP_TAGS,
    MAX_ITEMS,
    NONE_TAGS,
    STR_TAGS,
    Cursor,
    MisfitError,
)


class Shape(Protocol):
    """How one annotation is packed and read.

    Attributes:
        tags: the bytes that may begin it.
        exact: a value of just this type is packed as it is; None if there is none.
        plain: whether a value whose tag is right is what the library unpacks.
    """

    tags: frozenset[int]
    exact: type | None
    plain: bool

    def takes(self, value: object) -> bool:
        """Whether a union should pack this value with this shape."""

    def pack(self, value: object) -> object:
        """Make the value plain for the packer; raises MisfitError."""

    def read(self, cursor: Cursor) -> object:
        """Read one value; raises MisfitError, IndexError or what msgpack raises."""


class _IntShape:
    tags = INT_TAGS
    exact: type | None = int
    plain = True

    def takes(self, value: object) -> bool:
        return isinstance(value, SupportsIndex) and not isinstance(value, bool)

    def pack(self, value: object) -> object:
        if type(value) is not int:
            if not isinstance(value, SupportsIndex) or isinstance(value, bool):
                raise MisfitError(f": {type(value).__name__} is no int")
            value = operator.index(value)
        return value

    def read(self, cursor: Cursor) -> object:
        cursor.check_tag(INT_TAGS, "an int")
        return cursor.unpack()


class _FloatShape:
    tags = FLOAT_TAGS
    exact: type | None = float
    plain = True

    def takes(self, value: object) -> bool:
        return isinstance(value, float)

    def pack(self, value: object) -> object:
        if type(value) is float:
            return value
        if not isinstance(value, SupportsFloat) or isinstance(value, bool):
            raise MisfitError(f": {type(value).__name__} is no float")
        try:
            return float(value)
        except (OverflowError, TypeError, ValueError) as error:
            raise MisfitError(f": {type(value).__name__} is no float: {error}") from error

    def read(self, cursor: Cursor) -> object:
        cursor.check_tag(FLOAT_TAGS, "a float")
        return cursor.unpack()


class _PlainShape:
    """bool, str, bytes and None: packed as they are."""

    plain = True

    def __init__(self, kind: type, tags: frozenset[int], name: str) -> None:
        self._kind, self.tags, self._name = kind, tags, name
        self.exact: type | None = kind

    def takes(self, value: object) -> bool:
        return isinstance(value, self._kind)

    def pack(self, value: object) -> object:
        if not isinstance(value, self._kind):
            raise MisfitError(f": {type(value).__name__} is not {self._name}")
        return value

    def read(self, cursor: Cursor) -> object:
        cursor.check_tag(self.tags, self._name)
        return cursor.unpack()


class _EnumShape:
    tags = STR_TAGS
    exact: type | None = None
    plain = False

    def __init__(self, kind: type[StrEnum]) -> None:
        self._kind = kind
        self._members: dict[str, StrEnum] = {member.value: member for member in kind}

    def takes(self, value: object) -> bool:
        return isinstance(value, self._kind)

    def pack(self, value: object) -> object:
        if not isinstance(value, self._kind):
            raise MisfitError(f": {type(value).__name__} is no {self._kind.__name__}")
        return value.value

    def read(self, cursor: Cursor) -> object:
        cursor.check_tag(STR_TAGS, f"a {self._kind.__name__}")
        text = str(cursor.unpack())
        member = self._members.get(text)
        if member is None:
            raise MisfitError(f": {text[:40]!r} is no {self._kind.__name__}")
        return member


class _TupleShape:
    tags = ARRAY_TAGS
    exact: type | None = None
    plain = False

    def __init__(self, item: Shape) -> None:
        self._item = item

    def takes(self, value: object) -> bool:
        return isinstance(value, tuple)

    def pack(self, value: object) -> object:
        if not isinstance(value, tuple):
            raise MisfitError(f": {type(value).__name__} is no tuple")
        if len(value) > MAX_ITEMS:
            raise MisfitError(f": {len(value)} items, at most {MAX_ITEMS}")
        pack = self._item.pack
        try:
            return [pack(item) for item in value]
        except MisfitError as error:
            raise MisfitError(f"[]{error}") from error

    def read(self, cursor: Cursor) -> object:
        items = cursor.count(ARRAY_TAGS, "a tuple")
        read = self._item.read
        try:
            return tuple([read(cursor) for _ in range(items)])
        except MisfitError as error:
            raise MisfitError(f"[]{error}") from error


class _DictShape:
    tags = MAP_TAGS
    exact: type | None = None
    plain = False

    def __init__(self, value: Shape) -> None:
        self._value = value

    def takes(self, value: object) -> bool:
        return isinstance(value, dict)

    def pack(self, value: object) -> object:
        if not isinstance(value, dict):
            raise MisfitError(f": {type(value).__name__} is no dict")
        if len(value) > MAX_ITEMS:
            raise MisfitError(f": {len(value)} items, at most {MAX_ITEMS}")
        packed: dict[object, object] = {}
        for key, item in value.items():
            try:
                packed[_STR.pack(key)] = self._value.pack(item)
            except MisfitError as error:
                raise MisfitError(f"[{key!r}]{error}") from error
        return packed

    def read(self, cursor: Cursor) -> object:
        items = cursor.count(MAP_TAGS, "a dict")
        made: dict[str, object] = {}
        for _ in range(items):
            key = str(_STR.read(cursor))
            if key in made:
                raise MisfitError(f": the key {key[:40]!r} occurs twice")
            made[key] = self._value.read(cursor)
        return made


class _RecordShape:
    tags = ARRAY_TAGS
    exact: type | None = None
    plain = False

    def __init__(self, kind: type) -> None:
        hints = typing.get_type_hints(kind)
        self._kind = kind
        self._fields = tuple((f.name, shape_of(hints[f.name])) for f in fields(kind))

    def takes(self, value: object) -> bool:
        return type(value) is self._kind

    def pack(self, value: object) -> object:
        if type(value) is not self._kind:
            raise MisfitError(f": {type(value).__name__} is no {self._kind.__name__}")
        packed: list[object] = []
        for name, shape in self._fields:
            item = getattr(value, name)
            if type(item) is shape.exact:
                packed.append(item)
                continue
            try:
                packed.append(shape.pack(item))
            except MisfitError as error:
                raise MisfitError(f".{name}{error}") from error
        return packed

    def read(self, cursor: Cursor) -> object:
        items = cursor.count(ARRAY_TAGS, f"a {self._kind.__name__}")
        if items != len(self._fields):
            raise MisfitError(f": {items} fields, a {self._kind.__name__} has {len(self._fields)}")
        values: dict[str, Any] = {}
        payload, tell, unpack = cursor.payload, cursor.tell, cursor.unpack
        for name, shape in self._fields:
            if shape.plain and payload[tell()] in shape.tags:
                values[name] = unpack()
                continue
            try:
                values[name] = shape.read(cursor)
            except MisfitError as error:
                raise MisfitError(f".{name}{error}") from error
        return self._kind(**values)


class _UnionShape:
    """One of several shapes that begin differently; the first byte tells which."""

    exact: type | None = None

    def __init__(self, members: tuple[Shape, ...]) -> None:
        self._members = members
        self.plain = all(member.plain for member in members)
        self._by_tag: dict[int, Shape] = {}
        for member in members:
            for tag in member.tags:
                if tag in self._by_tag:
                    raise TypeError("a union's members must begin with different msgpack tags")
                self._by_tag[tag] = member
        self.tags = frozenset(self._by_tag)

    def takes(self, value: object) -> bool:
        return any(member.takes(value) for member in self._members)

    def pack(self, value: object) -> object:
        for member in self._members:
            if member.takes(value):
                return member.pack(value)
        if len(self._members) == 2 and value is not None:
            # An optional's one real member may still convert: an int for a float.
            return next(m for m in self._members if m is not _NONE).pack(value)
        raise MisfitError(f": {type(value).__name__} is none of the types that may stand here")

    def read(self, cursor: Cursor) -> object:
        tag = cursor.payload[cursor.tell()]
        member = self._by_tag.get(tag)
        if member is None:
            raise MisfitError(f": byte 0x{tag:02x} begins none of the types that may stand here")
        return member.read(cursor)


_STR = _PlainShape(str, STR_TAGS, "a str")
_NONE = _PlainShape(type(None), NONE_TAGS, "None")
_SCALARS: dict[object, Shape] = {
    bool: _PlainShape(bool, BOOL_TAGS, "a bool"),
    int: _IntShape(),
    float: _FloatShape(),
    str: _STR,
    bytes: _PlainShape(bytes, BYTES_TAGS, "bytes"),
    type(None): _NONE,
}


_COMPILED: dict[object, Shape] = {}


def shape_of(annotation: object) -> Shape:
    """The shape of an annotation, compiled once.

    Raises:
        TypeError: the annotation is none of those that messages may use.
    """
    shape = _COMPILED.get(annotation)
    if shape is None:
        shape = _COMPILED[annotation] = _compile(annotation)
    return shape


def _compile(annotation: object) -> Shape:
    annotation = getattr(annotation, "__supertype__", annotation)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _UnionShape(tuple(shape_of(argument) for argument in arguments))
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return _TupleShape(shape_of(arguments[0]))
    if origin is dict and arguments[0] is str:
        return _DictShape(shape_of(arguments[1]))
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return _EnumShape(annotation)
    if isinstance(annotation, type) and is_dataclass(annotation):
        return _RecordShape(annotation)
    raise TypeError(f"{annotation!r} cannot be a field of a message")
