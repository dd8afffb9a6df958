import io
import subprocess
import sys

import pytest
from rich.console import Console
from telemetry_documents import alert, document, in_training, member, rank_state, wait

from flodl_core.telemetry.live_view import LiveProgress, draw
from flodl_core.telemetry.summary import summarize


def console(width=80):
    return Console(
        file=io.StringIO(), width=width, height=24, force_terminal=True, color_system=None
    )


def drawn(whole, width=80):
    with (made := console(width)).capture() as capture:
        made.print(draw(whole))
    return capture.get().splitlines()


def test_the_panel_says_who_where_how_long_and_what_next_in_eighty_columns():
    lines = drawn(in_training(65.0, waits=(wait(12.0),)))
    assert all(len(line) <= 80 for line in lines)
    assert lines[0].startswith("charlm 00112233445566aa  training  cpu_sync  port 1337  1m05s")
    assert any(line.startswith("train    epoch 1/3") for line in lines)
    assert any("cycle 11" in line and "1.34 MiB" in line for line in lines)
    rows = [line.split() for line in lines if "cpu:" in line]
    assert [row[:4] for row in rows] == [
        ["0", "red", "cpu:0", "training"],
        ["1", "red", "cpu:1", "training"],
        ["2", "blue", "cpu:0", "training"],
        ["3", "blue", "cpu:1", "training"],
    ]
    assert any(
        line.startswith("waiting: rank 3 reducing 12s/5m00s, then the run") for line in lines
    )


def test_the_open_window_is_drawn():
    lines = drawn(document(joined_ranks=2, members=(member(),), window_remaining_s=30.0))
    assert "waiting  2/4 ranks, window closes in 30s" in [line.rstrip() for line in lines]


def test_a_large_world_is_cut_with_a_count():
    lines = drawn(in_training(ranks=tuple(rank_state(i) for i in range(40))))
    assert len(lines) < 24
    assert any("24 more" in line for line in lines)


def test_a_pending_reduce_shows_its_age_and_ceiling():
    busy = in_training()
    reduce = busy.reduce.model_copy(update={"pending_s": 7.0, "stall_ceiling_s": 300.0})
    assert any("pending 7.0s/5m00s" in line for line in drawn(in_training(reduce=reduce)))


def test_changes_stay_above_the_panel_and_the_summary_ends_it():
    made = console(200)
    with LiveProgress(made) as progress:
        progress.update(in_training(1.0))
        progress.update(in_training(2.0, alerts=(alert(detail="bad\x1b[2J"),)))
        progress.finish(summarize(in_training(3.0), exit_code=0, reason="finished"))
    text = made.file.getvalue()
    assert "alert    critical rank_lost at root/blue/rank3: bad\\x1b[2J" in text
    assert text.rstrip().endswith("done: finished")


@pytest.mark.slow
@pytest.mark.processes
def test_nothing_but_the_live_view_loads_rich_and_nothing_loads_torch():
    code = (
        "import sys, importlib, pkgutil, flodl_core.telemetry as t, flodl_core.checkpoint as c\n"
        "for p in (t, c):\n"
        "  for m in pkgutil.iter_modules(p.__path__):\n"
        "    if m.name != 'live_view': importlib.import_module(f'{p.__name__}.{m.name}')\n"
        "import flodl_core.recipes\n"
        "print(sorted({'rich', 'torch', 'anyio'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
