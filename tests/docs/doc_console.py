"""What the page of the console shows of the code: keys, columns, pictures."""

from doc_text import table

from flodl_console.actions import Scope, shown_key
from flodl_console.registry import actions_in
from flodl_console.screenshots import SHOTS
from flodl_console.view.ranks import COLUMNS

HEADINGS = {
    Scope.SHELL: "Everywhere",
    Scope.WINDOW: "Window",
    Scope.TRAINING: "Training",
    Scope.RANK: "Rank",
    Scope.TOPOLOGY: "Topology",
    Scope.EVENTS: "Events",
    Scope.FORM: "The form",
    Scope.HELP: "Help",
    Scope.DIALOG: "Boxes that ask",
}


def console_keys():
    """Every action with its keys, a table a screen."""
    parts = []
    for scope, heading in HEADINGS.items():
        rows = [
            (
                " ".join(f"<kbd>{shown_key(key)}</kbd>" for key in action.keys),
                action.title,
                action.tooltip,
            )
            for action in actions_in(scope)
        ]
        if rows:
            parts.append(f"### {heading}\n\n" + table(("key", "action", "what it does"), rows))
    return "\n".join(parts)


def console_columns():
    """The columns of the rank table, from left to right."""
    ordered = sorted(COLUMNS, key=lambda column: column.priority)
    place = {column.key: number for number, column in enumerate(ordered, 1)}
    rows = [
        (column.title or "(a mark)", column.tooltip, str(place[column.key])) for column in COLUMNS
    ]
    return table(("column", "what it says", "left out"), rows)


def console_pictures():
    """Every picture with its caption."""
    return "\n\n".join(
        f"{shot.caption}\n\n![{shot.name}](../screenshots/{shot.name}.svg)" for shot in SHOTS
    )
