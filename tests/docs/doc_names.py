"""What a span of code type may be, and whether the code has it.

A span is a command, an option, a variable, an HTTP request, a path, a place of a class, or
words and names that occur in the code. Anything else is a mistake or prose.
"""

import builtins
import keyword
import re
from functools import cache

from doc_code import PACKAGE, ROOT, code_index

from flodl_core.cli.index import COMMANDS
from flodl_core.cli.reference import command_rows
from flodl_core.config.keys import KEYS
from flodl_core.telemetry.metrics import METRICS

IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*(\(.*\))?")
PATH = re.compile(r"[\w.\-]*(/[\w.\-]*)+|[\w\-]+\.(py|md|json|jsonl|toml|log|out|safetensors)")
MADE_BY_A_RUN = (
    "config.json", "token", "address", "port", "live", "logs/launcher.log", "logs/rank0.log",
    "logs/rank0.out", "records/root.jsonl", "records/root/red.jsonl",
    "records/root/red/rank3.jsonl", "checkpoints/consensus.safetensors", "samples.jsonl",
    "summary.json", "records/", "state.json",
)  # fmt: skip
"""Files of a run directory; a test of the code makes each of them."""

OF_THE_READER = {
    "train.py", "train", "use.py", "scored.py", "job", "out/line.safetensors", "None",
    "loss.backward()", "optimizer.step()", "load_state_dict(assign=True)", "load_state_dict",
    "scikit-learn",
    "lr=3e-4", "red", "[demo]", "quorum not met: 1/2", "Fix:", "wait", "waiting", "Host", "Allow",
    "Origin", "Authorization: Bearer", ".venv", "?kind=save", "?kind=now", "job(**options)",
    "pip install -e .", "pip install -e '.[demo]'", "model.to(device)", "slow", "processes",
    "flodl.toml", "safetensors.torch.load_file", "python",
}  # fmt: skip
"""Words of a reader's own files, of HTTP, and of other tools."""


@cache
def flags():
    rows = [row for name in COMMANDS for row in command_rows(name)]
    return {name for row in rows for name in row.names} | {"--help", "--version"}


@cache
def variables():
    return {key.env for key in KEYS.values() if key.env} | {
        "FLODL_CONFIG", "FLODL_CHILD_EVENT", "FLODL_WRITE_VECTORS", "FLODL_WRITE_DOCS",
    }  # fmt: skip


@cache
def metric_names():
    return {f"flodl_{metric.name}{end}" for metric in METRICS for end in ("", "_total")}


@cache
def targets():
    makefile = (ROOT / "Makefile").read_text()
    return set(re.findall(r"^([a-z]+):", makefile, re.MULTILINE))


def has_path(text):
    """Whether a file or folder is there, seen from the repository or the package."""
    bare = text.rstrip("/")
    return any((base / bare).exists() for base in (ROOT, PACKAGE, ROOT / "docs"))


def has_name(text):
    """Whether a name, perhaps with dots and a call, is in the code."""
    index = code_index()
    parts = text.partition("(")[0].removeprefix("flodl_core.").split(".")
    if parts == ["flodl_core"] or ".".join(parts) in index.modules:
        return True
    if len(parts) == 1 and parts[0].startswith("_"):
        return any(name.endswith(parts[0]) for name in index.names)
    if len(parts) == 1:
        is_class = re.match(r"[A-Z]+[a-z]", parts[0]) is not None
        return parts[0] in (index.names if is_class else index.names | index.words)
    owner, name = ".".join(parts[:-1]), parts[-1]
    holder = {"ctx": "StepContext", "placement": "Placement"}.get(owner)
    if holder is not None:
        return name in index.members[holder]
    if owner in index.members:
        return name in index.members[owner]
    stems = [module for module in index.modules if module.endswith(f".{owner}")]
    if stems:
        return any(name in index.members.get(module, set()) for module in stems)
    return text in KEYS


def has_module(text):
    """Whether a module is ours and exists, or is another tool's."""
    return not text.startswith("flodl_core") or (
        text.removeprefix("flodl_core").lstrip(".") in code_index().modules
    )


def has_command(text):
    """Whether `flodl …` is a command that exists, with options that it has."""
    words = text.split()
    if len(words) == 1 or words[1] in {"--version", "--help"}:
        return True
    if words[1] not in COMMANDS:
        return False
    known = {name for row in command_rows(words[1]) for name in row.names} | {"--help"}
    return all(word.partition("=")[0] in known for word in words if word.startswith("-"))


def has_words(text):
    """Whether every identifier in an expression is a name or a word of the code."""
    index = code_index()
    known = index.names | index.words | set(keyword.kwlist) | set(vars(builtins))
    found = IDENTIFIER.findall(re.sub(r"'[^']*'|\"[^\"]*\"", "", text))
    return bool(found) and all(word in known for word in found)


def unknown(text):
    """Return why a span of code type names nothing, or None."""
    if text in OF_THE_READER or text in MADE_BY_A_RUN:
        return None
    if text in code_index().words and not DOTTED.fullmatch(text):
        return None
    first = text.split()[0]
    if first == "flodl":
        return None if has_command(text) else "no such command or option"
    if first == "make":
        return None if set(text.split()[1:2]) <= targets() else "no such target"
    if text.startswith("--"):
        return None if first.partition("=")[0] in flags() else "no such option"
    if first.startswith("FLODL_"):
        return None if first.partition("=")[0] in variables() else "no such variable"
    if first in {"GET", "POST"} and first != text:
        path = text.split()[1].partition("?")[0]
        return None if path in code_index().words else "no such path"
    if first == "python":
        module = re.search(r"-m ([\w.]+)", text)
        return None if module and has_module(module[1]) else "no such module"
    if "<" in text:
        return None
    if PATH.fullmatch(text):
        return None if has_path(text) or text in code_index().words else "no such file"
    if text in metric_names():
        return None
    if DOTTED.fullmatch(text):
        return None if has_name(text) else "no such name"
    return None if has_words(text) else "not a thing of the code"
