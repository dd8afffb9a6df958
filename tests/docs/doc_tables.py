"""Tables of messages, words, numbers, fields and effects, made from the code."""

import ast
import enum
import inspect
import re
import tomllib
import typing

from doc_code import PACKAGE, ROOT, attribute_docs, parse
from doc_text import table

from flodl_core import ids, units
from flodl_core.checkpoint import bundle
from flodl_core.config.file_tables import SUBJECTS
from flodl_core.config.workers import WorkerConfig
from flodl_core.coordinator import effects, events
from flodl_core.messages import (
    NUMBERS,
    RESERVED_KINDS,
    SCHEMA_VERSION,
    control,
    data,
    job,
    join,
    metrics,
    mux,
    rendezvous,
    timing,
)
from flodl_core.planes import host_port
from flodl_core.telemetry import alerts, records, state
from flodl_core.telemetry import metrics as page_metrics
from flodl_core.training.callbacks import ARGUMENTS, called
from flodl_core.wire import buckets, frame, handshake

CHANNELS = {
    "join": join,
    "rendezvous": rendezvous,
    "control": control,
    "timing": timing,
    "metrics": metrics,
    "mux": mux,
    "data": data,
}


def first_sentence(text):
    """Return the first sentence of a docstring, as one line."""
    line = " ".join((text or "").split("\n\n")[0].split())
    return without_sources(line.split("Attributes:")[0].strip())


def without_sources(text):
    """Return a text without what refers to pages that are not in this repository."""
    return re.sub(r" \((?:DESIGN|RULES)[^)]*\)", "", text)


def source_of(module):
    return parse(inspect.getsourcefile(module))


def classes_of(module):
    return [node for node in source_of(module).body if isinstance(node, ast.ClassDef)]


def fields_of(node):
    """Return (name, annotation as written) of a class's fields, in order."""
    return [
        (one.target.id, ast.unparse(one.annotation))
        for one in node.body
        if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)
    ]


def google_attributes(node):
    """Return the `Attributes:` section of a class docstring, by name."""
    lines = (ast.get_docstring(node) or "").partition("Attributes:\n")[2].split("\n\n")[0]
    found, name = {}, None
    for line in lines.splitlines():
        text = line.strip()
        if line.startswith("    ") and not line.startswith("     ") and ":" in text:
            name, _, rest = text.partition(":")
            found[name] = rest.strip()
        elif name:
            found[name] += f" {text}"
    return found


def _meaning(node):
    docs = {**google_attributes(node), **attribute_docs(node.body)}
    said = [f"`{name}`: {text}" for name, text in docs.items()]
    return " · ".join([first_sentence(ast.get_docstring(node)), *said])


def _fields_cell(node):
    return ", ".join(f"`{name}: {kind}`" for name, kind in fields_of(node)) or "–"


def messages():
    """Return one table a channel: kind, class, fields in the order of the wire, meaning."""
    parts = []
    for name, module in CHANNELS.items():
        rows = [
            (
                NUMBERS[getattr(module, node.name)],
                f"`{node.name}`",
                _fields_cell(node),
                _meaning(node),
            )
            for node in classes_of(module)
            if getattr(module, node.name) in NUMBERS
        ]
        says = first_sentence(ast.get_docstring(source_of(module)))
        parts.append(f"#### {name}\n\n{says}\n")
        parts.append(table(["kind", "message", "fields", "meaning"], rows))
    return "\n".join(parts)


def message_parts():
    """Return the classes that occur inside messages only."""
    rows = [
        (f"`{node.name}`", _fields_cell(node), _meaning(node))
        for module in [*CHANNELS.values(), job]
        for node in classes_of(module)
        if getattr(module, node.name) not in NUMBERS
        and not issubclass(getattr(module, node.name), enum.Enum)
    ]
    return table(["part", "fields", "meaning"], rows)


