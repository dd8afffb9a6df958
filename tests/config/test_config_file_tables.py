"""flodl.toml: tables by subject, the list of workers, and errors with their lines."""

import re
from pathlib import Path

import pytest

from flodl_core.config.explain import explain_workers, workers_document
from flodl_core.config.file_tables import SUBJECTS, file_table
from flodl_core.config.keys import KEYS, TABLES
from flodl_core.config.load import load_agent, load_run
from flodl_core.config.workers import PlacementKind, WorkerConfig
from flodl_core.errors import ConfigError

WHOLE = """\
[controller]
bind = "0.0.0.0"
port = 4000
advertise = "10.0.0.5"

[join]
min_rank_start = 3

[run]
epochs = 3

[elche]
anchor = 20

[checkpoint]
save_path = "out/model"

[record]
run_dir = "logs"

[[workers]]
host = "blue"
ssh = "me@blue.lan"
devices = ["cuda:0", "cuda:1"]
micro_batch = 8
data = "/data/images"
python = "venv/bin/python"
env = { WANDB_API_KEY = "secret", OMP_NUM_THREADS = "4" }

[[workers]]
host = "red"
[workers.env]
A = "1"
"""


def load(tmp_path: Path, text: str, flags: dict[str, object] | None = None, **environ: str):
    (tmp_path / "flodl.toml").write_text(text)
    return load_run(flags or {}, environ=environ, directory=tmp_path)


def refusal(tmp_path: Path, text: str, **flags: object) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, flags)
    assert caught.value.fix
    return caught.value


def test_settings_stand_in_the_tables_of_their_subjects(tmp_path):
    loaded = load(tmp_path, WHOLE, {"anchor": "30"}, FLODL_PORT="5000")
    assert (loaded.join.bind, loaded.join.port, loaded.join.advertise) == (
        "0.0.0.0",
        5000,
        "10.0.0.5",
    )
    assert (loaded.join.min_rank_start, loaded.run.epochs, loaded.run.anchor) == (3, 3, 30)
    assert (loaded.run.save_path, loaded.run.run_dir) == ("out/model", Path("logs"))
    assert str(loaded.resolved["join.bind"].source).endswith("flodl.toml:2")
    assert str(loaded.resolved["join.port"].source) == "environment FLODL_PORT"
    assert str(loaded.resolved["run.anchor"].source) == "flag --anchor"
    assert loaded.config_file == tmp_path / "flodl.toml"


def test_each_worker_is_read_with_its_line(tmp_path):
    loaded = load(tmp_path, WHOLE)
    (blue, where), (red, below) = loaded.workers
    assert (blue.destination, red.destination) == ("me@blue.lan", "red")
    assert blue.devices == ("cuda:0", "cuda:1")
    assert (blue.micro_batch, blue.data, blue.python) == (8, "/data/images", "venv/bin/python")
    assert (red.env, red.python, red.devices) == ({"A": "1"}, "python3", ("all",))
    assert str(where).endswith(":22")
    assert str(below).endswith(":31")


def test_workers_make_the_placement_ssh_and_a_tunnel_asks_for_the_token(tmp_path):
    workers = '[[workers]]\nhost = "blue"\n'
    tunnelled = load(tmp_path, workers)
    assert tunnelled.run.placement is PlacementKind.SSH
    assert tunnelled.join.require_token
    assert "tunnels" in str(tunnelled.resolved["join.require_token"].source)
    direct = load(tmp_path, '[controller]\nbind = "10.0.0.5"\n' + workers)
    assert not direct.join.require_token
    local = load(tmp_path, workers, {"placement": "local"})
    assert (local.run.placement, local.join.require_token) == (PlacementKind.LOCAL, False)
    assert load(tmp_path, "").run.placement is PlacementKind.LOCAL


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[[workers]]\nhost = "a"\ndevice = "cpu"\n', ["flodl.toml:3", "did you mean devices"]),
        ('[[workers]]\nssh = "a"\n', ["workers.host", "flodl.toml:1", "is missing"]),
        ('[[workers]]\nhost = "a"\nranks = 0\n', ["workers.ranks = 0", "flodl.toml:3", "least 1"]),
        ('[[workers]]\nhost = "a"\n[[workers]]\nhost = "b"\nssh = "-oX"\n', ["flodl.toml:5"]),
        ('[[workers]]\nhost = "a"\nssh = "b c"\n', ["workers.ssh", "is no destination of ssh"]),
        (
            '\n[[workers]]\nhost = "b c"\n',
            ["workers.host", "flodl.toml:3", "no destination of ssh"],
        ),
        ('[[workers]]\nhost = "a"\ndevices = "gpu"\n', ["workers.devices", "flodl.toml:3"]),
        (
            '[[workers]]\nhost = "a"\nenv = { FLODL_SEED = "1" }\n',
            ["workers.env", "flodl.toml:3", "FLODL_"],
        ),
        (
            '[[workers]]\nhost = "a"\n[workers.env]\nX = 1\n',
            ["workers.env", "flodl.toml:3", "is not text"],
        ),
        (
            '[[workers]]\nhost = "a"\n[[workers]]\nhost = "a"\n',
            ["workers.host = 'a'", "flodl.toml:4", "label of its own"],
        ),
        ('[[workers]]\nhost = "\\n"\n', ["workers.host", "flodl.toml:2", "does not print"]),
        ('[[workers]]\nhost = " "\n', ["workers.host", "flodl.toml:2", "blank"]),
        (
            '[[workers]]\nhost = "a"\nenv = "X"\n',
            ["workers.env", "flodl.toml:3", "is not a table of names and values"],
        ),
        ('[[workers]]\nhost = "a"\ndata = "\\u0000"\n', ["workers.data", "flodl.toml:3", "NUL"]),
        ("\nworkers = [{ hosts = 1 }]\n", ["flodl.toml:2", "did you mean host"]),
        ('[record]\nrun_dir = "a\\u0000b"\n', ["run.run_dir", "flodl.toml:2", "NUL"]),
        ('[elche]\nguard = ["level"]\n', ["run.guard", "flodl.toml:2", "is not text"]),
        ("workers = 3\n", ["flodl.toml:1", "[[workers]]"]),
        ('[workers]\nhost = "a"\n', ["flodl.toml:1", "[[workers]]"]),
        ("[elche]\nanchors = 3\n", ["flodl.toml:2", "did you mean anchor"]),
        ("[elche]\nsave_path = 3\n", ["flodl.toml:2", "save_path in [checkpoint]"]),
        ("[run]\nanchor = 3\n[elche]\nanchor = 4\n", ["flodl.toml:4", "flodl.toml:2", "[elche]"]),
        ("[elche]\nanchor = 0\n", ["flodl.toml:2", "anchor = 10 in [elche]"]),
        ('[controller]\nadvertise = "a b"\n', ["join.advertise", "flodl.toml:2", "HOST:PORT"]),
    ],
)
def test_a_bad_table_is_refused_by_its_line(tmp_path, text, words):
    said = str(refusal(tmp_path, text))
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("text", "flags", "words"),
    [
        ("", {"placement": "ssh"}, ["no host is listed", "[[workers]]"]),
        ("", {"placement": "slurm"}, ["no host beside", "--hosts N"]),
        ('[[workers]]\nhost = "a"\n', {"placement": "ray", "hosts": 2}, ["only ssh reaches"]),
        ("", {"placement": "moon"}, ["run.placement", "auto"]),
    ],
)
def test_a_placement_without_anybody_to_place_is_refused(tmp_path, text, flags, words):
    said = str(refusal(tmp_path, text, **flags))
    for word in words:
        assert word in said


