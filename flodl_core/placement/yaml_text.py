"""Plain values as YAML that a person can read and change.

What it is: mappings, lists, numbers, switches and text; text is always quoted as JSON does,
which YAML reads the same.
What it is not: a reader, or all of YAML.
Who drives it: `flodl manifests`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Tree: TypeAlias = "Mapping[str, Tree] | Sequence[Tree] | str | int | float | bool | None"


def yaml_text(tree: Tree) -> str:
    """Return a value as a YAML document, its last line ended."""
    return "\n".join(_lines(tree, indent=0)) + "\n"


def _lines(tree: Tree, *, indent: int) -> list[str]:
    pad = "  " * indent
    if isinstance(tree, Mapping) and tree:
        lines = []
        for key, value in tree.items():
            lines += _entry(f"{pad}{_key(key)}:", value, indent=indent)
        return lines
    if isinstance(tree, Sequence) and not isinstance(tree, str) and tree:
        lines = []
        for value in tree:
            inner = _lines(value, indent=indent + 1)
            lines += [f"{pad}- {inner[0].strip()}", *inner[1:]]
        return lines
    return [pad + json.dumps(tree, ensure_ascii=False)]


def _entry(head: str, value: Tree, *, indent: int) -> list[str]:
    is_nested = isinstance(value, Mapping | Sequence) and not isinstance(value, str) and value
    if is_nested:
        return [head, *_lines(value, indent=indent + 1)]
    return [f"{head} {json.dumps(value, ensure_ascii=False)}"]


def _key(key: str) -> str:
    plain = key.replace("-", "").replace("_", "").replace(".", "").replace("/", "")
    return key if plain.isalnum() and plain.isascii() and not key[0].isdigit() else json.dumps(key)
