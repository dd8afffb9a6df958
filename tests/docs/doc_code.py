"""What exists in the code: every module, class, function, field and word, read from its syntax."""

import ast
import re
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "flodl_core"

DOCSTRING = re.compile(r'""".*?"""', re.DOTALL)
TEXT = re.compile(r"""\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'""")
COMMENT = re.compile(r"(?<=\s)#(?= |\s|$).*")
WORD = re.compile(r"[A-Za-z0-9_.\-/]+")
NAME = re.compile(r"[A-Za-z_]\w*")


@dataclass
class CodeIndex:
    """All names of the package."""

    modules: set = field(default_factory=set)
    """Dotted, from the package on: `coordinator.machine`, `coordinator`."""
    members: dict = field(default_factory=dict)
    """Class name, or dotted module, to the names in it."""
    names: set = field(default_factory=set)
    """Every name in the code, docstrings, comments and texts left out."""
    words: set = field(default_factory=set)
    """Every text on one line, and the words in it."""


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


def _targets(node):
    if isinstance(node, ast.AnnAssign):
        return [node.target]
    return node.targets if isinstance(node, ast.Assign) else []


def _defined(body):
    """Return the names that a class or module body defines or imports."""
    found = set()
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update((alias.asname or alias.name) for alias in node.names)
        else:
            found.update(one.id for one in _targets(node) if isinstance(one, ast.Name))
    return found


def _members_of(node, lines):
    """Return fields, methods and attributes of a class."""
    source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
    return _defined(node.body) | set(re.findall(r"\bself\.(\w+)", source))


@cache
def code_index():
    """Read the whole package once."""
    index = CodeIndex()
    for path in sorted(PACKAGE.rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        module = module_name(path)
        parts = module.split(".") if module else []
        index.modules |= {".".join(parts[: i + 1]) for i in range(len(parts))}
        tree = parse(path)
        index.members.setdefault(module, set()).update(_defined(tree.body))
        lines = source.splitlines()
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                index.members.setdefault(node.name, set()).update(_members_of(node, lines))
        code = COMMENT.sub("", DOCSTRING.sub("", source))
        for text in TEXT.findall(code):
            index.words.add(text[1:-1])
            index.words.update(WORD.findall(text))
        index.names.update(NAME.findall(TEXT.sub("", code)))
    return index
