"""Values as words: what is handed on is read again as the same value, of the same type."""

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flodl_core.config.explain import explain
from flodl_core.config.job_args import (
    LEAST_INT,
    MOST_INT,
    job_value_text,
    parse_job_args,
    parse_job_value,
)
from flodl_core.config.keys import KEYS
from flodl_core.config.load import load_agent, load_run
from flodl_core.config.sources import Source, SourceKind
from flodl_core.config.words import agent_words, setting_words
from flodl_core.errors import ConfigError

NOWHERE = Path(tempfile.gettempdir()) / "flodl-test-no-such-directory"
GIVEN = Source(SourceKind.FLAG, "--job-arg")
TEXTS = st.text() | st.text("'\",= 7e.-+_\\truefalse\n", max_size=8)
SCALARS = (
    st.booleans()
    | st.integers(LEAST_INT, MOST_INT)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES = SCALARS | st.lists(SCALARS, max_size=4).map(tuple)


def typed(value):
    """A value with its types, so that 1, 1.0 and true differ."""
    parts = value if isinstance(value, tuple) else (value,)
    return isinstance(value, tuple), [(type(part), part) for part in parts]


def load(text="", **environ):
    with tempfile.TemporaryDirectory() as place:
        (Path(place) / "flodl.toml").write_text(text)
        return load_run({}, environ=environ, directory=Path(place))


@given(VALUES)
@example("7")
@example("a,b")
@example((5,))
@example(())
@example(1.0)
@example("true")
@example(("7", 7, 7.0, "", "it's", 'say "hi", now'))
@example(("it's",))
@example("2024_01_05")
@example("'quoted'")
@example(" ")
def test_an_option_of_the_job_is_the_same_value_behind_its_text(value):
    text = job_value_text(value)
    assert typed(parse_job_value(text)) == typed(value)
    (back,) = parse_job_args([f"tag={text}"], source=GIVEN).values()
    assert typed(back) == typed(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5,5,20", (5, 5, 20)),
        ("5,", (5,)),
        (",", ()),
        ("a, b", ("a", "b")),
        ("'7','8',", ("7", "8")),
        ("'it''s',\"a,b\"", ("it's", "a,b")),
        ("'tis,won't", ("'tis", "won't")),
        ("'a,b'", "a,b"),
        ("2024_01_05", "2024_01_05"),
        ("1_000.5", "1_000.5"),
        ("٣", "٣"),
        ("-7", -7),
        (".5", 0.5),
        ("1.", 1.0),
        ("3e-4", 3e-4),
        ("1e5", 1e5),
        ("0x10", "0x10"),
    ],
)
def test_a_value_is_what_it_looks_like(text, value):
    assert typed(parse_job_value(text)) == typed(value)


@pytest.mark.parametrize("number", [1 << 64, -(1 << 63) - 1, 10**30])
def test_a_number_that_no_message_carries_is_refused_wherever_it_stands(number):
    for given_here in (
        lambda: load_run({"job_args": [f"sha={number}"]}, environ={}, directory=NOWHERE),
        lambda: load_run({"job_args": [f"sha=1,{number}"]}, environ={}, directory=NOWHERE),
        lambda: load(f"[job]\nsha = {number}\n"),
        lambda: load(f"[job]\nsha = [1, {number}]\n"),
    ):
        with pytest.raises(ConfigError, match="64 bits") as caught:
            given_here()
        assert caught.value.exit_code == 2
        assert caught.value.field == "job.sha"
        assert "quotes" in caught.value.fix
    assert load(f"[job]\nlast = {MOST_INT}\n").run.job_args == {"last": MOST_INT}


def test_a_number_of_thousands_of_digits_is_refused_like_any_other():
    digits = "9" * 5000
    with pytest.raises(ConfigError, match="64 bits"):
        load_run({"job_args": [f"sha={digits}"]}, environ={}, directory=NOWHERE)
    with pytest.raises(ConfigError, match="is not TOML"):
        load(f"[job]\nsha = {digits}\n")


def test_a_name_that_no_word_could_give_is_refused():
    for name in ("a=b", " a"):
        with pytest.raises(ConfigError, match="no name of an option"):
            load(f'[job]\n"{name}" = 1\n')


def test_the_table_of_settings_shows_which_options_are_text_and_which_are_lists():
    loaded = load('[job]\ntag = "7"\nsteps = [5]\nday = 7\nnote = "a b"\n')
    (row,) = [one for one in explain(loaded.resolved) if one.name == "run.job_args"]
    assert row.value == "tag='7' steps=5, day=7 note='a b'"


