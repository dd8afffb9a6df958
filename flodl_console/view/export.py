"""The rank table and the windows as CSV and JSON, for a file or a clipboard.

What it is: pure text of the facts as the run gave them, with units in the names.
What it is not: what is on screen; nothing is rounded, sorted or left out.
Who drives it: the app's export action.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from flodl_console.view.formats import finite
from flodl_console.view.model import ConsoleView
from flodl_core.telemetry.records import WindowRecord
from flodl_core.telemetry.state import RankState

_FORMULA_STARTS: Final = ("=", "+", "-", "@", "\t", "\r")
_PER_RANK: Final = ("batch_counts", "ms_per_batch", "weights", "divergences")
_RESOURCES: Final = (
    "cpu_percent",
    "ram_used_bytes",
    "gpu_percent",
    "vram_used_bytes",
    "vram_total_bytes",
)

_Value = str | int | float | bool | None


def ranks_csv(view: ConsoleView) -> str:
    """Return one line a rank under a line of names; what is absent is empty."""
    fields = [name for name in RankState.model_fields if name != "resources"]
    rows = [_rank_row(rank) for rank in _ranks(view)]
    return _csv([*fields, *_RESOURCES], rows)


def ranks_json(view: ConsoleView) -> str:
    """Return the ranks as a JSON list, with the run and its age beside it."""
    document = view.document
    return _json(
        {
            "run_id": document.run.id if document else None,
            "uptime_s": finite(document.run.uptime_s) if document else None,
            "ranks": [json.loads(rank.model_dump_json()) for rank in _ranks(view)],
        }
    )


def windows_csv(view: ConsoleView) -> str:
    """Return one line a window, oldest first; each per-rank value has a column of its own."""
    plain = [name for name in WindowRecord.model_fields if name not in _PER_RANK]
    world = max((len(getattr(one, name)) for one in view.windows for name in _PER_RANK), default=0)
    spread = [f"{name}_rank{rank}" for name in _PER_RANK for rank in range(world)]
    return _csv([*plain, *spread], [_window_row(one) for one in view.windows])


def windows_json(view: ConsoleView) -> str:
    """Return the windows as a JSON list, oldest first, with the run beside it."""
    document = view.document
    return _json(
        {
            "run_id": document.run.id if document else None,
            "windows": [json.loads(window.model_dump_json()) for window in view.windows],
        }
    )


def _ranks(view: ConsoleView) -> Sequence[RankState]:
    return view.document.ranks if view.document else ()


def _rank_row(rank: RankState) -> Mapping[str, _Value]:
    row: dict[str, _Value] = json.loads(rank.model_dump_json(exclude={"resources"}))
    if rank.resources is not None:
        row.update(json.loads(rank.resources.model_dump_json()))
    return row


def _window_row(window: WindowRecord) -> Mapping[str, _Value]:
    row: dict[str, _Value] = json.loads(window.model_dump_json(exclude=set(_PER_RANK)))
    lists = json.loads(window.model_dump_json(include=set(_PER_RANK)))
    for name in _PER_RANK:
        row.update({f"{name}_rank{rank}": value for rank, value in enumerate(lists[name])})
    return row


def _csv(fields: Sequence[str], rows: Iterable[Mapping[str, _Value]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fields, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _guarded(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _guarded(value: _Value) -> _Value:
    """Keep a spreadsheet from taking a peer's words for a formula."""
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


def _json(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1) + "\n"
