"""What no page says, and what every page is."""

import re

import pytest
from doc_code import ROOT
from doc_text import code_spans, pages, read, rel

from flodl_core.ids import Mode

WHERE = pytest.mark.parametrize("path", pages(), ids=rel)

FORBIDDEN = re.compile(
    r"\b(TODO|FIXME|TBD|legacy|deprecated|coming soon|roadmap|milestone|this issue|issue #?\d+"
    r"|as of today|previously|used to be|section \d+)\b|\b(?-i:DESIGN|RULES|STYLE)\b",
    re.IGNORECASE,
)


@WHERE
def test_no_page_tells_history_or_plans(path):
    found = [line for line in read(path).splitlines() if FORBIDDEN.search(line)]
    assert not found


@WHERE
def test_every_page_begins_with_its_title_and_has_one(path):
    heads = re.findall(r"^# .+$", re.sub(r"```.*?```", "", read(path), flags=re.DOTALL), re.M)
    assert len(heads) == 1
    assert read(path).startswith(heads[0])


@WHERE
def test_no_line_of_prose_is_too_long_to_review(path):
    long = [
        number
        for number, line in enumerate(read(path).splitlines(), 1)
        if len(line) > 140 and not line.startswith(("|", "    "))
    ]
    assert not long


def test_the_readme_names_every_mode():
    status = read(ROOT / "README.md").partition("## Status")[2].partition("\n## ")[0]
    for mode in Mode:
        assert f"`{mode.value}`" in status


def test_the_schema_is_linked_from_the_page_about_http():
    assert "(state.schema.json)" in read(ROOT / "docs" / "http.md")


def test_a_word_of_the_glossary_is_explained_once():
    page = read(ROOT / "docs" / "glossary.md")
    words = [row.split("|")[1].strip() for row in page.splitlines() if row.startswith("| ")][1:]
    assert len(words) == len(set(words))
    assert words
    assert code_spans(page)
