"""What a field may look like in bytes: annotations compiled into packers and readers.

A shape knows the msgpack tags that may begin it, how a value is made plain for
the packer, and how it is read back. Reading is led by the schema, never by the
bytes: the first byte of every value is compared with the tags that belong
there before the msgpack library builds anything, array lengths are compared
with the class or with the bytes that are left, and nesting is as deep as the
annotations are. So no payload can make a reader allocate more than a small
multiple of its own length.

It is not the list of messages (flodl_core.messages) and knows no kinds; the
codec drives it.
"""

import operator
import types
import typing
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Final, Protocol

import msgpack

MAX_ITEMS: Final = 131_072
"""Most items of one tuple or dict; a model may have 65 536 tensors."""

_INT_TAGS = frozenset([*range(0x80), *range(0xE0, 0x100), *range(0xCC, 0xD4)])
_FLOAT_TAGS = frozenset([0xCB])
_BOOL_TAGS = frozenset([0xC2, 0xC3])
_NONE_TAGS = frozenset([0xC0])
_STR_TAGS = frozenset([*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB])
_BYTES_TAGS = frozenset([0xC4, 0xC5, 0xC6])
_ARRAY_TAGS = frozenset([*range(0x90, 0xA0), 0xDC, 0xDD])
_MAP_TAGS = frozenset([*range(0x80, 0x90), 0xDE, 0xDF])


class MisfitError(Exception):
    """A value or some bytes do not have the shape; the text begins with the field's path."""


class Cursor:
    """A place in one payload, advanced value by value."""

    __slots__ = ("_payload", "_unpacker")

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._unpacker = msgpack.Unpacker(
            raw=False,
            read_size=len(payload) or 1,
            max_buffer_size=len(payload) + 1,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_ext_len=0,
        )
        self._unpacker.feed(payload)

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._payload) - int(self._unpacker.tell())

    def tag(self) -> int:
        """The next byte, not consumed.

        Raises:
            MisfitError: the payload has ended.
        """
        try:
            return self._payload[self._unpacker.tell()]
        except IndexError:
            raise MisfitError(": the payload ends too early") from None

    def expect(self, tags: frozenset[int], name: str) -> None:
        """Check that the next value begins as `name` does.

        Raises:
            MisfitError: it does not.
        """
        tag = self.tag()
        if tag not in tags:
            raise MisfitError(f": byte 0x{tag:02x} does not begin {name}")

    def scalar(self) -> Any:
        """Consume the next value; its tag was checked, so it is no container."""
        return self._unpacker.unpack()

    def count(self, tags: frozenset[int], name: str) -> int:
        """Consume the header of an array or map and return its length.

        Raises:
            MisfitError: it is neither, or claims more items than bytes are left.
        """
        self.expect(tags, name)
        if tags is _ARRAY_TAGS:
            items = int(self._unpacker.read_array_header())
        else:
            items = int(self._unpacker.read_map_header())
        if items > MAX_ITEMS or items > self.left:
            raise MisfitError(f": {items} items claimed, {self.left} bytes left")
        return items


class Shape(Protocol):
    """How one annotation is packed and read."""

    tags: frozenset[int]

    def takes(self, value: object) -> bool:
        """Whether a union should pack this value with this shape."""

    def pack(self, value: Any) -> object:
        """Make the value plain for the packer; raises MisfitError."""

    def read(self, cursor: Cursor) -> Any:
        """Read one value; raises MisfitError or what msgpack raises."""


class _IntShape:
    tags = _INT_TAGS

    def takes(self, value: object) -> bool:
        return type(value) is not bool and hasattr(value, "__index__")

    def pack(self, value: Any) -> object:
        if type(value) is not int:
            if not self.takes(value):
                raise MisfitError(f": {value!r} is no int")
            value = operator.index(value)
        if not -(2**63) <= value < 2**64:
            raise MisfitError(f": {value} does not fit in 64 bits")
        return value

    def read(self, cursor: Cursor) -> Any:
        cursor.expect(_INT_TAGS, "an int")
        return cursor.scalar()


class _FloatShape:
    tags = _FLOAT_TAGS

    def takes(self, value: object) -> bool:
        return isinstance(value, float)

    def pack(self, value: Any) -> object:
        if type(value) is float:
            return value
        if type(value) is bool or not hasattr(value, "__float__"):
            raise MisfitError(f": {value!r} is no float")
        try:
            return float(value)
        except (OverflowError, TypeError, ValueError) as error:
            raise MisfitError(f": {value!r} is no float: {error}") from error

    def read(self, cursor: Cursor) -> Any:
        cursor.expect(_FLOAT_TAGS, "a float")
        return cursor.scalar()


class _PlainShape:
    """bool, str, bytes and None: packed as they are."""

    def __init__(self, kind: type, tags: frozenset[int], name: str) -> None:
        self._kind, self.tags, self._name = kind, tags, name

    def takes(self, value: object) -> bool:
        return isinstance(value, self._kind)

    def pack(self, value: Any) -> object:
        if not isinstance(value, self._kind):
            raise MisfitError(f": {value!r} is not {self._name}")
        return value

    def read(self, cursor: Cursor) -> Any:
        cursor.expect(self.tags, self._name)
        return cursor.scalar()


