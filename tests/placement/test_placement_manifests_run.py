"""What `flodl manifests --tls` prints, run without a cluster: a pod's variables, files and words.

The kubelet's part is played by `manifest_reader`; names of the cluster are replaced by
addresses of this machine. Everything else is as it is in pods.
"""

import httpx
import pytest
from harness import LONG_S, Launched, run_flodl
from manifest_reader import Pod, read_manifests

from flodl_core.config.join_token import read_join_token
from flodl_core.net.tls import pinned_context

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.long
def test_pods_of_rendered_manifests_find_each_other_inside_tls_and_train(tmp_path):
    printed = run_flodl(
        tmp_path,
        *("manifests", "synthetic", "--image", "registry/train:1", "--hosts", "2", "--tls"),
        *("--name", "night", "--epochs", "40", "--step-ms", "5"),
        *("--job-arg", "params=1000", "--job-arg", "samples=64"),
    )
    assert printed.code == 0, printed
    documents = read_manifests(printed.out)
    main = Pod(documents, "Job/night-launcher", name="night-launcher-x7", mounts=tmp_path / "one")
    guest = Pod(documents, "Job/night-host", name="night-host-0-q2", mounts=tmp_path / "two")
    place = tmp_path / "run"
    place.mkdir()
    words = main.command()
    assert words[:2] == ["flodl", "headless"]
    words[words.index("--run-dir") + 1] = "runs"
    run = Launched(place, *words[2:], extra=main.env)
    try:
        run.until_said("note", "listens on", LONG_S)
        token = read_join_token(main.env["FLODL_TOKEN"])
        assert token.fingerprint is not None
        with httpx.Client(verify=pinned_context(token.fingerprint), trust_env=False) as client:
            assert client.get(f"https://{run.address}/healthz").status_code == 200
        assert httpx.get(f"http://{run.address}/healthz", trust_env=False).status_code == 400

        joining = guest.command()
        assert joining[:3] == ["flodl", "join", "night:1337"]
        joining[2] = run.address
        other = run_flodl(tmp_path, *joining[1:], env={**run.env, "FLODL_TOKEN": "00" * 16})
        assert other.code == 3, other
        host = run.start_flodl(*joining[1:])
        assert run.finish(leaves_guest=True) == 0, run.story()
        assert host.finish().code == 0
        run.check_nothing_left()
        hosts = {row["host"] for row in run.summary["ranks"]}
        assert "night-host-0-q2" in hosts
        assert len(hosts) == 2
        assert run.summary["samples_trained"] == 40 * 64
        assert run.summary["alerts"] == {}
        told = run.stderr + "".join(map(str, run.rows))
        assert token.secret.hex() not in told
        assert "PRIVATE KEY" not in told
    finally:
        run.destroy()