def wire_words():
    """Return the enumerations that cross the wire, with their values."""
    used = {
        kind
        for module in [*CHANNELS.values(), job]
        for node in classes_of(module)
        for _, annotation in fields_of(node)
        for kind in [annotation.split("|")[0].strip()]
    }
    found = {**vars(ids), **vars(rendezvous)}
    enums = [found[name] for name in sorted(used) if name in found]
    rows = [
        (f"`{one.__name__}`", ", ".join(f"`{word.value}`" for word in one))
        for one in enums
        if isinstance(one, type) and issubclass(one, enum.Enum)
    ]
    return table(["word", "values"], rows)


def reserved_kinds():
    numbers = " and ".join(str(number) for number in sorted(RESERVED_KINDS))
    return f"Kinds {numbers} are reserved: a message of such a kind is ignored on receipt.\n"


def not_sent():
    """Return the messages that no process makes, apart from tests and simulator."""
    outside = [
        path
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in {"messages", "simulation"}
    ]
    called = {
        getattr(node.func, "id", None) or getattr(node.func, "attr", None)
        for path in outside
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call)
    }
    idle = [kind for kind in NUMBERS if kind.__name__ not in called]
    return table(["kind", "message"], [(NUMBERS[kind], f"`{kind.__name__}`") for kind in idle])