class _EnumShape:
    tags = _STR_TAGS

    def __init__(self, kind: type[StrEnum]) -> None:
        self._kind = kind
        self._members: dict[str, StrEnum] = {member.value: member for member in kind}

    def takes(self, value: object) -> bool:
        return isinstance(value, self._kind)

    def pack(self, value: Any) -> object:
        if not isinstance(value, self._kind):
            raise MisfitError(f": {value!r} is no {self._kind.__name__}")
        return value.value

    def read(self, cursor: Cursor) -> Any:
        cursor.expect(_STR_TAGS, f"a {self._kind.__name__}")
        text = cursor.scalar()
        member = self._members.get(text)
        if member is None:
            raise MisfitError(f": {text[:40]!r} is no {self._kind.__name__}")
        return member


class _TupleShape:
    tags = _ARRAY_TAGS

    def __init__(self, item: Shape) -> None:
        self._item = item

    def takes(self, value: object) -> bool:
        return isinstance(value, tuple)

    def pack(self, value: Any) -> object:
        if not isinstance(value, tuple):
            raise MisfitError(f": {type(value).__name__} is no tuple")
        if len(value) > MAX_ITEMS:
            raise MisfitError(f": {len(value)} items, at most {MAX_ITEMS}")
        pack = self._item.pack
        try:
            return [pack(item) for item in value]
        except MisfitError as error:
            raise MisfitError(f"[]{error}") from error

    def read(self, cursor: Cursor) -> Any:
        items = cursor.count(_ARRAY_TAGS, "a tuple")
        read = self._item.read
        try:
            return tuple([read(cursor) for _ in range(items)])
        except MisfitError as error:
            raise MisfitError(f"[]{error}") from error


class _DictShape:
    tags = _MAP_TAGS

    def __init__(self, value: Shape) -> None:
        self._value = value

    def takes(self, value: object) -> bool:
        return isinstance(value, dict)

    def pack(self, value: Any) -> object:
        if not isinstance(value, dict):
            raise MisfitError(f": {type(value).__name__} is no dict")
        if len(value) > MAX_ITEMS:
            raise MisfitError(f": {len(value)} items, at most {MAX_ITEMS}")
        plain: dict[object, object] = {}
        for key, item in value.items():
            try:
                plain[_STR.pack(key)] = self._value.pack(item)
            except MisfitError as error:
                raise MisfitError(f"[{key!r}]{error}") from error
        return plain

    def read(self, cursor: Cursor) -> Any:
        items = cursor.count(_MAP_TAGS, "a dict")
        made: dict[str, object] = {}
        for _ in range(items):
            key: str = _STR.read(cursor)
            if key in made:
                raise MisfitError(f": the key {key[:40]!r} occurs twice")
            made[key] = self._value.read(cursor)
        return made


class _RecordShape:
    tags = _ARRAY_TAGS

    def __init__(self, kind: type) -> None:
        hints = typing.get_type_hints(kind)
        self._kind = kind
        self._names = tuple(field.name for field in fields(kind))
        self._shapes = tuple(shape_of(hints[name]) for name in self._names)

    def takes(self, value: object) -> bool:
        return type(value) is self._kind

    def pack(self, value: Any) -> object:
        if type(value) is not self._kind:
            raise MisfitError(f": {type(value).__name__} is no {self._kind.__name__}")
        plain: list[object] = []
        for name, shape in zip(self._names, self._shapes, strict=True):
            try:
                plain.append(shape.pack(getattr(value, name)))
            except MisfitError as error:
                raise MisfitError(f".{name}{error}") from error
        return plain

    def read(self, cursor: Cursor) -> Any:
        items = cursor.count(_ARRAY_TAGS, f"a {self._kind.__name__}")
        if items != len(self._names):
            raise MisfitError(f": {items} fields, a {self._kind.__name__} has {len(self._names)}")
        values: dict[str, Any] = {}
        for name, shape in zip(self._names, self._shapes, strict=True):
            try:
                values[name] = shape.read(cursor)
            except MisfitError as error:
                raise MisfitError(f".{name}{error}") from error
        return self._kind(**values)


class _UnionShape:
    """One of several shapes that begin differently; the first byte tells which."""

    def __init__(self, members: tuple[Shape, ...]) -> None:
        self._members = members
        self._by_tag: dict[int, Shape] = {}
        for member in members:
            for tag in member.tags:
                if tag in self._by_tag:
                    raise TypeError("a union's members must begin with different msgpack tags")
                self._by_tag[tag] = member
        self.tags = frozenset(self._by_tag)

    def takes(self, value: object) -> bool:
        return any(member.takes(value) for member in self._members)

    def pack(self, value: Any) -> object:
        for member in self._members:
            if member.takes(value):
                return member.pack(value)
        if len(self._members) == 2 and value is not None:
            # An optional's one real member may still convert: an int for a float.
            return next(m for m in self._members if m is not _NONE).pack(value)
        raise MisfitError(f": {value!r} is none of the types that may stand here")

    def read(self, cursor: Cursor) -> Any:
        tag = cursor.tag()
        member = self._by_tag.get(tag)
        if member is None:
            raise MisfitError(f": byte 0x{tag:02x} begins none of the types that may stand here")
        return member.read(cursor)


_STR = _PlainShape(str, _STR_TAGS, "a str")
_NONE = _PlainShape(type(None), _NONE_TAGS, "None")
_SCALARS: dict[object, Shape] = {
    bool: _PlainShape(bool, _BOOL_TAGS, "a bool"),
    int: _IntShape(),
    float: _FloatShape(),
    str: _STR,
    bytes: _PlainShape(bytes, _BYTES_TAGS, "bytes"),
    type(None): _NONE,
}


@cache
def shape_of(annotation: Any) -> Shape:
    """Compile an annotation; the result is kept.

    Raises:
        TypeError: the annotation is none of those that messages may use.
    """
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
