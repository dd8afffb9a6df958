"""The page of faults: each row has its test, each fault that is tested its row."""

import ast
import re

from doc_code import ROOT
from doc_text import read

from flodl_core.ids import ExitCode, SaveReason

PAGE = ROOT / "docs" / "operations.md"
CHAOS = ROOT / "tests" / "chaos"
OF_THE_SUITE = {"test_a_world_of_stand_in_ranks_trains_to_its_end"}
"""About the suite itself."""
PROOF = re.compile(r"\[([^]]+)\]\(\.\./(tests/[\w/]+\.py)\)")


def functions_in(path):
    """Names of the test functions of a file."""
    tree = ast.parse(path.read_text())
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.name.startswith("test_")
    }


def name_of(sentence):
    return "test_" + sentence.replace(" ", "_").replace("-", "_")


def fault_rows():
    """Cells of each row of the tables of faults."""
    faults = read(PAGE).partition("## Faults")[2].partition("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in faults.splitlines() if line.startswith("| ")]
    return [row for row in rows if not row[0].strip().startswith("what you see")]


def test_every_row_of_the_faults_is_proven_by_a_test_that_exists():
    rows = fault_rows()
    assert len(rows) >= 35
    for row in rows:
        assert len(row) == 4, row
        proofs = PROOF.findall(row[3])
        assert proofs, row
        for sentence, path in proofs:
            assert name_of(sentence) in functions_in(ROOT / path), (sentence, path)


def test_every_test_of_the_chaos_suite_is_a_row():
    told = {(path, name_of(sentence)) for sentence, path in PROOF.findall(read(PAGE))}
    for path in sorted(CHAOS.glob("test_*.py")):
        file = f"tests/chaos/{path.name}"
        missing = {(file, name) for name in functions_in(path) - OF_THE_SUITE} - told
        assert not missing


def test_every_reason_of_a_save_is_told():
    rows = read(PAGE).partition("## Why a checkpoint")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", rows, re.M)) == set(SaveReason)


def test_every_exit_code_is_told():
    rows = read(PAGE).partition("## What an exit code")[2].partition("\n## ")[0]
    codes = {value for name, value in vars(ExitCode).items() if name.isupper()}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", rows, re.M)} == codes