def rings():
    """Return the rings of the import contract, outer to inner."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(one["layers"] for one in contracts if one["type"] == "layers")
    return "```text\n" + "\n".join(layers).replace("flodl_core.", "") + "\n```\n"


SIZES = (
    (frame, "MAGIC"),
    (frame, "VERSION"),
    (frame, "HEADER_BYTES"),
    (frame, "TAG_BYTES"),
    (frame, "BUCKET_KIND"),
    (units, "MAX_PAYLOAD_BYTES"),
    (units, "PIECE_BYTES"),
    (units, "BUCKET_BYTES"),
    (buckets, "PIECE_OVERHEAD_BYTES"),
    (host_port, "MAX_AHEAD"),
    (handshake, "HANDSHAKE_VERSION"),
    (handshake, "CLIENT_HELLO_BYTES"),
    (handshake, "SERVER_HELLO_BYTES"),
    (handshake, "NONCE_BYTES"),
    (handshake, "TOKEN_BYTES"),
    (None, "SCHEMA_VERSION"),
)
MEANINGS = {
    "MAGIC": "First bytes of every frame.",
    "VERSION": "Version of the frame; another one ends the connection.",
    "HEADER_BYTES": "Header of a frame or piece.",
    "TAG_BYTES": "HMAC-SHA256 behind a payload.",
    "PIECE_OVERHEAD_BYTES": "Index and tag of a bucket piece.",
    "MAX_AHEAD": "Buckets that a host may be ahead of the consensus it has received.",
    "HANDSHAKE_VERSION": "Version of the key exchange.",
    "CLIENT_HELLO_BYTES": "What the dialling end sends first.",
    "SERVER_HELLO_BYTES": "What the accepting end answers.",
    "NONCE_BYTES": "Fresh randomness of either end.",
    "TOKEN_BYTES": "The join token; the session salt has as many.",
    "SCHEMA_VERSION": "Version of the message set, in `Offer.schema`.",
}


def wire_numbers():
    """Return the sizes and versions that both ends must agree on."""
    rows = []
    for module, name in SIZES:
        value = SCHEMA_VERSION if module is None else getattr(module, name)
        said = {} if module is None else attribute_docs(source_of(module).body)
        shown = f"`{value.decode()}`" if isinstance(value, bytes) else f"{value:,}"
        rows.append((f"`{name}`", shown, MEANINGS.get(name) or said[name]))
    return table(["name", "value", "meaning"], rows)


def _records(module, alias):
    known = {node.name: node for node in classes_of(module)}
    rows = []
    for kind in typing.get_args(alias):
        node = known.get(kind.__name__)
        said = _meaning(node) if node else first_sentence(kind.__doc__)
        rows.append((f"`{kind.__name__}`", said))
    return rows


def coordinator_events():
    return table(["event", "meaning"], _records(events, events.Event))


def coordinator_effects():
    return table(["effect", "meaning"], _records(effects, effects.Effect))


def class_fields(path, name, *, private=False):
    """Return (field, type, meaning) of a class, from its docstrings."""
    node = next(one for one in parse(PACKAGE / path).body if getattr(one, "name", "") == name)
    docs = {**google_attributes(node), **attribute_docs(node.body)}
    defaults = {
        one.target.id: ast.unparse(one.value)
        for one in node.body
        if isinstance(one, ast.AnnAssign) and one.value is not None
    }
    return [
        (field, kind, defaults.get(field), docs.get(field, ""))
        for field, kind in fields_of(node)
        if private or not field.startswith("_")
    ]


def train_job():
    """Return the fields of a job."""
    rows = []
    for name, _, default, said in class_fields("training/job.py", "TrainJob"):
        shown = "required" if default is None else default.strip("'")
        rows.append((f"`{called(name)}`" if name in ARGUMENTS else f"`{name}`", shown, said))
    return table(["field", "default", "meaning"], rows)


def step_context():
    """Return what a step may use of its context."""
    node = next(
        one
        for one in parse(PACKAGE / "training/step_context.py").body
        if getattr(one, "name", "") == "StepContext"
    )
    rows = [(f"`ctx.{name}`", said) for name, said in google_attributes(node).items()]
    drives = {
        "begin_batch",
        "finish_batch",
        "reset_state",
        "reset_optimizer",
        "take_scalars",
        "learning_rate",
    }
    for one in node.body:
        if not isinstance(one, ast.FunctionDef) or one.name.startswith("_") or one.name in drives:
            continue
        is_value = any(getattr(mark, "id", "") == "property" for mark in one.decorator_list)
        call = "" if is_value else "()"
        rows.append((f"`ctx.{one.name}{call}`", first_sentence(ast.get_docstring(one))))
    return table(["helper", "meaning"], rows)


def state_fields():
    """Return one table for each section of the status document, its top level first."""
    return sections_of(state, first="StateDocument")


def record_fields():
    """Return one table for each section of the pages of history and events."""
    return sections_of(records, first="WindowRecord")


def sections_of(module, *, first):
    """Return one table for each section that a module defines."""
    nodes = [
        node
        for node in classes_of(module)
        if issubclass(getattr(module, node.name), state.Section) and node.name != "Section"
    ]
    nodes.sort(key=lambda node: node.name != first)
    parts = []
    for node in nodes:
        docs = attribute_docs(node.body)
        rows = [(f"`{name}`", f"`{kind}`", docs.get(name, "")) for name, kind in fields_of(node)]
        parts.append(f"#### {node.name}\n\n{first_sentence(ast.get_docstring(node))}\n")
        parts.append(table(["field", "type", "meaning"], rows))
    return "\n".join(parts)


def metric_names():
    """Return the metrics of the page for Prometheus."""
    rows = [
        (
            f"`flodl_{metric.name}{'_total' * (metric.kind is page_metrics.MetricKind.COUNTER)}`",
            ", ".join(metric.labels),
            metric.text,
        )
        for metric in page_metrics.METRICS
    ]
    return table(["metric", "labels beside run", "meaning"], rows)


def alert_classes():
    rows = [(f"`{name}`", severity) for name, severity in sorted(alerts.SEVERITIES.items())]
    return table(["class", "usual severity"], rows)


def bundle_files():
    """Return the picture of a bundle's files, as its module draws it."""
    doc = ast.get_docstring(source_of(bundle))
    lines = [line for line in doc.splitlines() if line.startswith("    ")]
    return "```\n" + "\n".join(line[4:] for line in lines) + "\n```\n"


def worker_fields():
    """Return the keys of an item of `[[workers]]`."""
    rows = []
    for name, info in WorkerConfig.model_fields.items():
        default = "required" if info.is_required() else info.get_default(call_default_factory=True)
        shown = ", ".join(default) if isinstance(default, tuple) else default
        rows.append((f"`{name}`", shown or "", " ".join((info.description or "").split())))
    return table(["key", "default", "meaning"], rows)


def file_tables():
    """Return the tables of the file that are made by subject."""
    rows = [
        (f"`[{subject}]`", ", ".join(f"`{name}`" for name in sorted(names)))
        for subject, (_, names) in SUBJECTS.items()
    ]
    return table(["table", "settings"], rows)
