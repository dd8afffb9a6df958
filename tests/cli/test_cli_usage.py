"""Bad input: one clear line, what to do about it, the right exit code, nothing started."""

import os

import pytest

from flodl_core import __version__
from flodl_core.cli.failure import UnexpectedError, describe_failure, failure_text, tell_failure
from flodl_core.errors import ConfigError, FlodlError, JobError, WindowFailedError
from flodl_core.net.parent_tie import LIVENESS_FD_VARIABLE, PARENT_PID_VARIABLE


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["headless", "nosuch"], ["no recipe is named 'nosuch'", "charlm, digits, synthetic"]),
        (["headless", "charln"], ["did you mean charlm?"]),
        (["headless"], ["no job was given", "name a recipe"]),
        (["headless", "no such"], ["names no recipe"]),
        (["headless", "gone.py:job"], ["'gone.py' is not there"]),
        (["headless", "charlm", "--port", "70000"], ["port", "70000", "--port", "at most 65535"]),
        (["headless", "charlm", "--ranks", "0"], ["ranks", "'0'", "--ranks", "at least 1"]),
        (["headless", "charlm", "--hosts", "0"], ["hosts", "--hosts", "at least 1"]),
        (["headless", "charlm", "--epochs", "-3"], ["epochs", "'-3'", "--epochs", "at least 1"]),
        (["headless", "charlm", "--epochs", "two"], ["epochs", "'two'", "not a whole number"]),
        (["headless", "charlm", "--gamma", "nan"], ["gamma", "not finite"]),
        (["headless", "charlm", "--epochs", ""], ["epochs", "is empty"]),
        (["headless", "charlm", "--mode", "nccl_async"], ["Async cannot use NCCL", "--mode"]),
        (["headless", "charlm", "--mode", "fast"], ["there is no such mode"]),
        (["headless", "charlm", "--start", "sometimes"], ["start_mode", "--start"]),
        (["headless", "charlm", "--bind", "nowhere"], ["bind", "not an address literal"]),
        (["headless", "charlm", "--tls-identity", "a.pem"], ["tls_identity", "tls is off"]),
        (["headless", "charlm", "--job-arg", "depth"], ["is not key=value"]),
        (["headless", "charlm", "--config", "gone.toml"], ["gone.toml", "cannot be read"]),
        (
            ["headless", "charlm", "--epohcs", "3"],
            ["no option --epohcs", "did you mean", "--epochs"],
        ),
        (["headless", "charlm", "--zzzzz"], ["no option --zzzzz", "`flodl headless --help`"]),
        (["headless", "charlm", "--epochs"], ["requires an argument", "`flodl headless --help`"]),
        (["headless", "charlm", "extra"], ["unexpected extra argument", "extra"]),
        (["hedless", "charlm"], ["no command 'hedless'", "did you mean headless?"]),
        (["qqqq"], ["no command 'qqqq'", "the commands are console, headless, join"]),
        (["--zzz"], ["no option --zzz"]),
        (["join", "nowhere"], ["names no port", "HOST:PORT"]),
        (["join", "h:99999"], ["port must be 1 to 65535"]),
        (["join", "h:1", "--ranks", "0"], ["agent.ranks", "at least 1"]),
        (["inspect-job", "nosuch"], ["no recipe is named 'nosuch'"]),
        (["inspect-job"], ["no job was given"]),
        (["config", "--seed", "-1"], ["run.seed", "at least 0"]),
        (["status", "a:1", "--attach", "b:2"], ["two runs were named"]),
        (["start", "a:1", "--run", "night"], ["two runs were named"]),
        (["stop", "a:0"], ["port must be 1 to 65535"]),
    ],
)
def test_a_wrong_word_is_refused_in_one_line_with_exit_two(refused, words, expected):
    code, text = refused(*words)
    assert code == 2
    for part in expected:
        assert part in text
    assert "Fix: " in text


def test_an_explicit_target_with_start_mode_manual_is_refused(refused):
    code, text = refused("headless", "charlm", "--start", "manual", "--target-ranks", "3")
    assert code == 2
    assert "target_ranks = 3 (flag --target-ranks)" in text
    assert "only the operator does" in text
    assert "hybrid" in text


def test_a_quorum_of_one_is_refused(refused):
    code, text = refused("headless", "charlm", "--min-rank-start", "1")
    assert code == 2
    assert "min_rank_start = 1 (flag --min-rank-start)" in text
    assert "at least 2" in text


@pytest.mark.parametrize("words", [["--token", "00" * 16], ["--token=" + "00" * 16]])
@pytest.mark.parametrize(
    "command",
    [["join", "127.0.0.1:1"], ["headless", "charlm"], ["config"], ["console"], ["status"]],
)
def test_no_command_takes_a_token_among_its_words_and_each_says_where_it_goes(
    refused, command, words
):
    code, text = refused(*command, *words)
    assert code == 2
    assert "--token-file" in text
    assert "FLODL_TOKEN" in text
    assert "00" * 16 not in text


