"""Which page holds which block that is made from the code, and which files are made as a whole."""

import json

import doc_console
import doc_machines
import doc_tables
from doc_code import ROOT
from doc_text import pages, read, with_blocks

from flodl_core.telemetry.state import json_schema

BLOCKS = {
    "messages": doc_tables.messages,
    "message-parts": doc_tables.message_parts,
    "wire-words": doc_tables.wire_words,
    "wire-numbers": doc_tables.wire_numbers,
    "reserved-kinds": doc_tables.reserved_kinds,
    "not-sent": doc_tables.not_sent,
    "coordinator-events": doc_tables.coordinator_events,
    "coordinator-effects": doc_tables.coordinator_effects,
    "rings": doc_tables.rings,
    "train-job": doc_tables.train_job,
    "step-context": doc_tables.step_context,
    "state-fields": doc_tables.state_fields,
    "record-fields": doc_tables.record_fields,
    "metric-names": doc_tables.metric_names,
    "alert-classes": doc_tables.alert_classes,
    "bundle-files": doc_tables.bundle_files,
    "worker-fields": doc_tables.worker_fields,
    "file-tables": doc_tables.file_tables,
    "ledger": doc_machines.ledger_table,
    "window": doc_machines.window_table,
    "cycle": doc_machines.cycle_table,
    "cycle-diagram": doc_machines.cycle_diagram,
    "step-ledger": doc_machines.step_ledger_table,
    "settle-steps": doc_machines.settle_steps,
    "inbox": doc_machines.inbox_table,
    "save-purposes": doc_machines.save_table,
    "relay-rounds": doc_machines.relay_rounds,
    "relay-answers": doc_machines.relay_answers,
    "pacer-states": doc_machines.pacer_states,
    "pacer-answers": doc_machines.pacer_answers,
    "pacer-actions": doc_machines.pacer_actions,
    "pacer-holds": doc_machines.pacer_holds,
    "console-keys": doc_console.console_keys,
    "console-columns": doc_console.console_columns,
    "console-pictures": doc_console.console_pictures,
}
"""Block name to what makes it."""


def schema_text():
    """Return the JSON Schema of the status document, as it is published."""
    text = json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"
    return doc_tables.without_sources(text)


WHOLE_FILES = {ROOT / "docs" / "state.schema.json": schema_text}
"""Files that nobody edits."""


def made_pages():
    """Yield (path, text that is there, text that the code makes) of every page with blocks."""
    for path in pages():
        text = read(path)
        made = with_blocks(text, BLOCKS)
        yield path, text, made
    for path, make in WHOLE_FILES.items():
        yield path, read(path) if path.exists() else "", make()
