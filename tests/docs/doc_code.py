"""What exists in the code: every module, class, function, field and word, read from its syntax."""

import ast
import re
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "flodl_core"


@dataclass
class CodeIndex:
    """All names of the package."""

    modules: set = field(default_factory=set)
    """Dotted, from the package on: `coordinator.machine`, `coordinator`."""
    members: dict = field(default_factory=dict)
    """Class name, or dotted module, to the names in it."""
    names: set = field(default_factory=set)
    """Everything that is defined, assigned, taken or imported anywhere."""
    words: set = field(default_factory=set)
    """Every string constant that is not a docstring, and the words in it."""


def attribute_docs(body):
    """Return the docstrings that stand under assignments of a class or module body."""
    found = {}
    for before, after in pairwise(body):
        is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        target = None
        if isinstance(before, ast.AnnAssign):
            target = before.target
        elif isinstance(before, ast.Assign):
            target = before.targets[0]
        if is_text and isinstance(after.value.value, str) and isinstance(target, ast.Name):
            found[target.id] = " ".join(after.value.value.split())
    return found


@cache
def parse(path):
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def module_name(path):
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def _is_docstring(node, parents):
    return isinstance(parents.get(node), ast.Expr)


def _names_of(node):
    match node:
        case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
            return [node.name]
        case ast.Name():
            return [node.id]
        case ast.Attribute():
            return [node.attr]
        case ast.arg() | ast.keyword():
            return [node.arg] if node.arg else []
        case ast.alias():
            return [*node.name.split("."), *([node.asname] if node.asname else [])]
    return []


def _class_members(node):
    found = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(inner.name)
        elif isinstance(inner, ast.AnnAssign | ast.Assign):
            targets = [inner.target] if isinstance(inner, ast.AnnAssign) else inner.targets
            for target in targets:
                if isinstance(target, ast.Name):
                    found.add(target.id)
                elif isinstance(target, ast.Attribute):
                    found.add(target.attr)
    return found


@cache
def code_index():
    """Read the whole package once."""
    index = CodeIndex()
    for path in sorted(PACKAGE.rglob("*.py")):
        tree = parse(path)
        module = module_name(path)
        parts = module.split(".") if module else []
        index.modules |= {".".join(parts[: i + 1]) for i in range(len(parts))}
        top = index.members.setdefault(module, set())
        parents = {}
        for node in ast.walk(tree):
            for child in ast.iter_child_nodes(node):
                parents[child] = node
            index.names.update(_names_of(node))
            if isinstance(node, ast.ClassDef):
                index.members.setdefault(node.name, set()).update(_class_members(node))
            if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
                if _is_docstring(node, parents):
                    continue
                raw = node.value
                text = raw.decode("latin-1") if isinstance(raw, bytes) else raw
                index.words.add(text)
                index.words.update(re.findall(r"[A-Za-z0-9_.\-/]+", text))
        for node in tree.body:
            top.update(name for inner in ast.walk(node) for name in _names_of(inner))
    index.modules.discard("")
    return index
