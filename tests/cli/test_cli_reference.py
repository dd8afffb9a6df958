"""docs/cli.md says what the commands really take."""

import re
from pathlib import Path

import pytest

from flodl_core.cli.index import COMMANDS, load_command
from flodl_core.cli.reference import command_rows, render_reference
from flodl_core.config.keys import KEYS
from flodl_core.ids import ExitCode

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text()


def section(name):
    body = PAGE.split(f"\n## flodl {name}\n", 1)[1]
    return body.split("\n## ", 1)[0]


def test_the_page_is_the_one_that_the_commands_render():
    assert render_reference() == PAGE, "write it again: python -m flodl_core.cli.reference"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_option_of_a_command_has_exactly_one_row_and_no_other_row_exists(name):
    cells = [row.split(" |")[0] for row in section(name).splitlines() if row.startswith("| `")]
    written = [word for cell in cells for word in re.findall(r"--?[a-z][a-z-]*", cell)]
    real = [
        option
        for param in load_command(name).params
        if param.param_type_name == "option"
        for option in (*param.opts, *param.secondary_opts)
    ]
    assert sorted(written) == sorted(real)


def test_every_command_and_exit_code_is_described():
    assert re.findall(r"^## flodl (\S+)$", PAGE, re.MULTILINE) == list(COMMANDS)
    codes = {value for name, value in vars(ExitCode).items() if name.isupper()}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)} == codes


def test_settings_carry_their_variable_and_default():
    rows = {row.names[0]: row for row in command_rows("headless")}
    assert rows["--port"].env == "FLODL_PORT"
    assert rows["--port"].default == "1337"
    assert rows["--start"].env == "FLODL_START_MODE"
    assert rows["--step-ms"].env == ""
    assert rows["JOB"].section == "Arguments"
    for key in KEYS.values():
        if key.secret:
            assert key.flag not in rows  # what a command line holds, everybody on the machine sees
        elif key.table in ("run", "join", "net") and key.flag.startswith("--"):
            assert rows[key.flag].env == (key.env or "")
            assert rows[key.flag].effect == key.doc