def test_every_setting_is_the_same_behind_its_words():
    toml = (
        "[run]\nname = 'x y'\nhosts = 2\nranks_per_host = 3\nepochs = 7\nseed = 12345678901234\n"
        "gamma = -1.0\nplace_timeout_s = 0.1\nmode = 'cpu_cadence'\nmax_failure = '50%'\n"
        "heartbeat_timeout_s = 20\n"
        "[elche]\noverhead_target = 0.123456789\nmeta = false\npin_counts = [3, 1]\n"
        "[join]\njoin_timeout_s = 12.5\n"
        "[record]\nsample_log = true\non_event = 'echo $(x) \"y\"'\n"
        "on_event_classes = ['rank_lost']\n"
        "[job]\ntag = '7'\nsteps = [5]\nwords = ['7', 'a,b']\nscale = 1.0\nis_on = 'true'\n"
    )
    loaded = load(toml, FLODL_NET_TIMEOUT_SCALE="0.7")
    flags = {}
    for dotted in loaded.resolved:
        words = setting_words(loaded, dotted)
        if dotted == "run.job_args":
            flags["job_args"] = words[1::2]
        elif words and words[0].startswith("--no-"):
            flags[KEYS[dotted].name] = False
        elif words:
            name = "net_timeout_scale" if dotted == "net.timeout_scale" else KEYS[dotted].name
            flags[name] = words[1]
    again = load_run(flags, environ={}, directory=NOWHERE)
    assert (again.run, again.join, again.net) == (loaded.run, loaded.join, loaded.net)
    assert {name: typed(value) for name, value in again.run.job_args.items()} == {
        name: typed(value) for name, value in loaded.run.job_args.items()
    }


def test_a_host_is_told_ceilings_as_they_were_given_and_only_what_was_given():
    assert agent_words(load(), is_verbose=False) == ()
    loaded = load("[run]\ninspect_timeout_s = 600\n", FLODL_NET_TIMEOUT_SCALE="3")
    assert loaded.run.inspect_timeout_s == 1800.0
    words = agent_words(loaded, is_verbose=True)
    assert words == ("--inspect-timeout-s", "600", "--net-timeout-scale", "3", "--verbose")


@pytest.mark.parametrize("where", ["run", "record", "checkpoint", "variable", "flag"])
def test_a_home_directory_is_meant_by_its_sign_wherever_a_path_is_given(
    where, monkeypatch, tmp_path
):
    monkeypatch.setenv("HOME", str(tmp_path))
    flags = {"run_dir": "~/runs", "save_path": "~/out/", "data": "~/data", "resume": "~/old"}
    if where == "flag":
        run = load_run(flags, environ={}, directory=NOWHERE).run
    elif where == "variable":
        run = load("", **{f"FLODL_{name.upper()}": text for name, text in flags.items()}).run
    else:
        own = {"run": set(flags), "record": {"run_dir"}, "checkpoint": {"save_path", "resume"}}
        inside = own[where]
        tables = {where: inside} | ({} if where == "run" else {"run": set(flags) - inside})
        run = load(
            "".join(
                f"[{table}]\n" + "".join(f'{name} = "{flags[name]}"\n' for name in names)
                for table, names in tables.items()
            )
        ).run
    assert (run.run_dir, run.data) == (tmp_path / "runs", tmp_path / "data")
    assert (run.save_path, run.resume) == (f"{tmp_path}/out/", f"{tmp_path}/old")


def test_the_home_of_nobody_stays_a_name_and_a_host_has_a_home_too(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load("[run]\nsave_path = '~no-such-user-here/x'\n").run.save_path.startswith("~no-such")
    given_here = {"run_dir": "~/runs", "job": "~/train.py:job"}
    agent = load_agent(given_here, environ={}, directory=NOWHERE).agent
    assert (agent.run_dir, agent.job) == (tmp_path / "runs", f"{tmp_path}/train.py:job")


def test_a_scale_that_would_make_a_late_heartbeat_a_death_is_refused():
    with pytest.raises(ConfigError, match="below two intervals") as caught:
        load("[run]\nheartbeat_interval_s = 5\n", FLODL_NET_TIMEOUT_SCALE="0.1")
    assert caught.value.field == "run.heartbeat_timeout_s"
    assert "net.timeout_scale 0.1" in str(caught.value)
    assert load("", FLODL_NET_TIMEOUT_SCALE="0.1").run.heartbeat_timeout_s == 3.0