def test_a_bad_value_names_its_variable_or_its_line_in_the_file(refused, monkeypatch, place):
    monkeypatch.setenv("FLODL_PORT", "70000")
    assert "(environment FLODL_PORT)" in refused("headless", "charlm")[1]
    monkeypatch.delenv("FLODL_PORT")
    (place / "flodl.toml").write_text("[join]\n\nport = 70000\n")
    assert "flodl.toml:3)" in refused("headless", "charlm")[1]


def test_a_bad_token_is_refused_without_being_shown(refused, monkeypatch):
    monkeypatch.setenv("FLODL_TOKEN", "5ec4e7")
    for words in (["headless", "charlm"], ["join", "127.0.0.1:1"]):
        code, text = refused(*words)
        assert code == 2
        assert "token = (hidden) (environment FLODL_TOKEN)" in text.replace("'", "")
        assert "32 hex characters" in text
        assert "5ec4e7" not in text


def test_a_variable_that_is_no_setting_is_refused_with_the_nearest_one(refused, monkeypatch):
    monkeypatch.setenv("FLODL_EPOCSH", "3")
    code, text = refused("headless", "charlm")
    assert code == 2
    assert "did you mean FLODL_EPOCHS?" in text


def test_the_variables_of_a_child_process_are_no_settings(flodl, monkeypatch):
    monkeypatch.setenv(PARENT_PID_VARIABLE, "1")
    monkeypatch.setenv(LIVENESS_FD_VARIABLE, "999")
    assert flodl("config")[0] == 0


def test_flodl_alone_shows_the_commands_and_examples(flodl):
    code, out, err = flodl()
    assert (code, err) == (0, "")
    for name in ("headless", "join", "status", "start", "stop", "checkpoint", "drain", "config"):
        assert f"\n  {name} " in out
    assert "flodl headless charlm --hosts 2 --ranks-per-host 2" in out
    assert flodl("--help")[1] == out
    assert flodl("-h")[1] == out


def test_the_version_is_printed(flodl):
    assert flodl("--version") == (0, f"flodl {__version__}\n", "")


def test_verbose_adds_the_traceback_and_keeps_the_error_last(flodl):
    code, _, err = flodl("headless", "nosuch", "--verbose")
    assert code == 2
    assert err.startswith("Traceback")
    assert err.splitlines()[-2].startswith("error: no recipe is named 'nosuch'")


def test_an_unexpected_exception_is_one_line_and_points_at_verbose(capsys):
    assert tell_failure(ValueError("broken\nin two"), is_verbose=False) == 1
    assert capsys.readouterr().err == (
        "error: ValueError: broken in two\n  Fix: run again with --verbose to see where\n"
    )


def test_the_first_error_of_ours_is_found_inside_groups():
    window = WindowFailedError("quorum not met: 1/2", fix="start the agent on blue")
    group = BaseExceptionGroup("a", [KeyError("x"), BaseExceptionGroup("b", [window])])
    assert describe_failure(group) is window
    only = ExceptionGroup("a", [KeyError("x")])
    assert isinstance(describe_failure(only), UnexpectedError)
    assert "KeyError" in str(describe_failure(only))


def test_what_a_peer_said_cannot_steer_the_terminal():
    text = failure_text(FlodlError("host \x1b[2Jred\x07 refused", fix="rename it"))
    assert text == "error: host \\x1b[2Jred\\x07 refused\n  Fix: rename it"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("port", 0, "is taken", source="flag", fix="x"), 2),
        (JobError("raised"), 2),
        (WindowFailedError("nobody came"), 3),
        (FlodlError("other"), 1),
        (RuntimeError("bug"), 1),
    ],
)
def test_each_error_ends_with_its_own_exit_code(capsys, error, code):
    assert tell_failure(error, is_verbose=False) == code
    assert capsys.readouterr().err.count("error: ") == 1


@pytest.mark.parametrize(
    ("words", "field"),
    [
        (("synthetic",), "run_dir"),
        (("synthetic", "--run-dir", "{ok}", "--save-path", "out/model"), "save_path"),
        (("train.py:job", "--run-dir", "{ok}"), "job"),
        (("synthetic", "--run-dir", "{ok}", "--sample-log", "out/ids"), "sample_log"),
        (("synthetic", "--run-dir", "{ok}", "--resume", "out/model"), "resume"),
    ],
)
def test_a_path_that_is_not_utf8_is_refused_before_anything_is_started(
    refused, place, monkeypatch, words, field
):
    odd = place / os.fsdecode(b"caf\xe9")
    odd.mkdir()
    (odd / "train.py").write_text("")
    monkeypatch.chdir(odd)
    code, text = refused("headless", *(word.format(ok=place) for word in words), "--port", "0")
    assert code == 2
    assert text.startswith(f"error: {field} = ")
    assert "is not UTF-8" in text
    assert [one.name for one in odd.iterdir()] == ["train.py"]
