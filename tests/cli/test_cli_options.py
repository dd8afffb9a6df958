"""Options are the settings of the schema, no more and no fewer."""

import pytest

from flodl_core.cli.bare_options import fill_bare_options
from flodl_core.cli.index import COMMANDS, load_command
from flodl_core.cli.options import default_text, flag_name, metavar, setting_keys, with_step_ms
from flodl_core.config.keys import KEYS

PROCESS_OPTIONS = {"--config", "--json", "--verbose", "-v", "--step-ms"}


def options_of(name):
    return {
        option
        for param in load_command(name).params
        if param.param_type_name == "option"
        for option in (*param.opts, *param.secondary_opts)
    }


def test_headless_takes_each_setting_of_a_run_and_nothing_else():
    flags = {
        key.flag
        for key in KEYS.values()
        if key.table in ("run", "join", "net") and key.dotted != "run.job" and not key.secret
    }
    switches = ("open-admission", "require-token", "tls", "insecure-nccl", "meta", "relax-up")
    negations = {f"--no-{switch}" for switch in switches}
    assert options_of("headless") == flags | negations | PROCESS_OPTIONS


@pytest.mark.parametrize(
    "option",
    [
        "--mode",
        "--epochs",
        "--epoch-splits",
        "--batch-size",
        "--micro-batch",
        "--seed",
        "--gamma",
        "--sample-log",
        "--save-path",
        "--checkpoint-every-s",
        "--hosts",
        "--ranks-per-host",
        "--ranks",
        "--devices",
        "--start",
        "--min-rank-start",
        "--target-ranks",
        "--join-timeout-s",
        "--max-join-timeout-s",
        "--bind",
        "--port",
        "--tls",
        "--tls-identity",
        "--require-token",
        "--open-admission",
        "--step-ms",
        "--job-arg",
        "--run-dir",
        "--name",
        "--heartbeat-timeout-s",
        "--json",
        "--verbose",
        "--config",
        "--on-event",
    ],
)
def test_headless_has_the_options_that_the_documents_promise(option):
    assert option in options_of("headless")


def test_config_takes_the_options_of_headless():
    assert options_of("config") == options_of("headless")


def test_join_takes_the_settings_of_an_agent_except_the_token():
    flags = {
        key.flag
        for key in KEYS.values()
        if key.table in ("agent", "net") and key.dotted not in ("agent.controller", "agent.token")
    }
    assert options_of("join") == flags | {"--no-persist", "--config", "--verbose", "-v"}


def test_every_command_takes_a_settings_file_and_verbose():
    for name in COMMANDS:
        assert {"--config", "--verbose", "-v"} <= options_of(name), name


def test_every_option_says_what_it_does():
    for name in COMMANDS:
        for param in load_command(name).params:
            assert len(param.help or "") > 10, (name, param.name)


def test_the_help_of_a_command_groups_its_options_and_ends_with_examples(flodl):
    code, out, _ = flodl("headless", "--help")
    assert code == 0
    titles = [line for line in out.splitlines() if line.endswith(":") and line[0].isalpha()]
    assert titles == ["Arguments:", "Run:", "Join window:", "Network:", "Options:", "Examples:"]
    assert "[default: 1337]" in out
    assert all(len(line) <= 100 for line in out.splitlines())


def test_defaults_and_placeholders_are_shown_as_they_would_be_typed():
    shown = {name: default_text(KEYS[name]) for name in KEYS}
    assert shown["join.port"] == "1337"
    assert shown["run.devices"] == "all"
    assert shown["run.heartbeat_timeout_s"] == "30"
    assert shown["join.start_mode"] == "auto"
    assert shown["join.open_admission"] == "off"
    assert shown["run.epochs"] == ""
    assert shown["run.job_args"] == ""
    words = {name: metavar(KEYS[name]) for name in KEYS}
    assert words["run.epochs"] == "N"
    assert words["run.stop_grace_s"] == "SECONDS"
    assert words["run.run_dir"] == "DIR"
    assert words["agent.token_file"] == "FILE"
    assert words["run.job_args"] == "KEY=VALUE"


def test_the_scale_has_the_name_that_the_loader_takes():
    assert flag_name(KEYS["net.timeout_scale"]) == "net_timeout_scale"
    assert flag_name(KEYS["join.start_mode"]) == "start_mode"
    assert "run.job" not in {key.dotted for key in setting_keys(("run",))}


def test_step_ms_is_an_option_of_the_job():
    assert with_step_ms({"seed": "1"}, None) == {"seed": "1"}
    assert with_step_ms({"job_args": None}, "5,20") == {"job_args": ["step_ms=5,20"]}
    assert with_step_ms({"job_args": ["a=1"]}, "5") == {"job_args": ["a=1", "step_ms=5"]}


@pytest.mark.parametrize(
    ("words", "filled"),
    [
        ("headless charlm --resume", "headless charlm --resume auto"),
        ("headless --resume --ranks 2 charlm", "headless --resume auto --ranks 2 charlm"),
        ("headless charlm --resume out/model", "headless charlm --resume out/model"),
        ("headless charlm --resume=x -v", "headless charlm --resume=x -v"),
        ("headless -- --resume", "headless -- --resume"),
        ("status", "status"),
    ],
)
def test_resume_alone_is_resume_auto(words, filled):
    assert fill_bare_options(words.split()) == filled.split()
