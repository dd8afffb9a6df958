"""One payload, read value by value, so that the schema leads and not the bytes.

The first byte of every value is compared with those that may stand there before
the msgpack library builds anything, and the length of an array or map with the
bytes that are left. So no payload can make a reader allocate more than a small
multiple of its own length, however it nests or whatever lengths it claims.

It knows no annotations; flodl_core.wire.shapes drives it.
"""

from collections.abc import Callable
from typing import Any, Final

import msgpack

MAX_ITEMS: Final = 131_072
"""Most items of one tuple or dict; a model may have 65 536 tensors."""

INT_TAGS: Final = frozenset([*range(0x80), *range(0xE0, 0x100), *range(0xCC, 0xD4)])
FLOAT_TAGS: Final = frozenset([0xCB])
BOOL_TAGS: Final = frozenset([0xC2, 0xC3])
NONE_TAGS: Final = frozenset([0xC0])
STR_TAGS: Final = frozenset([*range(0xA0, 0xC0), 0xD9, 0xDA, 0xDB])
BYTES_TAGS: Final = frozenset([0xC4, 0xC5, 0xC6])
ARRAY_TAGS: Final = frozenset([*range(0x90, 0xA0), 0xDC, 0xDD])
MAP_TAGS: Final = frozenset([*range(0x80, 0x90), 0xDE, 0xDF])


class MisfitError(Exception):
    """A value or some bytes do not have the shape; the text begins with the field's path."""


class Cursor:
    """A place in one payload, advanced value by value.

    Attributes:
        payload: the whole payload.
        tell: where the next value begins.
        unpack: consumes the next value; call it only after its tag was checked.
    """

    __slots__ = ("_unpacker", "payload", "tell", "unpack")

    def __init__(self, payload: bytes) -> None:
        self._unpacker = msgpack.Unpacker(
            raw=False,
            read_size=len(payload) or 1,
            max_buffer_size=len(payload) + 1,
            max_array_len=MAX_ITEMS,
            max_map_len=MAX_ITEMS,
            max_ext_len=0,
        )
        self._unpacker.feed(payload)
        self.payload = payload
        self.tell: Callable[[], int] = self._unpacker.tell
        self.unpack: Callable[[], Any] = self._unpacker.unpack

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self.payload) - self.tell()

    def count(self, tags: frozenset[int], name: str) -> int:
        """Consume the header of an array or map and return its length.

        Raises:
            MisfitError: it is neither, or claims more items than bytes are left.
            IndexError: the payload has ended.
        """
        self.check_tag(tags, name)
        if tags is ARRAY_TAGS:
            items = int(self._unpacker.read_array_header())
        else:
            items = int(self._unpacker.read_map_header())
        if items > MAX_ITEMS or items > self.left:
            raise MisfitError(f": {items} items claimed, {self.left} bytes left")
        return items

    def check_tag(self, tags: frozenset[int], name: str) -> None:
        """Check that the next value begins as `name` does.

        Raises:
            MisfitError: it does not.
            IndexError: the payload has ended.
        """
        tag = self.payload[self.tell()]
        if tag not in tags:
            raise MisfitError(f": byte 0x{tag:02x} does not begin {name}")
