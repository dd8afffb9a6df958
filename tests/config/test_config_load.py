"""Loading: precedence, sources, errors that name field, value, source and fix."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flodl_core.config.explain import HIDDEN, config_document, explain
from flodl_core.config.keys import KEYS
from flodl_core.config.load import load_agent, load_run
from flodl_core.config.sources import SourceKind
from flodl_core.errors import ConfigError
from flodl_core.ids import ExitCode, StartMode

TOKEN = "00112233445566778899aabbccddeeff"


@pytest.fixture
def place(tmp_path):
    """A directory, and a function that writes its flodl.toml."""

    def write(text: str) -> Path:
        (tmp_path / "flodl.toml").write_text(text)
        return tmp_path

    return write


def load(flags=None, *, environ=None, directory=None, **more):
    nowhere = Path(tempfile.gettempdir()) / "flodl-test-no-such-directory"
    return load_run(flags or {}, environ=environ or {}, directory=directory or nowhere, **more)


def refusal(**kwargs) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(**kwargs)
    assert caught.value.exit_code == ExitCode.USAGE
    assert caught.value.fix
    return caught.value


def test_defaults_carry_their_source():
    loaded = load()
    assert loaded.run.hosts == 1
    assert str(loaded.resolved["run.hosts"].source) == "default"
    assert set(loaded.resolved) == {name for name, key in KEYS.items() if key.table != "agent"}


def test_flags_beat_environment_beats_file_beats_default(place):
    directory = place("[run]\nepochs = 3\nseed = 3\nhosts = 3\n")
    environ = {"FLODL_EPOCHS": "2", "FLODL_SEED": "2"}
    loaded = load({"epochs": 1}, environ=environ, directory=directory)
    assert (loaded.run.epochs, loaded.run.seed, loaded.run.hosts) == (1, 2, 3)
    sources = [str(loaded.resolved[f"run.{n}"].source) for n in ("epochs", "seed", "hosts")]
    assert sources == [
        "flag --epochs",
        "environment FLODL_SEED",
        f"file {directory / 'flodl.toml'}:4",
    ]


LAYERS = st.fixed_dictionaries(
    {}, optional={layer: st.integers(1, 99) for layer in ("flag", "environment", "file")}
)


@settings(max_examples=40, deadline=None)
@given(layers=LAYERS)
def test_the_strongest_layer_that_speaks_wins(layers):
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if "file" in layers:
            (directory / "flodl.toml").write_text(f"[run]\nepochs = {layers['file']}\n")
        environ = {"FLODL_EPOCHS": str(layers["environment"])} if "environment" in layers else {}
        loaded = load({"epochs": layers.get("flag")}, environ=environ, directory=directory)
    strongest = next((k for k in ("flag", "environment", "file") if k in layers), "default")
    assert loaded.resolved["run.epochs"].source.kind == strongest
    assert loaded.run.epochs == layers.get(strongest)


def test_an_error_names_field_value_source_line_and_fix(place):
    directory = place('# settings\n[join]\nport = 1337\n\n[run]\n\nepochs = "many"\n')
    error = refusal(directory=directory)
    assert str(error).startswith("run.epochs = 'many' (file ")
    assert "flodl.toml:7): is not a whole number" in str(error)
    assert "Fix: give a value such as epochs = 10 in [run] of flodl.toml" in str(error)


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({"flags": {"ranks": 0}}, ["run.ranks = 0 (flag --ranks)", "at least 1", "--ranks 4"]),
        ({"flags": {"epochs": -3}}, ["run.epochs = -3", "at least 1", "--epochs 10"]),
        ({"flags": {"port": 70_000}}, ["join.port = 70000", "at most 65535", "--port 1337"]),
        ({"flags": {"start_mode": "x"}}, ["join.start_mode", "(flag --start)", "'hybrid'"]),
        ({"environ": {"FLODL_PORT": "http"}}, ["environment FLODL_PORT", "FLODL_PORT=1337"]),
        ({"environ": {"FLODL_GAMMA": "nan"}}, ["run.gamma", "finite"]),
        ({"environ": {"FLODL_GAMMA": "9"}}, ["run.gamma", "at most 8"]),
        ({"environ": {"FLODL_EPOCHS": "1.5"}}, ["run.epochs = '1.5'", "whole number"]),
        ({"environ": {"FLODL_OPEN_ADMISSION": "maybe"}}, ["neither true nor false"]),
        ({"environ": {"FLODL_EPOCHS": " "}}, ["is empty"]),
        ({"flags": {"mode": "nccl_async"}}, ["run.mode", "(flag --mode)", "cpu_async"]),
        ({"flags": {"mode": "sync"}}, ["no such mode", "cpu_cadence"]),
        ({"flags": {"min_rank_start": 1}}, ["join.min_rank_start = 1 (flag --min-rank-start)"]),
        ({"flags": {"devices": "gpu"}}, ["run.devices = 'gpu' (flag --devices)"]),
        ({"flags": {}, "needs_job": True}, ["no job was given", "charlm"]),
    ],
)
def test_bad_values_end_in_one_helpful_line(kwargs, words):
    text = str(refusal(**kwargs))
    assert all(word in text for word in words), text
    assert len(text.splitlines()) == 2


@pytest.mark.parametrize("scale", ["", " ", "-1", "0.05", "inf", "nan", "two"])
def test_a_bad_timeout_scale_is_refused(scale):
    error = refusal(environ={"FLODL_NET_TIMEOUT_SCALE": scale})
    assert error.field == "net.timeout_scale"


def test_the_timeout_scale_multiplies_every_ceiling_and_no_other_duration():
    loaded = load({"join_timeout_s": 10}, environ={"FLODL_NET_TIMEOUT_SCALE": " 2.5 "})
    assert loaded.net.timeout_scale == 2.5
    assert (loaded.join.join_timeout_s, loaded.join.max_join_timeout_s) == (25.0, 1500.0)
    assert (loaded.run.heartbeat_timeout_s, loaded.run.heartbeat_interval_s) == (75.0, 1.0)
    assert (loaded.run.progress_timeout_s, loaded.run.stall_timeout_s) == (750.0, 750.0)
    assert (loaded.run.stop_grace_s, loaded.run.checkpoint_every_s) == (25.0, 1800.0)
    source = str(loaded.resolved["join.join_timeout_s"].source)
    assert source == "flag --join-timeout-s x net.timeout_scale 2.5"
    assert load({"net_timeout_scale": 2}).join.join_timeout_s == 600.0


def test_ceilings_that_follow_from_others_say_so():
    loaded = load({"heartbeat_timeout_s": 60, "start_mode": "manual"})
    assert loaded.run.stall_timeout_s == 600.0
    assert loaded.resolved["run.stall_timeout_s"].source.kind is SourceKind.DERIVED
    assert loaded.join.max_join_timeout_s == 86_400.0
    assert loaded.join.start_mode is StartMode.MANUAL


@pytest.mark.parametrize(
    ("kwargs", "near"),
    [
        ({"environ": {"FLODL_EPOCH": "3"}}, "FLODL_EPOCHS"),
        ({"environ": {"FLODL_JOIN_TIMEOUT": "3"}}, "FLODL_JOIN_TIMEOUT_S"),
        ({"flags": {"epoch": 3}}, "epochs"),
    ],
)
def test_an_unknown_name_is_an_error_with_the_nearest_known_one(kwargs, near):
    assert f"did you mean {near}?" in str(refusal(**kwargs))


@pytest.mark.parametrize("variable", ["FLODL_FOO", "FLODL_ZZZ", "FLODL_XY"])
def test_a_variable_that_shares_only_our_prefix_is_likened_to_none(variable):
    assert "did you mean" not in str(refusal(environ={variable: "3"}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[run]\nepohcs = 3\n", ["flodl.toml:2", "did you mean epochs?"]),
        ("epochs = 3\n", ["flodl.toml:1", "epochs in [run]"]),
        ("[runs]\n", ["flodl.toml:1", "did you mean run?"]),
        ("run = 3\n", ["name of a table", "[run]"]),
        ("[run]\nhosts = true\n", ["run.hosts = True", "says nothing here"]),
        ("[run]\ndevices = 3\n", ["run.devices", "not a list"]),
        ("[run\n", ["is not TOML", "line 1"]),
        ('[run]\nname = ""\n', ["is empty"]),
        ("[job]\ndepth = { a = 1 }\n", ["job.depth", "flodl.toml:1"]),
        ("[run]\nname = 2020-01-01\n", ["run.name", "flodl.toml:2", "is not text"]),
        ("[run]\njob_args = 3\n", ["job_args", "neither key=value nor a table"]),
        ("[zzz]\n", ["flodl.toml:1", "run, join, agent, net, controller"]),
        ("run.epochs = 0\n", ["flodl.toml:1", "at least 1"]),
        ("[run]\nhosts = 2\nranks = 3\n", ["run.ranks = 3", "flodl.toml:3", "ranks_per_host"]),
    ],
)
def test_a_bad_file_is_refused_by_line(place, text, words):
    error = str(refusal(directory=place(text)))
    assert all(word in error for word in words), error


def test_a_long_value_is_cut_in_its_refusal():
    error = refusal(flags={"name": "x" * 5000})
    assert len(str(error)) < 600
    assert "(5002 characters)" in str(error)


def test_a_time_of_no_use_is_refused_in_our_own_words():
    error = refusal(flags={"heartbeat_interval_s": "1e-9"})
    assert error.reason == "must be at least 0.01"
    error = refusal(flags={"checkpoint_every_s": "0.05"})
    assert error.reason == "must be 0 or at least 0.1"
    assert error.source == "flag --checkpoint-every-s"


def test_a_scaled_time_stays_within_the_clock():
    loaded = load({"net_timeout_scale": "1000", "join_timeout_s": "1e9"})
    assert loaded.join.join_timeout_s == 1e9
    assert loaded.join.cap_s == 1e9


def test_an_unknown_name_with_nothing_near_it_points_to_the_list():
    assert "`flodl config` prints every setting" in refusal(environ={"FLODL_QQQQQQ": "1"}).fix


def test_options_under_run_and_in_the_job_table_meet(place):
    directory = place("[run.job_args]\na = 1\nb = 1\n[job]\nb = 2\n")
    assert load(directory=directory).run.job_args == {"a": 1, "b": 2}


def test_ceilings_that_were_given_are_not_derived():
    loaded = load({"progress_timeout_s": 7, "stall_timeout_s": 8, "max_join_timeout_s": 900})
    assert (loaded.run.progress_ceiling_s, loaded.run.stall_ceiling_s) == (7.0, 8.0)
    assert loaded.join.cap_s == 900.0
    assert loaded.resolved["run.stall_timeout_s"].source.kind is SourceKind.FLAG


def test_a_file_that_was_named_must_exist(tmp_path):
    missing = tmp_path / "missing.toml"
    assert "cannot be read" in str(refusal(config_file=missing))
    assert "cannot be read" in str(refusal(environ={"FLODL_CONFIG": str(missing)}))
    big = tmp_path / "big.toml"
    big.write_bytes(b"#" * (1 << 20) + b"##")
    assert "above 1048576 bytes" in str(refusal(config_file=big))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    assert "is not TOML" in str(refusal(config_file=binary))


def test_a_named_file_replaces_the_usual_one(place, tmp_path):
    directory = place("[run]\nepochs = 3\n")
    other = tmp_path / "other.toml"
    other.write_text("[run]\nseed = 9\n")
    loaded = load(environ={"FLODL_CONFIG": str(other)}, directory=directory)
    assert (loaded.run.epochs, loaded.run.seed) == (None, 9)


def test_options_of_the_job_come_one_by_one_from_each_layer(place):
    directory = place('[job]\ndepth = 4\nstep_ms = [1, 2]\ntext = "7"\n')
    flags = {"job_args": ["step_ms=5,5.5,20", "fast=true", "name=a=b", "quoted='7'", "lr=3e-4"]}
    run = load(flags, directory=directory).run
    assert run.job_args == {
        "depth": 4,
        "step_ms": (5, 5.5, 20),
        "text": "7",
        "fast": True,
        "name": "a=b",
        "quoted": "7",
        "lr": 3e-4,
    }
    assert load(directory=directory).run.job_args["step_ms"] == (1, 2)
    assert load({"job_args": {"step_ms": (1.0, 2.0)}}).run.job_args == {"step_ms": (1.0, 2.0)}


@pytest.mark.parametrize("given_args", [["depth"], ["=3"], 7, {"depth": {}}, {"depth": [[1]]}])
def test_options_that_are_no_key_and_value_are_refused(given_args):
    assert "depth = 4" in refusal(flags={"job_args": given_args}).fix


@given(text=st.text(max_size=19))
def test_any_text_is_some_value_of_an_option(text):
    value = load({"job_args": [f"key={text}"]}).run.job_args["key"]
    assert isinstance(value, bool | int | float | str | tuple)


def test_numbers_that_are_not_finite_stay_text_in_options():
    run = load({"job_args": ["a=nan", "b=inf", "d=1e999"]}).run
    assert (run.job_args["a"], run.job_args["b"], run.job_args["d"]) == ("nan", "inf", "1e999")


def test_what_processes_hand_to_their_children_is_no_setting():
    assert load(environ={"FLODL_CHILD_ENVELOPE": "x", "PATH": "y"}).run.epochs is None


def test_the_environment_of_the_process_is_read_where_none_is_given(monkeypatch, tmp_path):
    monkeypatch.setenv("FLODL_EPOCHS", "6")
    assert load_run({}, directory=tmp_path).run.epochs == 6


def test_an_agent_reads_its_own_table_and_the_shared_token(place):
    directory = place('[agent]\nhost = "blue"\ndevices = ["cpu:0", "cpu:1"]\n[run]\nepochs = 0\n')
    environ = {"FLODL_TOKEN": TOKEN.upper(), "FLODL_AGENT_RANKS": "2", "FLODL_RANKS": "7"}
    loaded = load_agent({"controller": "[::1]:9"}, environ=environ, directory=directory)
    assert loaded.agent.controller == "[::1]:9"
    assert (loaded.agent.host, loaded.agent.ranks) == ("blue", 2)
    assert loaded.agent.devices == ("cpu:0", "cpu:1")
    assert loaded.agent.token == TOKEN
    assert set(loaded.resolved) == {
        name for name, key in KEYS.items() if key.table in ("agent", "net")
    }


def test_an_agent_takes_the_token_from_a_file_unless_a_stronger_source_has_it(tmp_path):
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    other = "ff" * 16

    def token(flags, environ):
        return load_agent(flags, environ=environ, directory=tmp_path).agent.token

    assert token({"token_file": str(path)}, {}) == TOKEN
    assert token({"token_file": str(path)}, {"FLODL_TOKEN": other}) == TOKEN
    assert token({"token": other}, {"FLODL_TOKEN_FILE": str(path)}) == other
    assert token({"token": other, "token_file": str(path)}, {}) == other


@pytest.mark.parametrize("content", [None, "", "short", "\xff" * 40])
def test_a_token_file_without_a_token_is_refused(tmp_path, content):
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content, encoding="latin-1")
    with pytest.raises(ConfigError, match="token_file") as caught:
        load_agent({"token_file": str(path)}, environ={}, directory=tmp_path)
    assert "generated" not in caught.value.fix, "whoever joins a run generates no token"


def test_explain_lists_every_value_and_hides_the_token():
    loaded = load({"token": TOKEN, "ranks": 4, "job_args": ["step_ms=1,2"], "devices": "cpu"})
    rows = {row.name: row for row in explain(loaded.resolved)}
    assert list(rows) == [name for name, key in KEYS.items() if key.table != "agent"]
    assert rows["join.token"].value == HIDDEN
    assert rows["run.ranks"].value == "4"
    assert rows["run.epochs"].value == "-"
    assert rows["run.job_args"].value == "step_ms=1,2"
    assert rows["join.require_token"].value == "false"
    assert rows["join.join_timeout_s"].value == "300"
    assert rows["run.ranks"].env == "FLODL_RANKS"
    assert rows["run.ranks"].flag == "--ranks"
    assert all(TOKEN not in f"{row}" for row in rows.values())


def test_the_document_is_plain_and_holds_no_token():
    loaded = load({"token": TOKEN, "job_args": ["step_ms=1,2"]})
    document = config_document(loaded.resolved)
    assert TOKEN not in repr(document)
    assert document["join.token"] == {"value": HIDDEN, "source": "flag --token"}
    assert document["run.job_args"] == {"value": {"step_ms": [1, 2]}, "source": "flag --job-arg"}
    assert document["run.run_dir"] == {"value": "runs", "source": "default"}
    assert document["join.start_mode"]["value"] == "auto"
    assert config_document(load().resolved)["join.token"]["value"] is None
