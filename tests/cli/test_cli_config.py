"""`flodl config`: each setting, its value, and where it comes from."""

import json

from flodl_core.config.keys import KEYS

TOKEN = "00112233445566778899aabbccddeeff"


def rows(out):
    lines = out.splitlines()
    return {line.split()[0]: line.split(maxsplit=2)[1:] for line in lines[1:]}


def test_every_setting_is_printed_with_its_source(flodl, monkeypatch, place):
    (place / "flodl.toml").write_text(
        "[run]\nhosts = 2\nseed = 1\n[join]\nport = 4000\n[job]\ndepth = 4\n"
    )
    monkeypatch.setenv("FLODL_SEED", "7")
    monkeypatch.setenv("FLODL_PORT", "5000")
    code, out, err = flodl("config", "charlm", "--port", "6000", "--require-token")
    assert (code, err) == (0, "")
    shown = rows(out)
    assert set(shown) == set(KEYS)
    assert shown["run.job"] == ["charlm", "flag JOB"]
    assert shown["run.hosts"][0] == "2"
    assert shown["run.hosts"][1].endswith("flodl.toml:2")
    assert shown["run.seed"] == ["7", "environment FLODL_SEED"]
    assert shown["join.port"] == ["6000", "flag --port"]
    assert shown["join.require_token"] == ["true", "flag --require-token"]
    assert shown["run.epoch_splits"] == ["1", "default"]
    assert shown["join.max_join_timeout_s"] == ["600", "derived from start_mode and join_timeout_s"]
    assert shown["run.job_args"][0] == "depth=4"


def test_json_holds_values_and_sources(flodl):
    code, out, _ = flodl("config", "--json", "--step-ms", "5,5,20", "--no-open-admission")
    assert code == 0
    shown = json.loads(out)
    assert set(shown) == set(KEYS)
    assert shown["run.job_args"]["value"] == {"step_ms": [5, 5, 20]}
    assert shown["join.open_admission"] == {"value": False, "source": "flag --open-admission"}
    assert shown["run.epochs"] == {"value": None, "source": "default"}


def test_a_token_is_never_printed(flodl, monkeypatch):
    monkeypatch.setenv("FLODL_TOKEN", TOKEN)
    for words in (["config"], ["config", "--json"]):
        code, out, _ = flodl(*words)
        assert code == 0
        assert TOKEN not in out
        assert "(hidden)" in out


def test_another_file_may_be_named(flodl, place):
    (place / "other.toml").write_text("[run]\nepochs = 5\n")
    assert rows(flodl("config", "--config", "other.toml")[1])["run.epochs"][0] == "5"
    assert rows(flodl("config")[1])["run.epochs"][0] == "-"
