"""`flodl manifests`: settings of the command line in the commands of the pods."""


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
    code, _, err = flodl("manifests", "charlm", "--image", "i", "--tls")
    assert (code, "certificate" in err) == (2, True)
