"""Every name, file, command and link in the pages exists."""

import re

import pytest
from doc_code import ROOT, code_index
from doc_names import has_command, unknown
from doc_text import code_spans, fences, heading_anchors, links, pages, read, rel

from flodl_core.config.keys import KEYS

WHERE = pytest.mark.parametrize("path", pages(), ids=rel)


@WHERE
def test_every_name_in_code_type_exists(path):
    wrong = {span: why for span in code_spans(read(path)) if (why := unknown(span))}
    assert not wrong


@WHERE
def test_every_name_in_a_diagram_exists(path):
    humps = re.compile(r"\b[A-Z][a-z]+(?:[A-Z][a-z]+)+\b")
    found = {word for body in fences(read(path), "mermaid") for word in humps.findall(body)}
    assert not found - code_index().names


@WHERE
def test_every_link_leads_somewhere(path):
    wrong = []
    for link in links(read(path)):
        target, _, anchor = link.partition("#")
        if target.startswith("https://"):
            continue
        file = (path.parent / target).resolve() if target else path
        if not file.exists() or (anchor and anchor not in heading_anchors(read(file))):
            wrong.append(link)
    assert not wrong


@WHERE
def test_every_command_line_can_be_typed(path):
    wrong = []
    for body in fences(read(path), "sh"):
        for line in body.splitlines():
            words = line.partition("  #")[0].strip()
            words = re.sub(r"^(FLODL_\w+=\S+ )+", "", words)
            if words.startswith("flodl ") and not has_command(words):
                wrong.append(line)
            if words.startswith("make ") and f"{words.split()[1]}:" not in read(ROOT / "Makefile"):
                wrong.append(line)
    assert not wrong


def test_the_checker_refuses_what_is_not_there():
    for text in (
        "NoSuchClass", "Coordinator.nothing", "coordinator/nothing.py", "flodl nothing",
        "flodl stop --nothing", "--nothing", "make nothing", "FLODL_NOTHING", "GET /nothing",
        "python -m flodl_core.nothing", "coordinator.machine.Nothing", "x: NoSuchType",
    ):  # fmt: skip
        assert unknown(text), text
    for text in (
        "Coordinator", "Coordinator.handle", "coordinator/machine.py", "flodl stop --now", "--now",
        "coordinator.machine", "ctx.accumulate()", "rank: Rank", "make demo", "averaging.trigger",
    ):  # fmt: skip
        assert not unknown(text), text


def test_the_ceilings_in_the_pages_are_the_defaults():
    from flodl_core.config.schema import JoinConfig, RunConfig

    models = {"run": RunConfig, "join": JoinConfig}
    by_flag = {key.flag: key for key in KEYS.values() if key.table in models}
    said = [
        (flag, float(number))
        for path in pages()
        for flag, number in re.findall(r"`(--[a-z-]+-s)` \(?(\d+)\)?", read(path))
    ]
    assert len(said) >= 6
    for flag, number in said:
        key = by_flag[flag]
        assert models[key.table].model_fields[key.name].default == number, flag
