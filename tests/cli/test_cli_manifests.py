"""`flodl manifests`: settings of the command line in the commands of the pods."""

import json
import re

import pytest

from flodl_core.config.join_token import read_join_token
from flodl_core.net.tls_identity import read_identity


def commands(out):
    """The words of each pod's command, as they stand in the YAML."""
    found = []
    for block in out.split("command:\n")[1:]:
        rows = block.split(" env:\n")[0].splitlines()
        found.append([row.strip()[3:-1] for row in rows if row.strip().startswith('- "')])
    return found


def test_settings_that_are_given_reach_the_launcher(flodl):
    code, out, err = flodl(
        *("manifests", "charlm", "--image", "registry/flodl:1", "--hosts", "3", "--gpus", "2"),
        *("--epochs", "3", "--job-arg", "lr=0.1", "--no-meta", "--micro-batch", "8"),
    )
    assert (code, err) == (0, "")
    launcher, host = commands(out)
    assert launcher[:3] == ["flodl", "headless", "charlm"]
    said = " ".join(launcher)
    for words in (
        "--job-arg lr=0.1",
        "--no-meta",
        "--epochs 3",
        "--micro-batch 8",
        "--ranks 2 --devices cuda",
        "--min-rank-start 6 --target-ranks 6",
        "--bind 0.0.0.0 --port 1337 --advertise charlm",
    ):
        assert words in said, words
    assert " ".join(host).startswith("flodl join charlm:1337 --host $(POD_NAME) --job charlm")
    assert "--micro-batch 8" in " ".join(host)
    assert "--verbose" not in [*launcher, *host]
    assert [line for line in out.splitlines() if line.startswith("kind:")] == [
        'kind: "Secret"',
        'kind: "Service"',
        'kind: "Job"',
        'kind: "Job"',
    ]


def test_each_printing_has_a_token_of_its_own(flodl):
    words = ("manifests", "charlm", "--image", "i", "--hosts", "2")
    tokens = {
        line for _ in range(2) for line in flodl(*words)[1].splitlines() if "  token: " in line
    }
    assert len(tokens) == 2


def test_what_a_cluster_cannot_be_told_is_refused(flodl):
    assert flodl("manifests", "charlm")[0] == 2
    code, _, err = flodl("manifests", "charlm", "--image", "i", "--name", "My Run")
    assert (code, "no name of DNS" in err) == (2, True)
    for option in ("--namespace", "--claim"):
        code, _, err = flodl("manifests", "charlm", "--image", "i", option, "No_Name")
        assert (code, "no name of DNS" in err, option in err) == (2, True, True)
    code, _, err = flodl("manifests", "charlm", "--image", "i", "--tls-identity", "mine.pem")
    assert (code, "no option --tls-identity" in err) == (2, True)


def test_a_run_with_tls_has_a_certificate_that_its_token_names(flodl):
    code, out, err = flodl("manifests", "charlm", "--image", "i", "--hosts", "2", "--tls")
    assert (code, err) == (0, "")
    (token,) = re.findall(r'  token: "(.*)"', out)
    (pem,) = re.findall(r'  identity.pem: "(.*)"', out)
    named = read_join_token(token).fingerprint
    assert named == read_identity(json.loads(f'"{pem}"').encode()).fingerprint
    launcher, host = commands(out)
    assert launcher.count("--tls") == 1
    assert "--tls" not in host
    assert "tls" not in flodl("manifests", "charlm", "--image", "i", "--hosts", "2")[1]


def test_what_stands_in_the_settings_file_or_a_variable_reaches_the_launcher_too(
    flodl, place, monkeypatch
):
    (place / "flodl.toml").write_text(
        '[controller]\ntls = true\nbind = "10.0.0.5"\n[run]\nepochs = 7\ndata = "here"\n'
        "[elche]\noverhead_target = 0.123456789\n[job]\nlr = 0.5\n"
    )
    monkeypatch.setenv("FLODL_GAMMA", "0.5")
    monkeypatch.setenv("FLODL_NET_TIMEOUT_SCALE", "3")
    code, out, err = flodl(
        *("manifests", "charlm", "--image", "i", "--hosts", "2", "--heartbeat-timeout-s", "20")
    )
    assert (code, err) == (0, "")
    launcher, host = (" ".join(words) for words in commands(out))
    for words in (
        "--tls --tls-identity",
        "--epochs 7",
        "--overhead-target 0.123456789",
        "--job-arg lr=0.5",
        "--gamma 0.5",
        "--net-timeout-scale 3",
        "--heartbeat-timeout-s 20",
    ):
        assert words in launcher, words
    assert "--net-timeout-scale 3" in host
    assert "10.0.0.5" not in out, "a pod listens at its own address"
    assert "--data" not in out