ODD_VALUES = (
    *("1", "-1", "1.5", "nan", "inf", "true", '"x"', '""', '" "', "[]", "{}", "[1]", '["a"]'),
    *('["a", "b"]', "[[1]]", "[{ a = 1 }]", "{ a = 1 }", "{ a = { b = 1 } }", "1979-05-27"),
    *("07:32:00", "1979-05-27T07:32:00Z", '"\\u0000"', '"\\n"', '"\\u001b[31m"', "1e400", '"-x"'),
    *("9" * 30, f'"{"y" * 3000}"', '"~"', '"auto"', "[true]", '[""]', '["\\u0000"]'),
)


@pytest.mark.parametrize("value", ODD_VALUES)
def test_whatever_a_setting_is_given_it_is_taken_or_refused_by_its_line_in_our_words(
    tmp_path, value
):
    lines = [f"[{key.file_table}]\n\n{key.name} = {value}\n" for key in KEYS.values()]
    for name in WorkerConfig.model_fields:
        first = "" if name == "host" else 'host = "blue"\n'
        lines.append(f"[[workers]]\n{first}{name} = {value}\n")
    lines += [f"{table} = {value}\n" for table in (*TABLES, *SUBJECTS, "job", "workers")]
    for text in lines:
        (tmp_path / "flodl.toml").write_text(text)
        error = error_of(load_agent if "[agent]" in text else load_run, tmp_path)
        if error is not None:
            said = str(error)
            assert "flodl.toml:" in said, text
            assert error.fix, text
            assert not re.search("Input should|Value error|pydantic|Errno", said), said


def error_of(read, directory):
    """The refusal of the file in a directory; None where it is taken."""
    try:
        read({}, environ={}, directory=directory)
    except ConfigError as error:
        return error
    return None


def test_a_file_with_the_mark_that_windows_puts_first_is_read(tmp_path):
    (tmp_path / "flodl.toml").write_bytes(b"\xef\xbb\xbf[run]\r\nepochs = 3\r\n")
    assert load_run({}, environ={}, directory=tmp_path).run.epochs == 3


def test_variables_of_workers_are_shown_by_name_only(tmp_path):
    workers = load(tmp_path, WHOLE).workers
    rows = explain_workers(workers)
    assert [row.name for row in rows] == ["workers.blue", "workers.red"]
    assert "env=WANDB_API_KEY,OMP_NUM_THREADS" in rows[0].value
    document = workers_document(workers)
    assert "secret" not in f"{rows}{document}"
    assert document[0]["value"]["devices"] == ["cuda:0", "cuda:1"]


def test_an_agent_reads_past_the_tables_of_a_run(tmp_path):
    (tmp_path / "flodl.toml").write_text(WHOLE + '[agent]\nhost = "green"\n')
    environ = {"FLODL_DATA": "/data"}
    agent = load_agent({}, environ=environ, directory=tmp_path).agent
    assert (agent.host, agent.data) == ("green", Path("/data"))


def test_every_subject_holds_settings_that_exist_and_no_two_hold_one():
    seen = [f"{model}.{name}" for model, names in SUBJECTS.values() for name in names]
    assert len(seen) == len(set(seen))
    assert set(seen) <= set(KEYS)
    assert not set(SUBJECTS) & set(TABLES)
    assert file_table("run", "anchor") == "elche"
    assert file_table("run", "seed") == "run"
