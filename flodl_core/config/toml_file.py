"""`flodl.toml`: tables of settings, each with the line that it stands on.

What it is: reading one file, and finding a key's line again for errors.
What it is not: what the keys mean; `load` compares them with the schema.
Who drives it: `load`.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flodl_core.errors import ConfigError

FILE_NAME: Final = "flodl.toml"
MAX_FILE_BYTES: Final = 1 << 20

_HEADER: Final = re.compile(r"""^\s*\[\s*["']?([\w-]+)["']?\s*\]""")
_ITEM: Final = re.compile(r"""^\s*\[\[\s*["']?([\w-]+)["']?\s*\]\]""")
_PART: Final = re.compile(r"""^\s*\[\s*["']?([\w-]+)["']?\s*\.\s*["']?([\w-]+)["']?\s*\]""")
_KEY: Final = re.compile(r"""^\s*["']?([\w-]+)["']?\s*(?:\.\s*["']?([\w-]+)["']?\s*)?=""")


@dataclass(frozen=True, slots=True)
class TomlFile:
    """A file that was read: its top-level values, and its text for line numbers."""

    path: Path
    tables: dict[str, object]
    text: str

    def where(self, table: str, name: str | None = None) -> str:
        """Return `file:line` of a key of a table, as well as it can be found."""
        line = _line_of(self.text, table, name)
        return f"{self.path}:{line}" if line else str(self.path)

    def where_item(self, table: str, index: int, name: str) -> str:
        """Return `file:line` of a key of an array's item, else of the item's or the array's own."""
        line = _item_line(self.text, (table, index), name) or _line_of(self.text, table, None)
        return f"{self.path}:{line}" if line else str(self.path)


def read_toml(path: Path) -> TomlFile:
    """Read a file of settings.

    Raises:
        ConfigError: it cannot be read, is above 1 MiB, or is not TOML.
    """
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _unreadable(path, f"cannot be read ({error.strerror})") from error
    if len(data) > MAX_FILE_BYTES:
        raise _unreadable(path, f"is above {MAX_FILE_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
        tables = tomllib.loads(text)
    except ValueError as error:
        raise _unreadable(path, f"is not TOML: {error}") from error
    return TomlFile(path=path, tables=tables, text=text)


def _unreadable(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        "config",
        str(path),
        f"the file {reason}",
        source="file",
        fix="mend the file, or name another one with --config or FLODL_CONFIG",
    )


def _line_of(text: str, table: str, name: str | None) -> int | None:
    """Return the number of the line that sets a key, else of the one that opens its table."""
    current, opened = "", None
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line) or _ITEM.match(line) or _PART.match(line):
            current = header.group(1)
            opened = opened or (number if current == table else None)
            continue
        if not (key := _KEY.match(line)):
            continue
        path = [word for word in (current, *key.groups()) if word]
        if path[:2] == [table, name]:
            return number
        if path[0] == table and not current:
            opened = opened or number
    return opened


def _item_line(text: str, item: tuple[str, int], name: str) -> int | None:
    """Return the number of the line that sets a key in an item, else of the item's heading."""
    count, opened = -1, None
    is_inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if header := _ITEM.match(line):
            count += header.group(1) == item[0]
            is_inside = header.group(1) == item[0] and count == item[1]
            opened = number if is_inside else opened
        elif is_inside and name in _names_on(line):
            return number
        elif _HEADER.match(line):
            is_inside = False
    return opened


def _names_on(line: str) -> tuple[str | None, ...]:
    """Return the key that a line sets, or the part of a table that it opens."""
    part, key = _PART.match(line), _KEY.match(line)
    return (part.group(2) if part else None, key.group(1) if key else None)