def test_a_window_that_an_operator_closes_has_no_target(flodl):
    words = ("manifests", "charlm", "--image", "i", "--hosts", "2", "--start", "manual")
    launcher, _ = (" ".join(words) for words in commands(flodl(*words)[1]))
    assert "--min-rank-start 2" in launcher
    assert "--target-ranks" not in launcher


def test_one_rank_in_one_pod_trains_without_waiting_for_another(flodl):
    code, out, err = flodl("manifests", "charlm", "--image", "i")
    assert (code, err) == (0, "")
    (launcher,) = commands(out)
    assert "--bind" not in launcher, "a port that others reach makes the quorum two ranks"
    assert 'kind: "Service"' not in out
    for words in (["--hosts", "2"], ["--gpus", "2"], ["--start", "manual"]):
        out = flodl("manifests", "charlm", "--image", "i", *words)[1]
        assert "--bind 0.0.0.0" in " ".join(commands(out)[0]), words


def test_every_pod_is_told_how_long_the_job_may_take_to_build_and_what_is_logged(
    flodl, monkeypatch
):
    monkeypatch.setenv("FLODL_INSPECT_TIMEOUT_S", "600")
    words = ("manifests", "charlm", "--image", "i", "--hosts", "2", "--verbose")
    code, out, _ = flodl(*words, "--net-timeout-scale", "3")
    assert code == 0
    for command in commands(out):
        said = " ".join(command)
        assert "--inspect-timeout-s 600" in said
        assert said.count("--net-timeout-scale 3") == 1
        assert said.count("--verbose") == 1


@pytest.mark.parametrize(
    ("words", "devices", "ranks"),
    [
        ((), "cpu", 1),
        (("--gpus", "4"), "cuda", 4),
        (("--gpus", "4", "--devices", "cpu"), "cpu", 1),
        (("--gpus", "4", "--devices", "cuda:1,cuda:3"), "cuda:1,cuda:3", 2),
        (("--gpus", "4", "--ranks-per-host", "2"), "cuda", 2),
        (("--devices", "all", "--ranks-per-host", "3"), "cpu", 3),
    ],
)
def test_pods_have_the_devices_that_are_asked_for(flodl, words, devices, ranks):
    code, out, _ = flodl("manifests", "charlm", "--image", "i", "--hosts", "2", *words)
    assert code == 0
    for command in commands(out):
        said = " ".join(command)
        assert f"--ranks {ranks} --devices {devices}" in said
        assert said.count("--devices") == 1
    assert f"--min-rank-start {2 * ranks} " in " ".join(commands(out)[0])


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--devices", "cuda"), "a pod gets no GPUs, and no cuda"),
        (("--gpus", "1", "--devices", "cuda:0,cuda:1"), "a pod gets 1 GPU, and no cuda:1"),
        (("--devices", "mps"), "and no mps"),
        (("--gpus", "2", "--ranks-per-host", "3"), "3 ranks were asked for"),
    ],
)
def test_devices_that_no_pod_gets_are_refused(flodl, words, reason):
    code, out, err = flodl("manifests", "charlm", "--image", "i", *words)
    assert (code, out) == (2, "")
    assert reason in err


def test_options_of_the_job_keep_their_types(flodl, place):
    (place / "flodl.toml").write_text(
        "[job]\ntag = '7'\nword = 'a,b'\nsteps = [5]\nscale = 1.0\nis_on = 'true'\n"
    )
    code, out, _ = flodl("manifests", "charlm", "--image", "i")
    (launcher,) = commands(out)
    assert code == 0
    given = launcher[launcher.index("charlm") + 1 : launcher.index("--ranks")]
    (place / "flodl.toml").unlink()
    read = json.loads(flodl("config", "--json", *given)[1])["run.job_args"]["value"]
    assert read == {"tag": "7", "word": "a,b", "steps": [5], "scale": 1.0, "is_on": "true"}
    assert isinstance(read["scale"], float)
