"""`flodl probe` as a command: devices tried, a job measured, a controller looked for."""

import json
import socket

import pytest
from harness import LONG_S, run_flodl

pytestmark = [pytest.mark.processes, pytest.mark.slow, pytest.mark.long]


def test_a_job_is_measured_on_each_rank_and_judged_beside_ddp(tmp_path):
    said = run_flodl(
        tmp_path,
        *("probe", "synthetic", "--ranks", "2", "--step-ms", "20,200", "--measure-s", "0.2"),
        *("--json", "--port", "0"),
        within_s=LONG_S,
    )
    assert said.code == 0, said
    document = json.loads(said.out)
    assert not document["has_errors"]
    fast, slow = document["rates"]
    assert (fast["device"], slow["device"]) == ("cpu:0", "cpu:1")
    assert fast["batch_ms"] >= 20
    assert slow["batch_ms"] >= 200
    assert min(fast["batches"], slow["batches"]) >= 3
    names = [way["name"] for way in document["estimate"]["ways"]]
    assert names[:4] == ["cpu_sync", "cpu_cadence", "cpu_async", "DDP"]
    assert document["estimate"]["verdict"]
    assert not list(tmp_path.glob("runs")), "nothing is written"


def test_a_port_in_use_and_a_controller_that_is_not_there_are_errors(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        said = run_flodl(
            tmp_path,
            *("probe", "--port", str(taken.getsockname()[1])),
            *("--controller", f"127.0.0.1:{free.getsockname()[1]}"),
            within_s=LONG_S,
        )
    assert said.code == 1, said
    rows = {line.split()[1]: line for line in said.out.splitlines() if line.split()}
    assert rows["port"].startswith("ERROR")
    assert "nothing listens" in rows["controller"]
    assert rows["torch"].startswith("ok")
