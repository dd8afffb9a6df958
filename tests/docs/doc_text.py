"""Reading the pages: inline code, fenced blocks, links, and blocks that are made from the code."""

import re
from pathlib import Path

from doc_code import ROOT

FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```\s*$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(`+)(.+?)\1")
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
GENERATED = re.compile(
    r"(<!-- made from the code: (?P<name>[\w.-]+) -->\n)(?P<body>.*?)(<!-- end of \2 -->)",
    re.DOTALL,
)
WRITTEN_ELSEWHERE = {"docs/cli.md"}
"""Pages that are made as a whole, and compared, by another part of the house."""


def pages():
    """Return every page, README and changelog included."""
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if str(path.relative_to(ROOT)) not in WRITTEN_ELSEWHERE]


def rel(path):
    return str(Path(path).relative_to(ROOT))


def read(path):
    return Path(path).read_text(encoding="utf-8")


def fences(text, *languages):
    """Return the bodies of the fenced blocks in these languages, all if none is named."""
    return [
        body for language, body in FENCE.findall(text) if not languages or language in languages
    ]


def without_fences(text):
    return FENCE.sub("", text)


def code_spans(text):
    """Return every inline code span outside of fenced blocks, in order."""
    return [body.replace("\\|", "|").strip() for _, body in SPAN.findall(without_fences(text))]


def links(text):
    return LINK.findall(without_fences(text))


def heading_anchors(text):
    """Return the anchors that a forge makes of the headings."""
    heads = re.findall(r"^#+\s+(.+?)\s*$", without_fences(text), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", head.lower()) for head in heads]
    return {head.replace(" ", "-") for head in plain}


def block_names(text):
    return [match["name"] for match in GENERATED.finditer(text)]


def with_blocks(text, made):
    """Return the page with every block of the code put in its place."""

    def put(match):
        body = made[match["name"]]().rstrip("\n")
        return f"{match[1]}{body}\n{match[4]}"

    return GENERATED.sub(put, text)


def table(head, rows):
    """Return a Markdown table; a cell's pipes are escaped."""
    lines = [_row(head), "|" + "---|" * len(head)]
    return "\n".join([*lines, *map(_row, rows)]) + "\n"


def _row(cells):
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"
