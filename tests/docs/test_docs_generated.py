"""What pages show of the code is made from the code, and compared.

After an intended change run `FLODL_WRITE_DOCS=1 pytest tests/docs/test_docs_generated.py`
and review the difference of the pages.
"""

import os

import doc_machines
from doc_code import ROOT
from doc_pages import BLOCKS, made_pages
from doc_text import block_names, pages, read, rel

from flodl_core.dispatch import pacer


def test_every_block_and_file_is_what_the_code_makes():
    different = []
    for path, kept, made in made_pages():
        if kept == made:
            continue
        if os.environ.get("FLODL_WRITE_DOCS") == "1":
            path.write_text(made, encoding="utf-8")
        else:
            different.append(rel(path))
    assert not different, (
        f"{', '.join(different)}: not what the code makes now; "
        "run this file with FLODL_WRITE_DOCS=1 and review the difference"
    )


def test_every_block_stands_in_some_page_and_none_is_unknown():
    used = [name for path in pages() for name in block_names(read(path))]
    assert set(used) == set(BLOCKS)


def test_every_deed_of_the_ledger_table_is_explained():
    page = read(ROOT / "docs" / "machines" / "ledger.md")
    assert not [deed for deed in doc_machines.ledger_deeds() if f"**{deed}**" not in page]


def test_every_message_that_a_pacer_takes_is_driven_through_every_state():
    driven = {type(message).__name__ for message in doc_machines.PACER_INPUTS.values()}
    events = {
        kind.__name__
        for kind in (
            pacer.BatchFinished,
            pacer.CycleAdopted,
            pacer.EvalFinished,
            pacer.CheckpointWritten,
            pacer.SnapshotDeclared,
        )
    }
    assert driven == doc_machines.handled_by_pacer() - events
